"""Every answer says how long its client is to wait, as one hook decides (KIP-219)."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from sim.clock import SimClock

from martlet.broker.ground.request import Link, Reply
from martlet.broker.services import BrokerServices
from martlet.broker.serving.dispatch import Dispatcher, no_throttle
from martlet.broker.serving.registry import build_registry
from martlet.observe.metrics import BrokerMetrics
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import FetchPartition, parse_fetch_response
from martlet.wire.headers import RequestHeader
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from martlet.wire.produce import parse_produce_response
from tests.unit.broker.replica_table_bench import LINK, Line, record, replica_table

SHARED = HeartbeatResponse()


class _Queue(Line):
    def __init__(self, dispatcher: Dispatcher) -> None:
        super().__init__()
        self._dispatcher = dispatcher

    def throttle_ms(self, header: RequestHeader) -> int:
        return self._dispatcher.throttle(LINK, header)


def _heartbeat(broker: BrokerServices, request: Any, context: Any) -> HeartbeatResponse:
    return SHARED


def _answer_of(dispatcher: Dispatcher) -> tuple[Reply, HeartbeatResponse]:
    reply = Reply(RequestHeader(ApiKey.HEARTBEAT, 3, 1, "client", 0), _Queue(dispatcher))
    dispatcher.start(LINK, memoryview(encode(HeartbeatRequest("g", 1, "m"), 3)), reply)
    return reply, decode(HeartbeatResponse, 3, b"".join(reply.chunks[1:]))


def test_the_answers_of_all_message_apis_are_filled_by_the_dispatcher() -> None:
    module = SimpleNamespace(KEY=ApiKey.HEARTBEAT, VERSIONS=(0, 4), REQUEST=HeartbeatRequest, handle=_heartbeat)
    services = cast(
        BrokerServices, SimpleNamespace(clock=SimClock(), metrics=BrokerMetrics(), access=SimpleNamespace(rules=None))
    )
    registry = build_registry([cast(Any, module)])
    asked: list[tuple[Link, int]] = []

    def hook(link: Link, header: RequestHeader) -> int:
        asked.append((link, header.api_key))
        return 100

    reply, answer = _answer_of(Dispatcher(services, registry, hook))
    assert answer.throttle_time_ms == reply.throttle_ms == 100
    assert asked == [(LINK, ApiKey.HEARTBEAT)]
    reply, answer = _answer_of(Dispatcher(services, registry))
    assert answer.throttle_time_ms == reply.throttle_ms == 0, "one client's wait never shows in another's answer"
    assert no_throttle(LINK, reply.header) == 0


async def test_publishes_and_fetches_are_answered_with_the_time_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "wait_ms", 100)
    async with replica_table() as bench:
        bench.store(record(in_sync=record().isr[:1]))
        published = bench.produce(acks=1)
        await bench.flush()
        assert parse_produce_response(published.body, 12).throttle_time_ms == 100
        for offset in (0, 99):
            fetched = bench.fetch(FetchPartition(0, 0, offset, partition_max_bytes=1 << 20), max_wait_ms=0)
            await bench.settle()
            assert parse_fetch_response(fetched.body, 18).throttle_time_ms == 100
        session = bench.fetch(session_id=7, session_epoch=3)
        assert parse_fetch_response(session.body, 18).throttle_time_ms == 100
        silent = bench.produce(acks=0)
        assert silent.reply.throttle_ms == 100, "a publish without an answer counts too"
