"""The comparison's latency: percentiles against the offered rate, to the acknowledgement and to a waiting consumer.

The rate is offered whatever the answers do, so that a server that falls behind shows it. Where Kafka's protocol is
spoken, the light load is also measured with ready-made requests on a bare socket, which shows the server without the
client's threads.
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from bench.batches import build_values_batch, write_requests
from bench.peers.load.main import value_of
from bench.peers.report import Sample
from bench.peers.session import CLIENT, READY_MADE, Session
from bench.processes import run_helper
from bench.rounds import settle

LIGHT_RATE: Final = 200
_RATES: Final = (LIGHT_RATE, 1_000, 4_000)
_VALUE_BYTES: Final = 100
_WARMUP: Final = 50


def latency(session: Session) -> Iterator[Sample]:
    for rate in _RATES:
        if session.context.quick and rate != LIGHT_RATE:
            continue
        if not session.speaks_kafka and rate > 1_000:
            # One Python process cannot offer more with these clients.
            continue
        settle()
        load = {"role": "latency", "queue": session.queue(), "value_bytes": _VALUE_BYTES, "rate": rate}
        samples = session.context.sized(max(1_000, 3 * rate), 50)
        result = session.running.load(load | {"samples": samples, "warmup": _WARMUP})
        case = f"{rate}/s, {CLIENT}, {session.durability}"
        # What the sink delivers is not what was published.
        for name in ("publish",) if session.is_sink else ("publish", "delivery"):
            yield from _percentiles(session, case, name, result[f"{name}_us"], rate)
    if session.speaks_kafka:
        yield from _light(session)


def _light(session: Session) -> Iterator[Sample]:
    queue = session.queue()
    batch = build_values_batch([value_of(_VALUE_BYTES)])
    requests = write_requests(session.directory / f"small-{queue}", queue, [(0, batch, 1)])
    settle()
    load = {
        "role": "latency",
        "port": session.running.port,
        "frames_path": str(requests.path),
        "frame_sizes": requests.sizes,
        "warmup_requests": _WARMUP,
        "requests": session.context.sized(1_000, 50),
        "rate": float(LIGHT_RATE),
        "error_at": requests.error_at,
    }
    times = run_helper("bench.load_client", load)["microseconds"]
    yield from _percentiles(session, f"{LIGHT_RATE}/s, {READY_MADE}, {session.durability}", "publish", times, 0)


def _percentiles(session: Session, case: str, name: str, times: Sequence[float], rate: int) -> Iterator[Sample]:
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    for percentile in (50, 99):
        point = {"rate": float(rate)} if rate else {}
        yield session.sample(case, f"{name} p{percentile}", "µs", cuts[percentile - 1], **point)
