"""The comparison's throughput: publishing, reading back, both at once, compressed, over many partitions, replicated.

Two kinds of load where Kafka's protocol is spoken: ready-made requests (`bench.load_client`), which cost the client
next to nothing, so that the server is the limit, and librdkafka, which is what a program gets. Others have their client
only. A server that discards (`bench.peers.systems.sink`), or for the others their own way of discarding, shows its
limit.
"""

import contextlib
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from bench.fetch_plan import FetchPlan
from bench.peers.report import RATE, Sample
from bench.peers.session import CLIENT, READY_MADE, Session
from bench.peers.systems.system import Protocol
from bench.processes import ProcessFailed, run_helper
from bench.rounds import MEGABYTE
from bench.wire_client import FETCH_VERSION, WireClient, fetch_body, fetch_frame
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import parse_fetch_response
from martlet.wire.headers import response_prefix

_SIZES: Final = ((100, "100 B"), (1024, "1 KB"), (10_240, "10 KB"))
_BATCHES: Final = (1, 10, 100, 1_000)
_FETCH_BYTES: Final = 1 << 20
_FETCH_SECONDS_MAX: Final = 10.0
_HEADER: Final = struct.Struct(">qi11xi")
"""Of a record batch: base offset, length behind it, last offset delta."""


def _count(session: Session, value_bytes: int) -> int:
    """Messages of one publish by a client: some seconds' worth, or what the time limit lets through."""
    few = 20_000 if session.speaks_kafka and value_bytes < 10_000 else 1_000
    return session.context.sized(min(1_000_000, 400 * MEGABYTE // value_bytes), few)


def publish(session: Session) -> Iterator[Sample]:
    """Three sizes, as fast as it goes."""
    for value_bytes, label in _SIZES:
        where = {"value_bytes": float(value_bytes)}
        if session.speaks_kafka:
            total = session.context.sized(400 * MEGABYTE, 4 * MEGABYTE)
            case = f"{label}, {READY_MADE}, {session.durability}"
            run = _ready_made(session, value_bytes, 0, total)
            yield from session.timed(case, run, writes_bytes=0 if session.is_sink else total, **where)
        queue, count = session.queue(), _count(session, value_bytes)
        run = _by_client(session, queue, value_bytes, count)
        case = f"{label}, {CLIENT}, {session.durability}"
        yield from session.timed(case, run, writes_bytes=0 if session.is_sink else count * value_bytes, **where)
        if not session.speaks_kafka:
            result = session.running.load(
                {"role": "discard", "queue": queue, "value_bytes": value_bytes, "count": count}
            )
            yield session.sample(f"{case}, discarded", RATE, "msg/s", result["messages"] / result["seconds"])
    if session.speaks_kafka:
        queue = session.queue()
        run = _by_client(session, queue, 1024, _count(session, 1024), acks="1")
        yield from session.timed(f"1 KB, acks=1, {CLIENT}, {session.durability}", run)


def _ready_made(session: Session, value_bytes: int, batch_messages: int, total: int) -> Any:
    return lambda: session.publish_ready_made(value_bytes, batch_messages, total)


def _by_client(session: Session, queue: str, value_bytes: int, count: int, **more: object) -> Any:
    return lambda: session.publish_by_client(queue, value_bytes, count, **more)


def batches(session: Session) -> Iterator[Sample]:
    """100 B values in batches of one to a thousand, five requests under way."""
    for batch_messages in _BATCHES:
        total = session.context.sized(min(40 * MEGABYTE, batch_messages * 3 * MEGABYTE), 50_000)
        run = _ready_made(session, 100, batch_messages, total)
        case = f"100 B, {batch_messages} in a batch, {session.durability}"
        yield from session.timed(case, run, batch_messages=float(batch_messages))


def compressed(session: Session) -> Iterator[Sample]:
    """Batches that the producer compressed: the server checks them and keeps them as they are."""
    for compression in ("lz4", "zstd"):
        run = _by_client(session, session.queue(), 1024, _count(session, 1024), compression=compression)
        yield from session.timed(f"1 KB, {compression}, {CLIENT}, {session.durability}", run)


def partitions(session: Session) -> Iterator[Sample]:
    """One producer over one to a thousand partitions."""
    for count in (1, 10, 100, 1_000):
        if session.context.quick and count > 10:
            break
        run = _by_client(session, session.queue(partitions=count), 100, _count(session, 100))
        yield from session.timed(f"partitions: {count:,}, {CLIENT}, {session.durability}", run, partitions=float(count))


def replicated(session: Session) -> Iterator[Sample]:
    """acks=all on three nodes, min.insync.replicas=2, three partitions."""
    for value_bytes, label in _SIZES[:2]:
        run = _by_client(session, session.queue(partitions=3), value_bytes, _count(session, value_bytes))
        yield from session.timed(f"{label}, three replicas, {CLIENT}", run, writes_bytes=_count(session, 1024) * 1024)


def together(session: Session) -> Iterator[Sample]:
    """A publisher and a consumer at once: messages a second until the last one was read."""
    sizes = (300_000, 20_000) if session.speaks_kafka else (20_000, 500)
    queue, count = session.queue(), session.context.sized(*sizes)

    def run() -> dict[str, Any]:
        load = {"role": "consume", "queue": queue, "count": count}
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(session.running.load, load)
            session.publish_by_client(queue, 1024, count, seconds_max=200.0)
            return reading.result() | {"messages_in_all": count}

    yield from session.timed(f"1 KB, {CLIENT}, {session.durability}", run, writes_bytes=count * 1024)


def consume(session: Session) -> Iterator[Sample]:
    """What was published before, from the kernel's memory and from the device.

    Systems that speak Kafka's protocol hold the same batches; a client that publishes makes smaller ones for a server
    that answers sooner, and small batches cost the reader more.
    """
    for value_bytes, label in _SIZES[:2]:
        by_kafka = session.speaks_kafka and not session.is_sink
        if by_kafka:
            total = session.context.sized(600 * MEGABYTE, 4 * MEGABYTE)
            queue = session.publish_ready_made(value_bytes, 0, total)["queue"]
            plan, there = make_plan(session, queue)
        else:
            queue = session.queue()
            there = session.publish_by_client(queue, value_bytes, _count(session, value_bytes))["messages"]
        load = {"role": "consume", "queue": queue, "count": min(there, _count(session, value_bytes))}

        def read(load: dict[str, Any] = load) -> dict[str, Any]:
            return session.running.load(load)

        yield from session.timed(f"{label}, {CLIENT}, cached data", read)
        if session.speaks_kafka:
            yield from session.timed(f"{label}, two clients, cached data", _by_two(read))
        if by_kafka:
            yield from _consume_ready_made(session, f"{label}, {READY_MADE}, cached data", plan, there, rounds=3)
        if session.running.system.protocol in (Protocol.KAFKA, Protocol.NATS) and not session.is_sink:
            session.forget_pages()
            yield from session.timed(f"{label}, {CLIENT}, cold data", read)
        if by_kafka:
            session.forget_pages()
            yield from _consume_ready_made(session, f"{label}, {READY_MADE}, cold data", plan, there, rounds=1)


def _by_two(read: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Two readers of everything at once: one alone is limited by what its own thread can take."""

    def run() -> dict[str, Any]:
        with ThreadPoolExecutor(2) as pool:
            results = [future.result() for future in [pool.submit(read), pool.submit(read)]]
        return {
            "messages": sum(result["messages"] for result in results),
            "messages_in_all": sum(result["messages_in_all"] for result in results),
            "seconds": max(result["seconds"] for result in results),
        }

    return run


def _consume_ready_made(
    session: Session, case: str, plan: FetchPlan, messages: int, *, rounds: int
) -> Iterator[Sample]:
    """Read all N times; what is read more than once is read once more before, uncounted."""
    requests = len(plan.request_sizes)
    warmup = requests if rounds > 1 else 0

    def read() -> dict[str, Any]:
        load = plan.load(session.running.port, 1, 2, _FETCH_SECONDS_MAX)
        load |= {"requests": rounds * requests, "warmup_requests": warmup}
        result = run_helper("bench.load_client", load)
        return {
            "messages": messages * result["requests"] / requests,
            "messages_in_all": messages * (result["requests"] + warmup) / requests,
            "seconds": result["seconds"],
        }

    yield from session.timed(case, read)


def make_plan(session: Session, queue: str) -> tuple[FetchPlan, int]:
    """The requests that read a partition from its beginning to its end, how large their answers are, and its messages.

    Kafka may end an answer with the beginning of a batch; that batch is asked for again.
    """
    frames, sizes, offset = [], [], 0
    with contextlib.closing(WireClient(session.running.port)) as client:
        info = client.topic(queue)
        while True:
            body = client.call(
                ApiKey.FETCH, FETCH_VERSION, fetch_body(info, 0, offset, max_bytes=_FETCH_BYTES, max_wait_ms=0)
            )
            result = parse_fetch_response(body, FETCH_VERSION).topics[0].partitions[0]
            if result.error_code:
                raise ProcessFailed(f"fetch at {offset}: error {result.error_code}")
            records = memoryview(result.records)
            if not records:
                break
            frames.append(fetch_frame(info, 0, offset, max_bytes=_FETCH_BYTES))
            sizes.append(len(response_prefix(0, ApiKey.FETCH, FETCH_VERSION, 0)) + len(body))
            offset = next_offset(records, offset)
    path = session.directory / f"plan-{queue}.requests"
    path.write_bytes(b"".join(frames))
    return FetchPlan(path, path, list(map(len, frames)), sizes), offset


def next_offset(records: memoryview, offset: int) -> int:
    """The offset behind the last whole batch."""
    position = 0
    while len(records) - position >= _HEADER.size:
        base, length, last_delta = _HEADER.unpack_from(records, position)
        position += 12 + length
        if position > len(records):
            break
        offset = base + last_delta + 1
    return offset
