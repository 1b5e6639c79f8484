"""Bulk publish and bulk consume beside the bare loop that moves the same bytes to and from a file.

Publishing: each round has a fresh server on an empty directory, so that no round pays for another's dirty pages. With
the flush policy `commit` (the default of an unreplicated topic) the bare loop also waits for a grouped fdatasync
before it answers; with `never` neither does.

Consuming: the retained data is read once, untimed, to check every batch and to learn how each request is answered. The
bare loop then answers the same requests with as many bytes, read from the broker's own segment file.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.batches import RequestFile, write_bulk_requests
from bench.fetch_plan import FetchPlan, make_plan
from bench.processes import BareProcess, BrokerProcess, ServerProcess, run_helper
from bench.report import Figure, Target, ratio_at_least, say
from bench.rounds import GIGABYTE, MEGABYTE, Context, in_turn, settle, touch_pages
from bench.wire_client import produce_answer_bytes

TOPIC: Final = "bulk"
PUBLISH_TARGET: Final = 0.7
CONSUME_TARGET: Final = 0.5
FLUSHES: Final = ("commit", "never")
_LABELS: Final = {1024: "1 KB", 100: "100 B"}
_WARMUP_REQUESTS: Final = 40
_ROUND_SECONDS_MAX: Final = 20.0
_PUBLISH_IN_FLIGHT: Final = 5
# One answer on the way while the server reads the next: it never waits for the client.
_FETCH_IN_FLIGHT: Final = 2


def publish_load(requests: RequestFile, port: int, total_bytes: int, **more: object) -> dict[str, Any]:
    """What the load client needs to publish about `total_bytes`."""
    return {
        "role": "publish",
        "port": port,
        "frames_path": str(requests.path),
        "frame_sizes": requests.sizes,
        "warmup_requests": _WARMUP_REQUESTS,
        "requests": max(8, round(total_bytes / requests.mean_bytes)),
        "seconds_max": _ROUND_SECONDS_MAX,
        "in_flight": _PUBLISH_IN_FLIGHT,
        **more,
    }


def _under_load(
    context: Context, server: ServerProcess, specification: dict[str, Any], *, writes_bytes: int = 0
) -> tuple[dict[str, Any], float]:
    """The load client's result, and the share of one processor the server used meanwhile."""
    server.wait_idle()
    settle()
    if writes_bytes:
        touch_pages(context.work, writes_bytes)
    before = server.cpu_seconds()
    result = run_helper("bench.load_client", specification)
    return result, (server.cpu_seconds() - before) / result["seconds"]


def _with_spare(total_bytes: int) -> int:
    """Some more pages than the data fills: indexes, buffers, the client."""
    return total_bytes * 5 // 4


def bulk_publish(context: Context) -> list[Figure]:
    """1 KB and 100 B values, both ways of acknowledging."""
    return [
        figure for value_bytes in (1024, 100) for flush in FLUSHES for figure in publish(context, value_bytes, flush)
    ]


def publish(context: Context, value_bytes: int, flush: str) -> list[Figure]:
    target = ratio_at_least(PUBLISH_TARGET) if value_bytes == 1024 else None
    return [_publish_figure(context, value_bytes, f"publish {_LABELS[value_bytes]}, flush={flush}", flush, target)]


def _publish_figure(context: Context, value_bytes: int, name: str, flush: str, target: Target | None) -> Figure:
    say(f"{name} ...")
    figure = Figure(name, "msg/s", target=target)
    # Without flushes a round of 600 MB is over in half a second. More than a segment (1 GiB) it must not be: a full one
    # is flushed in the background, whatever the policy, and the bare loop leaves that to the kernel.
    total_bytes = context.sized((600 if flush == "commit" else 1_000) * MEGABYTE, 40 * MEGABYTE)
    shares: list[float] = []
    with context.directory("requests") as directory:
        requests = write_bulk_requests(directory / "requests", TOPIC, value_bytes)

        def rate(server: ServerProcess, **more: object) -> float:
            load = publish_load(requests, server.port, total_bytes, **more)
            result, share = _under_load(context, server, load, writes_bytes=_with_spare(total_bytes))
            shares.append(share)
            return requests.messages_of(result["requests"], _WARMUP_REQUESTS) / float(result["seconds"])

        def broker() -> float:
            with context.directory("broker") as place, BrokerProcess(place) as process:
                process.start_and_wait()
                with process.client() as client:
                    client.create_topics([TOPIC], martlet_flush=flush)
                    client.topic(TOPIC)
                result = rate(process, error_at=requests.error_at)
                process.kill()
                return result

        def bare() -> float:
            with context.directory("bare") as place:
                options = {"sync": flush == "commit", "answer_bytes": produce_answer_bytes(TOPIC)}
                with BareProcess(place, **options) as process:
                    process.start_and_wait()
                    return rate(process)

        for value, limit in in_turn(context, name, broker, bare):
            figure.add(value, limit)
        megabytes = figure.value * requests.mean_bytes * len(requests.messages) / sum(requests.messages) / MEGABYTE
    figure.note = f"{megabytes:,.0f} MB/s; server at {100 * min(shares):.0f} % of a processor or more"
    return figure


def bulk_consume(context: Context) -> list[Figure]:
    """1 KB and 100 B values in fetches of 1 MB, and 1 KB in fetches of 8 MB."""
    return [*consume(context, 1024), *consume(context, 100)]


def consume(context: Context, value_bytes: int) -> list[Figure]:
    label = _LABELS[value_bytes]
    sizes = (1 << 20, 8 << 20) if value_bytes == 1024 else (1 << 20,)
    total_bytes = context.sized(900 * MEGABYTE, 40 * MEGABYTE)
    figures = []
    with context.directory("consume") as directory, BrokerProcess(directory) as process:
        process.start_and_wait()
        say(f"consume {label}: writing {total_bytes / MEGABYTE:,.0f} MB to read ...")
        requests = fill(process, directory / "requests", value_bytes, total_bytes)
        for fetch_bytes in sizes:
            name = f"consume {label}, fetch {fetch_bytes >> 20} MB"
            plan = make_plan(process, TOPIC, directory / f"plan-{fetch_bytes}", fetch_bytes)
            messages_per_byte = sum(requests.messages) / sum(requests.sizes)
            figures.append(_consume_figure(context, name, process, plan, messages_per_byte))
    return figures


def fill(process: BrokerProcess, path: Path, value_bytes: int, total_bytes: int, *, partitions: int = 1) -> RequestFile:
    """Write that much into the topic, as fast as it goes."""
    requests = write_bulk_requests(path, TOPIC, value_bytes, partitions=partitions)
    with process.client() as client:
        client.create_topics([TOPIC], partitions=partitions, martlet_flush="never")
        client.topic(TOPIC)
    load = publish_load(requests, process.port, total_bytes, seconds_max=600.0, error_at=requests.error_at)
    run_helper("bench.load_client", load)
    return requests


def _consume_figure(
    context: Context, name: str, process: BrokerProcess, plan: FetchPlan, messages_per_byte: float
) -> Figure:
    say(f"{name} ...")
    figure = Figure(name, "msg/s", target=ratio_at_least(CONSUME_TARGET))
    total_bytes = context.sized(2 * GIGABYTE, 60 * MEGABYTE)
    shares: list[float] = []

    def rate_of(server: ServerProcess) -> Callable[[], float]:
        def rate() -> float:
            load = plan.load(server.port, total_bytes, _FETCH_IN_FLIGHT, _ROUND_SECONDS_MAX)
            result, share = _under_load(context, server, load)
            shares.append(share)
            return float(result["bytes"]) * messages_per_byte / float(result["seconds"])

        return rate

    with context.directory("bare") as place, BareProcess(place, plan=plan.path) as bare:
        bare.start_and_wait()
        for value, limit in in_turn(context, name, rate_of(process), rate_of(bare)):
            figure.add(value, limit)
    megabytes = figure.value / messages_per_byte / MEGABYTE
    figure.note = f"{megabytes:,.0f} MB/s; server at {100 * min(shares):.0f} % of a processor or more"
    return figure
