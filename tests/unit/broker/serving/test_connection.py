"""One connection on a fake transport: order of replies, what may start when, flow control and deadlines."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest
from sim.clock import SimClock

from martlet.base.addresses import Address
from martlet.broker.ground.listeners import ListenerOptions, ListenerProtocol
from martlet.broker.ground.request import Link, Reply
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.serving.connection import KafkaConnection
from martlet.broker.serving.dispatch import Dispatcher
from martlet.broker.serving.memory_budget import MemoryBudget
from martlet.broker.serving.outbox import Outbox
from martlet.observe.metrics import BrokerMetrics, DropReason
from martlet.wire.api_keys import ApiKey
from martlet.wire.headers import RequestHeader

PRODUCE, METADATA = ApiKey.PRODUCE, ApiKey.METADATA


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.reading = True
        self.closed = False
        self.sent_before_close = 0
        self.unsent = 1000

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("10.0.0.9", 5555), "sockname": ("127.0.0.1", 9092)}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, chunks: Any) -> None:
        for chunk in chunks:
            self.sent += chunk

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.closed = True
        self.sent_before_close = len(self.sent)


class ScriptedDispatcher:
    """Keeps every reply until the test completes it."""

    def __init__(self) -> None:
        self.metrics = BrokerMetrics()
        self.started: list[Reply] = []
        self.refusals: list[str] = []
        self.on_start: Callable[[Reply], None] = lambda reply: None
        self.wait_ms = 0
        """How long clients wait after each answer."""
        self.links: list[Link] = []

    def start(self, link: Link, frame: memoryview, reply: Reply) -> None:
        self.started.append(reply)
        self.links.append(link)
        self.on_start(reply)

    def throttle(self, link: Link, header: RequestHeader) -> int:
        return self.wait_ms

    def report_refusal(self, link: Link, reason: str) -> None:
        self.refusals.append(reason)


class Owner:
    def __init__(self, refuse: str | None = None) -> None:
        self.refuse = refuse
        self.open = 0

    def opened(self, connection: KafkaConnection, peer: Address) -> str | None:
        if self.refuse is None:
            self.open += 1
        return self.refuse

    def closed(self, connection: KafkaConnection) -> None:
        self.open -= 1


class Bench:
    """A connection with everything around it in the test's hands."""

    def __init__(self, **settings: Any) -> None:
        self.clock = SimClock()
        self.dispatcher = ScriptedDispatcher()
        self.transport = FakeTransport()
        self.owner = Owner(settings.pop("refuse", None))
        protocol = ListenerProtocol.SASL_PLAIN if settings.pop("authenticates", False) else ListenerProtocol.PLAIN
        self._end_of_turn: list[Callable[[], None]] = []
        self.connection = KafkaConnection(
            BrokerSettings(**settings),
            cast(Dispatcher, self.dispatcher),
            MemoryBudget(1 << 30),
            self.clock,
            self.owner,
            Outbox(self._end_of_turn.append),
            ListenerOptions("kafka", Address("", 0), protocol=protocol),
        )
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes) -> None:
        while data:
            space = self.connection.get_buffer(-1)
            count = min(len(space), len(data))
            space[:count] = data[:count]
            data = data[count:]
            self.connection.buffer_updated(count)

    def end_turn(self) -> None:
        """What the event loop does before it waits for something new."""
        ending, self._end_of_turn[:] = [*self._end_of_turn], []
        for callback in ending:
            callback()

    def correlation_ids_sent(self) -> list[int]:
        """After the turn's end."""
        self.end_turn()
        sent, ids = bytes(self.transport.sent), []
        while sent:
            length, correlation = struct.unpack_from(">ii", sent)
            ids.append(correlation)
            sent = sent[4 + length :]
        return ids


def request(api: ApiKey, correlation: int, *, padding: int = 0) -> bytes:
    body = struct.pack(">hhih", api, 3, correlation, -1) + bytes(padding)
    return struct.pack(">i", len(body)) + body


def test_replies_leave_in_the_order_of_the_requests_whatever_finishes_first() -> None:
    bench = Bench()
    bench.receive(b"".join(request(PRODUCE, number) for number in range(3)))
    assert len(bench.dispatcher.started) == 3
    for index in (2, 0, 1):
        bench.dispatcher.started[index].send((b"",))
    assert bench.correlation_ids_sent() == [0, 1, 2]


def test_a_request_waits_for_the_one_before_it_unless_both_are_publishes() -> None:
    bench = Bench()
    bench.receive(request(PRODUCE, 0) + request(PRODUCE, 1) + request(METADATA, 2) + request(PRODUCE, 3))
    assert [reply.header.correlation_id for reply in bench.dispatcher.started] == [0, 1]
    assert not bench.transport.reading, "nothing more is read while a request is held"
    bench.dispatcher.started[1].send((b"",))
    assert len(bench.dispatcher.started) == 2
    bench.dispatcher.started[0].send((b"",))
    assert [reply.header.correlation_id for reply in bench.dispatcher.started] == [0, 1, 2]
    bench.dispatcher.started[2].send((b"",))
    assert [reply.header.correlation_id for reply in bench.dispatcher.started] == [0, 1, 2, 3]
    assert bench.transport.reading


def test_publishes_in_flight_are_bounded() -> None:
    bench = Bench(in_flight_requests_max=4)
    bench.receive(b"".join(request(PRODUCE, number) for number in range(10)))
    assert len(bench.dispatcher.started) == 4
    bench.dispatcher.started[0].send((b"",))
    assert len(bench.dispatcher.started) == 5


def test_ten_thousand_pipelined_requests_are_answered_in_order_without_recursion() -> None:
    bench = Bench()
    bench.dispatcher.on_start = lambda reply: reply.send((b"",))
    bench.receive(b"".join(request(METADATA, number) for number in range(10_000)))
    assert bench.correlation_ids_sent() == list(range(10_000))


def test_nothing_starts_while_the_peer_does_not_take_its_answers() -> None:
    bench = Bench()
    bench.connection.pause_writing()
    assert not bench.transport.reading
    bench.receive(request(METADATA, 1))
    assert not bench.dispatcher.started
    bench.connection.resume_writing()
    assert len(bench.dispatcher.started) == 1


def test_an_unanswered_publish_leaves_the_queue_without_bytes() -> None:
    bench = Bench()
    bench.receive(request(PRODUCE, 0) + request(PRODUCE, 1))
    bench.dispatcher.started[1].send((b"",))
    bench.dispatcher.started[0].send_nothing()
    assert bench.correlation_ids_sent() == [1]


def test_a_frame_of_absurd_length_closes_the_connection_with_one_line() -> None:
    bench = Bench()
    bench.receive(b"GET / HTTP/1.1\r\n\r\n")
    assert bench.transport.closed
    assert len(bench.dispatcher.refusals) == 1
    assert "HTTP" in bench.dispatcher.refusals[0]
    assert bench.dispatcher.metrics.connections_dropped[DropReason.PROTOCOL_VIOLATION] == 1


def test_a_connection_over_the_limit_is_closed_and_never_counted() -> None:
    bench = Bench(refuse="too many")
    assert bench.transport.closed
    assert bench.dispatcher.refusals == ["too many"]
    assert bench.owner.open == 0


@pytest.mark.parametrize(("wait_ms", "closed"), [(599_000, False), (600_001, True)])
def test_an_idle_connection_is_closed_after_its_time(wait_ms: int, closed: bool) -> None:
    bench = Bench()
    bench.clock.advance(wait_ms)
    bench.connection.check_deadlines(bench.clock.monotonic_ms())
    assert bench.transport.closed is closed


def test_a_request_that_drips_in_is_cut_off_although_bytes_keep_coming() -> None:
    bench = Bench()
    for byte in request(METADATA, 1)[:9]:
        bench.receive(bytes([byte]))
        bench.clock.advance(4_000)
        bench.connection.check_deadlines(bench.clock.monotonic_ms())
    assert bench.transport.closed


def test_a_client_that_never_reads_is_cut_off() -> None:
    bench = Bench()
    bench.connection.pause_writing()
    bench.clock.advance(60_001)
    bench.connection.check_deadlines(bench.clock.monotonic_ms())
    assert bench.transport.closed
    assert bench.dispatcher.metrics.connections_dropped[DropReason.STALLED] == 1


def test_draining_answers_what_was_asked_and_then_closes() -> None:
    bench = Bench()
    bench.receive(request(PRODUCE, 0))
    bench.connection.drain()
    assert not bench.transport.closed
    bench.dispatcher.started[0].send((b"",))
    assert bench.correlation_ids_sent() == [0]
    assert bench.transport.closed


def test_a_lost_connection_abandons_its_replies() -> None:
    bench = Bench()
    bench.receive(request(PRODUCE, 0))
    bench.connection.connection_lost(None)
    assert bench.dispatcher.started[0].abandoned
    bench.dispatcher.started[0].send((b"",))
    assert not bench.transport.sent
    assert bench.owner.open == 0


def test_a_client_that_reads_slowly_but_steadily_is_kept() -> None:
    bench = Bench()
    bench.connection.pause_writing()
    for _ in range(5):
        bench.clock.advance(40_000)
        bench.transport.unsent -= 100
        bench.connection.check_deadlines(bench.clock.monotonic_ms())
    assert not bench.transport.closed


def test_a_busy_client_whose_reads_end_inside_a_frame_is_not_taken_for_a_slow_one() -> None:
    bench = Bench()
    bench.dispatcher.on_start = lambda reply: reply.send((b"",))
    half = request(METADATA, 2)[:5]
    bench.receive(half)
    for _ in range(10):
        bench.receive(request(METADATA, 2)[5:] + half)
        bench.clock.advance(20_000)
        bench.connection.check_deadlines(bench.clock.monotonic_ms())
    assert not bench.transport.closed


def test_parked_work_hears_at_once_that_its_connection_is_gone() -> None:
    bench = Bench()
    bench.receive(request(METADATA, 1))
    heard = []
    bench.dispatcher.started[0].on_abandoned = lambda: heard.append(True)
    bench.connection.connection_lost(None)
    assert heard == [True]


# --- answers of one turn


def _answer(reply: Reply, *chunks: bytes) -> None:
    reply.send(chunks or (b"",))


def test_the_first_answer_of_a_turn_leaves_at_once_and_the_next_ones_with_its_end() -> None:
    bench = Bench()
    bench.receive(b"".join(request(PRODUCE, number) for number in range(3)))
    first, *others = bench.dispatcher.started
    _answer(first)
    at_once = len(bench.transport.sent)
    assert at_once
    for reply in others:
        _answer(reply)
    assert len(bench.transport.sent) == at_once
    assert bench.correlation_ids_sent() == [0, 1, 2]


def test_a_large_answer_takes_those_that_wait_with_it_and_does_not_wait() -> None:
    bench = Bench()
    bench.receive(b"".join(request(PRODUCE, number) for number in range(3)))
    for reply, size in zip(bench.dispatcher.started, (10, 10, 100_000), strict=True):
        _answer(reply, bytes(size))
    assert len(bench.transport.sent) > 100_020
    assert bench.correlation_ids_sent() == [0, 1, 2]


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_connection_that_closes_has_sent_the_answers_that_waited(is_refused: bool) -> None:
    bench = Bench()
    bench.receive(b"".join(request(PRODUCE, number) for number in range(2)))
    for reply in bench.dispatcher.started:
        _answer(reply)
    if is_refused:
        bench.connection.refuse("too long")
    else:
        bench.connection.drain()
    assert bench.transport.closed
    assert bench.transport.sent_before_close == len(bench.transport.sent)
    assert bench.correlation_ids_sent() == [0, 1]


def test_a_connection_that_is_dropped_sends_nothing_more() -> None:
    bench = Bench()
    bench.receive(b"".join(request(PRODUCE, number) for number in range(2)))
    for reply in bench.dispatcher.started:
        _answer(reply)
    bench.connection.abort()
    assert bench.correlation_ids_sent() == [0]


def test_the_next_request_starts_although_the_answer_before_it_waits_for_the_turns_end() -> None:
    bench = Bench()
    bench.dispatcher.on_start = _answer
    bench.receive(b"".join(request(METADATA, number) for number in range(4)))
    assert len(bench.dispatcher.started) == 4
    assert bench.correlation_ids_sent() == [0, 1, 2, 3]
