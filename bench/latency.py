"""Round trips at a light fixed rate beside the bare echo: the same bytes, the same write, the same fdatasync.

`publish` is the time from sending a publish of one small message (acks=all) to having its answer; `delivery` the time
from sending it to a waiting consumer having the message. Both servers live through all rounds; the one that is not
measured is taken off the processor.
"""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sim.randomness import SimRandomness

from bench.batches import build_values_batch, write_requests
from bench.processes import BareProcess, BrokerProcess, ServerProcess, run_helper
from bench.report import Figure, ratio_at_most, say
from bench.rounds import Context, settle
from bench.throughput import FLUSHES
from bench.wire_client import FETCH_VERSION, fetch_body, fetch_frame, produce_answer_bytes
from martlet.wire.api_keys import ApiKey
from martlet.wire.headers import response_prefix

P50_TARGET: Final = 3.0
_TOPIC: Final = "latency"
_VALUE_BYTES: Final = 100
_RATE: Final = 200.0
_WARMUP_REQUESTS: Final = 40
_FETCH_BYTES: Final = 1 << 20
_FETCH_WAIT_MS: Final = 10_000
# Unlike any number in a real request, so that its place can be found in the encoded one.
_OFFSET_MARK: Final = 0x0123456789ABCDEF


@dataclass
class _Pair:
    """The broker and the bare loop, set up for the same requests."""

    broker: BrokerProcess
    bare: BareProcess
    load: dict[str, Any]
    next_offset: int

    @contextmanager
    def only(self, wanted: ServerProcess) -> Iterator[ServerProcess]:
        other = self.bare if wanted is self.broker else self.broker
        other.freeze()
        try:
            yield wanted
        finally:
            other.thaw()


def latency(context: Context) -> list[Figure]:
    """Both flush policies, both kinds of round trip."""
    return [figure for flush in FLUSHES for figure in round_trips(context, flush)]


def round_trips(context: Context, flush: str) -> list[Figure]:
    figures: list[Figure] = []
    with context.directory(f"latency-{flush}") as directory, BrokerProcess(directory / "broker") as broker:
        broker.start_and_wait()
        load, delivery_bytes, next_offset = _prepare(broker, directory, flush)
        options = {"sync": flush == "commit", "answer_bytes": produce_answer_bytes(_TOPIC)}
        with BareProcess(directory / "bare", delivery_bytes=delivery_bytes, **options) as bare:
            bare.start_and_wait()
            pair = _Pair(broker, bare, load, next_offset)
            for role, label in (("latency", "publish"), ("delivery", "delivery")):
                figures += _figures(context, pair, role, f"{label} round trip, flush={flush}")
    return figures


def _prepare(broker: BrokerProcess, directory: Path, flush: str) -> tuple[dict[str, Any], int, int]:
    """The load, the size of the answer that delivers one message, and the partition's end."""
    batch = build_values_batch([SimRandomness(0).token(_VALUE_BYTES)])
    with broker.client() as client:
        client.create_topics([_TOPIC], martlet_flush=flush)
        info = client.topic(_TOPIC)
        client.publish(_TOPIC, 0, batch)
        body = client.call(
            ApiKey.FETCH, FETCH_VERSION, fetch_body(info, 0, 0, max_bytes=_FETCH_BYTES, max_wait_ms=_FETCH_WAIT_MS)
        )
    fetch = fetch_frame(info, 0, _OFFSET_MARK, max_bytes=_FETCH_BYTES, max_wait_ms=_FETCH_WAIT_MS)
    requests = write_requests(directory / "requests", _TOPIC, [(0, batch, 1)])
    with requests.path.open("ab") as file:
        file.write(fetch)
    load = {
        "frames_path": str(requests.path),
        "frame_sizes": [*requests.sizes, len(fetch)],
        "offset_at": fetch.index(_OFFSET_MARK.to_bytes(8, "big")),
        "warmup_requests": _WARMUP_REQUESTS,
        "rate": _RATE,
        "error_at": requests.error_at,
    }
    return load, len(response_prefix(0, ApiKey.FETCH, FETCH_VERSION, len(body))) + len(body), 1


def _figures(context: Context, pair: _Pair, role: str, name: str) -> list[Figure]:
    say(f"{name} ...")
    median = Figure(f"{name}, p50", "µs", target=ratio_at_most(P50_TARGET))
    tail = Figure(f"{name}, p99", "µs")
    samples = context.sized(400, 40)
    servers: list[ServerProcess] = [pair.broker, pair.bare]
    for number in range(context.rounds):
        times: dict[ServerProcess, list[float]] = {}
        for server in servers if number % 2 == 0 else reversed(servers):
            settle()
            with pair.only(server):
                times[server] = _measure(pair, server, role, samples)
        for figure, percentile in ((median, 50), (tail, 99)):
            value, limit = (_percentile(times[server], percentile) for server in servers)
            figure.add(value, limit)
        ratio = median.ratios[-1]
        say(f"  round {number + 1} of {context.rounds}: p50 {median.values[-1]:,.0f} µs, {ratio:.2f} of the bare echo")
    median.note = f"{_RATE:.0f} a second, {_VALUE_BYTES} B"
    return [median, tail]


def _measure(pair: _Pair, server: ServerProcess, role: str, samples: int) -> list[float]:
    load = pair.load | {"role": role, "port": server.port, "requests": samples}
    if server is pair.bare:
        load["error_at"] = -1
    else:
        load["first_offset"] = pair.next_offset
    result = run_helper("bench.load_client", load)
    if server is pair.broker:
        pair.next_offset += _WARMUP_REQUESTS + samples
    return [float(value) for value in result["microseconds"]]


def _percentile(values: list[float], percentile: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percentile - 1]
