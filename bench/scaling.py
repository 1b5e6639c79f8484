"""What the many cost the one: throughput of one active client beside 5,000 partitions, and beside 5,000 connections.

Two brokers live through all rounds, one with the crowd and one without; the one that is not measured is taken off the
processor. In a round each is measured twice, one before and after the other, and the other twice in a row: the one just
measured is slower, whichever it is. Measured are bulk publishes (bytes) and single small publishes five in
flight (requests), both with `martlet.flush=never` and within one segment, so that the device does not hide what the
processor has to do.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import harmonic_mean
from typing import Final

from sim.randomness import SimRandomness

from bench.batches import RequestFile, build_values_batch, write_bulk_requests, write_requests
from bench.processes import BrokerProcess, HelperProcess, ProcessFailed, run_helper
from bench.report import Figure, ratio_at_least, say
from bench.rounds import MEGABYTE, Context, settle, touch_pages
from bench.startup import first_message_seconds
from bench.throughput import TOPIC, publish_load
from bench.wire_client import produce_error_at, produce_frame
from martlet.wire.api_keys import ApiKey
from martlet.wire.headers import encode_request_frame
from martlet.wire.message_codec import encode
from martlet.wire.messages.api_versions import ApiVersionsRequest

THROUGHPUT_RATIO_MIN: Final = 0.8
PARTITIONS: Final = 5_000
CONNECTIONS: Final = 5_000
_PARTITIONS_PER_TOPIC: Final = 100
_TOPICS_PER_REQUEST: Final = 5
_MEBIBYTE: Final = 1 << 20
_API_VERSIONS_VERSION: Final = 3
_SEGMENT_BYTES: Final = (1 << 31) - 1
"""More than a run writes: a full segment is flushed, and that belongs to whichever round it falls into."""


@dataclass
class _Twins:
    """A broker with a crowd and one without, each with the active topic."""

    crowded: BrokerProcess
    quiet: BrokerProcess
    bulk: RequestFile
    small: RequestFile

    @contextmanager
    def only(self, context: Context, wanted: BrokerProcess, writes_bytes: int) -> Iterator[None]:
        other = self.quiet if wanted is self.crowded else self.crowded
        other.freeze()
        # Timers that came due while it was frozen fire now, not in the measurement.
        time.sleep(0.3)
        settle()
        touch_pages(context.work, writes_bytes)
        try:
            yield
        finally:
            other.thaw()

    def rate(self, context: Context, broker: BrokerProcess, requests: RequestFile) -> float:
        """Requests a second."""
        is_bulk = requests is self.bulk
        count = context.sized(150, 15) if is_bulk else context.sized(5_000, 250)
        total_bytes = round(count * requests.mean_bytes)
        load = publish_load(requests, broker.port, total_bytes, error_at=requests.error_at)
        with self.only(context, broker, 2 * total_bytes):
            result = run_helper("bench.load_client", load)
        return float(result["requests"]) / float(result["seconds"])


@contextmanager
def _twins(context: Context, directory: Path) -> Iterator[_Twins]:
    bulk = write_bulk_requests(directory / "bulk", TOPIC, 1024)
    one = build_values_batch([SimRandomness(0).token(100)])
    small = write_requests(directory / "small", TOPIC, [(0, one, 1)])
    with BrokerProcess(directory / "crowded") as crowded, BrokerProcess(directory / "quiet") as quiet:
        for broker in (crowded, quiet):
            broker.start_and_wait()
            with broker.client() as client:
                client.create_topics([TOPIC], martlet_flush="never", segment_bytes=str(_SEGMENT_BYTES))
                client.topic(TOPIC)
        yield _Twins(crowded, quiet, bulk, small)


def _figures(context: Context, twins: _Twins, crowd: str) -> list[Figure]:
    megabytes = twins.bulk.mean_bytes / MEGABYTE
    return [
        _figure(context, twins, twins.bulk, Figure(f"bulk publish beside {crowd}", "MB/s"), megabytes),
        _figure(context, twins, twins.small, Figure(f"small publishes beside {crowd}", "req/s"), 1.0),
    ]


def _figure(context: Context, twins: _Twins, requests: RequestFile, figure: Figure, factor: float) -> Figure:
    say(f"{figure.name} ...")
    figure.target = ratio_at_least(THROUGHPUT_RATIO_MIN)
    figure.note = "limit: without them"

    def measured(broker: BrokerProcess) -> float:
        return factor * twins.rate(context, broker, requests)

    for number in range(context.rounds):
        outer, inner = (twins.quiet, twins.crowded) if number % 2 else (twins.crowded, twins.quiet)
        first, second, third, last = map(measured, (outer, inner, inner, outer))
        rates = {outer: harmonic_mean((first, last)), inner: harmonic_mean((second, third))}
        value, limit = rates[twins.crowded], rates[twins.quiet]
        figure.add(value, limit)
        say(f"  {figure.name}, round {number + 1} of {context.rounds}: {value:,.1f} beside {limit:,.1f}")
    return figure


def partitions(context: Context) -> list[Figure]:
    """One active partition among thousands that exist."""
    count = context.sized(PARTITIONS, 200)
    with context.directory("partitions") as directory, _twins(context, directory) as twins:
        say(f"creating {count:,} partitions ...")
        before = twins.crowded.resident_bytes()
        started = time.perf_counter()
        create_partitions(twins.crowded, directory / "idle", count)
        creation = Figure(f"creating {count:,} partitions", "s", [time.perf_counter() - started])
        grown = (twins.crowded.resident_bytes() - before) / _MEBIBYTE
        creation.note = f"and publishing a message to each; memory grew by {grown:.0f} MiB"
        figures = _figures(context, twins, f"{count:,} partitions")
        twins.crowded.stop()
        restart = Figure(f"clean restart with {count:,} partitions", "s")
        restart.add(first_message_seconds(twins.crowded, TOPIC, is_new=False))
        twins.crowded.kill()
        killed = Figure(f"restart after kill -9 with {count:,} partitions", "s")
        killed.add(first_message_seconds(twins.crowded, TOPIC, is_new=False))
    return [*figures, creation, restart, killed]


def create_partitions(broker: BrokerProcess, path: Path, count: int) -> None:
    """Topics with that many partitions in all, each of which holds a message and so is open in the broker."""
    names = [f"idle-{number:04}" for number in range(count // _PARTITIONS_PER_TOPIC)]
    with broker.client() as client:
        for first in range(0, len(names), _TOPICS_PER_REQUEST):
            client.create_topics(names[first : first + _TOPICS_PER_REQUEST], partitions=_PARTITIONS_PER_TOPIC)
        found = sum(client.topic(name).partitions for name in names)
        if found != count:
            raise ProcessFailed(f"{found} partitions exist, {count} were wanted")
    one = build_values_batch([b"idle"])
    frames = [produce_frame(name, partition, one) for name in names for partition in range(_PARTITIONS_PER_TOPIC)]
    path.write_bytes(b"".join(frames))
    requests = RequestFile(path, list(map(len, frames)), [1] * count, produce_error_at(names[0]))
    load = publish_load(requests, broker.port, sum(requests.sizes), error_at=requests.error_at)
    run_helper("bench.load_client", load | {"warmup_requests": 0, "seconds_max": 300.0})


def connections(context: Context) -> list[Figure]:
    """One active connection among thousands that idle, each of which has been served once."""
    count = context.sized(CONNECTIONS, 200)
    with context.directory("connections") as directory, _twins(context, directory) as twins:
        hello = ApiVersionsRequest("martlet-bench", "1")
        body = encode(hello, _API_VERSIONS_VERSION)
        frame = encode_request_frame(ApiKey.API_VERSIONS, _API_VERSIONS_VERSION, 1, "martlet-bench", body)
        (directory / "hello").write_bytes(frame)
        before = twins.crowded.resident_bytes()
        say(f"opening {count:,} connections ...")
        hold = {
            "role": "hold",
            "port": twins.crowded.port,
            "frames_path": str(directory / "hello"),
            "frame_sizes": [len(frame)],
            "count": count,
        }
        with HelperProcess("bench.load_client", hold) as holder:
            holder.answer()
            grown = twins.crowded.resident_bytes() - before
            memory = Figure("memory of an idle connection", "KiB", [grown / count / 1024], note=f"of {count:,}")
            figures = _figures(context, twins, f"{count:,} idle connections")
            holder.tell("")
            closed = holder.answer()["closed"]
            if closed:
                figures[0].note += f"; the broker closed {closed} of them"
    return [*figures, memory]
