"""Watches against a server that ends them, refuses them or falls silent at will."""

import asyncio
import json
from contextlib import aclosing

import pytest

from martlet.cluster.store import Change, RevisionCompacted, StoreClosed, StoreRefused, StoreReplaced, StoreUnavailable
from martlet.stores.etcd import EtcdStore
from martlet.stores.etcd_gateway import PUT, WATCH
from tests.unit.stores.scripted_server import HANG_UP, Answer, Raw, Seen, fault, header, ok, opened, script


def _stream(*messages: object, then_close: bool = False) -> Raw:
    lines = b"".join(json.dumps({"result": message}).encode() + b"\n" for message in messages)
    head = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
    return Raw(head + f"{len(lines):x}\r\n".encode() + lines + b"\r\n", then_close)


def _event(revision: int, key: str = "L3Rlc3QvYQ==") -> dict[str, object]:
    return {"kv": {"key": key, "create_revision": str(revision), "mod_revision": str(revision), "value": "eA=="}}


async def _next(store: EtcdStore, after_revision: int = 1) -> Change:
    async with asyncio.timeout(10), aclosing(store.watch("", after_revision)) as changes:
        return await anext(changes)


async def test_sto_10_a_watch_resumes_at_what_it_delivered_not_at_a_header() -> None:
    server = script()
    starts: list[object] = []

    def answer(seen: Seen) -> Answer:
        if seen.path != WATCH:
            return ok(50)
        request = seen.message["create_request"]
        assert isinstance(request, dict)
        starts.append(request["start_revision"])
        created = {"header": header(40), "created": True}
        bring = {"header": header(45), "events": [_event(10 + len(starts)), _event(20 + len(starts))]}
        return _stream(created, bring, then_close=len(starts) < 2)

    async with opened(server) as store:
        server.answer = answer
        async with asyncio.timeout(10), aclosing(store.watch("", 5)) as changes:
            revisions = [(await anext(changes)).revision for _ in range(3)]
    assert starts == ["5", "21"]
    # The second stream brought 12 again, which was known, and 22.
    assert revisions == [11, 21, 22]


async def test_a_watch_that_etcd_cancels_for_compaction_ends_though_the_stream_stays_open() -> None:
    server = script()
    async with opened(server) as store:
        server.answer = lambda _: _stream(
            {"header": header(9), "created": True}, {"header": header(9), "canceled": True, "compact_revision": "7"}
        )
        with pytest.raises(RevisionCompacted) as caught:
            await _next(store)
        assert caught.value.oldest_revision == 8


async def test_a_watch_refused_again_and_again_is_refused_with_its_reason() -> None:
    server = script()
    refused = {"header": header(), "created": True, "canceled": True, "cancel_reason": "etcdserver: no such right"}
    async with opened(server) as store:
        server.answer = lambda seen: _stream(refused) if seen.path == WATCH else ok()
        with pytest.raises(StoreRefused, match="no such right"):
            await _next(store)


@pytest.mark.parametrize(
    "answer",
    [
        HANG_UP,
        _stream({"header": header(), "created": True}, then_close=True),
        _stream({"events": 7}, then_close=True),
        (503, b""),
        fault(14, "etcdserver: no leader", 503),
    ],
)
async def test_streams_that_always_end_at_once_are_reported_as_unavailable(answer: Answer) -> None:
    server = script()
    async with opened(server) as store:
        server.answer = lambda seen: answer if seen.path == WATCH else ok()
        with pytest.raises(StoreUnavailable):
            await _next(store)


async def test_a_watch_on_another_cluster_is_not_followed() -> None:
    server = script()
    async with opened(server) as store:
        server.answer = lambda seen: _stream({"header": header(cluster=8), "created": True})
        with pytest.raises(StoreReplaced):
            await _next(store)


async def test_sto_11_a_silent_stream_is_replaced_when_the_tick_does_not_come() -> None:
    server = script()
    streams: list[Seen] = []

    def answer(seen: Seen) -> Answer:
        if seen.path == WATCH:
            streams.append(seen)
            created = {"header": header(3), "created": True}
            return (
                _stream(created)
                if len(streams) == 1
                else _stream(created, {"header": header(3), "events": [_event(3)]})
            )
        return ok(4 if seen.path == PUT else 3)

    async with opened(server) as store:
        server.answer = answer
        assert (await _next(store)).revision == 3
    assert len(streams) == 2
    assert PUT in server.paths()


async def test_a_closed_store_ends_its_watches_and_refuses_calls() -> None:
    server = script()
    async with opened(server) as store:
        server.answer = lambda seen: _stream({"header": header(), "created": True}) if seen.path == WATCH else ok()

        async def follow() -> int:
            return len([change async for change in store.watch("", 1)])

        following = asyncio.create_task(follow())
        while WATCH not in server.paths():
            await asyncio.sleep(0.001)
        await store.close()
        assert await asyncio.wait_for(following, 5) == 0
        with pytest.raises(StoreClosed):
            await store.get("a")
