"""The comparison's plots: which samples make which line (plain data), and drawing them with matplotlib, if it is there.

Every point is the median of the rounds, the bar through it goes from the smallest to the largest.

Proved by: tests/unit/bench/test_peer_plots.py
"""

import importlib
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.peers.report import CPU, LIMIT, OURS, RATE, TUNED, Sample
from bench.report import say


class Point(NamedTuple):
    x: float
    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Plot:
    """One picture; `contains` must be part of the sample's case. Without `x` it has a bar for each system and case."""

    file: str
    title: str
    workload: str
    figure: str
    x: str = ""
    contains: str = ""
    is_log: bool = True
    y: str = "messages a second"
    scale: float = 1.0
    """What a value is divided by."""


_DURABILITIES: Final = ("flushed", "cached")
_ONE_KILOBYTE: Final = "1 KB, client, cached"
_FIRST: Final = "start to the first message"
_NAMES: Final = {
    OURS: "Martlet",
    "kafka": "Kafka",
    TUNED: "Kafka, tuned",
    LIMIT: "discarded: the\nclient's limit",
} | {
    "nats": "NATS",
    "rabbitmq": "RabbitMQ",
    "redis": "Redis",
}
_COLOURS: Final = {OURS: "#c2410c", "kafka": "#1f2937", TUNED: "#6b7280", LIMIT: "#a3a3a3"} | {
    "nats": "#2563eb",
    "rabbitmq": "#15803d",
    "redis": "#9333ea",
}
_X_LABELS: Final = {
    "value_bytes": "bytes in a message",
    "batch_messages": "messages in a batch",
    "rate": "messages offered a second",
    "partitions": "partitions",
    "producers": "producers",
}


def _publish_plot(kind: str) -> Plot:
    return Plot(f"peers-publish-{kind}", f"Publish, {kind}", "publish", RATE, "value_bytes", f"client, {kind}")


def _batches_plot(kind: str) -> Plot:
    return Plot(f"peers-batches-{kind}", f"Publish 100 B, {kind}", "batches", RATE, "batch_messages", kind)


def _latency_plot(figure: str, kind: str) -> Plot:
    name = figure.replace(" ", "-")
    title = f"{figure.capitalize()} of 100 B, {kind}"
    return Plot(
        f"peers-{name}-{kind}", title, "latency", figure, "rate", f"client, {kind}", y="milliseconds", scale=1000
    )


PLOTS: Final = (
    *map(_publish_plot, _DURABILITIES),
    *map(_batches_plot, _DURABILITIES),
    *(_latency_plot(figure, kind) for figure in ("delivery p50", "delivery p99") for kind in _DURABILITIES),
    Plot("peers-partitions", "Publish 100 B over partitions, cached", "partitions", RATE, "partitions"),
    Plot("peers-producers", "Small batches from many producers, cached", "producers", RATE, "producers"),
    Plot(
        "peers-cpu", f"Processor time, publish {_ONE_KILOBYTE}", "publish", CPU, "", _ONE_KILOBYTE, is_log=False, y=CPU
    ),
    Plot("peers-start", "Start to the first message", "start", _FIRST, is_log=False, y="seconds"),
    Plot("peers-memory", "Idle memory", "start", "idle memory", is_log=False, y="MiB"),
)


def lines_of(plot: Plot, samples: Iterable[Sample]) -> dict[str, list[Point]]:
    """The points of each system's line, from left to right."""
    values: dict[str, dict[float, list[float]]] = {}
    for sample in samples:
        if sample.workload == plot.workload and sample.figure == plot.figure and plot.contains in sample.case:
            if plot.x and plot.x not in sample.point:
                continue
            x = sample.point[plot.x] if plot.x else 0.0
            values.setdefault(sample.system, {}).setdefault(x, []).append(sample.value)
    return {
        system: [Point(x, statistics.median(found), min(found), max(found)) for x, found in sorted(points.items())]
        for system, points in values.items()
    }


def draw_plots(directory: Path, samples: Sequence[Sample]) -> list[Path]:
    """Draw what there are samples for; nothing without matplotlib."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        say("no plots: matplotlib is not installed (pip install 'martlet[bench]')")
        return []
    drawn = []
    for plot in PLOTS:
        lines = lines_of(plot, samples)
        if not lines:
            continue
        figure, axes = pyplot.subplots(figsize=(7, 4.5))
        _draw(axes, plot, lines)
        axes.set_title(plot.title)
        axes.grid(visible=True, which="major", alpha=0.3)
        path = directory / f"{plot.file}.png"
        figure.savefig(path, dpi=110, bbox_inches="tight")
        pyplot.close(figure)
        drawn.append(path)
    return drawn


def _draw(axes: Any, plot: Plot, lines: dict[str, list[Point]]) -> None:
    for system, points in lines.items():
        middles = [point.middle / plot.scale for point in points]
        below = [(point.middle - point.low) / plot.scale for point in points]
        above = [(point.high - point.middle) / plot.scale for point in points]
        look: dict[str, Any] = {"color": _COLOURS.get(system), "capsize": 3}
        if plot.x:
            look |= {"label": _NAMES.get(system, system), "marker": "o", "markersize": 4}
            look |= {"linewidth": 2.6 if system == OURS else 1.3, "linestyle": "--" if system == LIMIT else "-"}
            axes.errorbar([point.x for point in points], middles, yerr=[below, above], **look)
        else:
            axes.bar([_NAMES.get(system, system)], middles, yerr=[below, above], **look)
    if plot.x:
        axes.set_xlabel(_X_LABELS[plot.x])
        axes.set_xscale("log")
        places = sorted({point.x for points in lines.values() for point in points})
        axes.set_xticks(places, [f"{place:,.0f}" for place in places])
        axes.minorticks_off()
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    if plot.is_log:
        axes.set_yscale("log")
        axes.yaxis.get_major_locator().set_params(subs=(1, 2, 5))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.yaxis.set_minor_formatter(lambda _value, _: "")
    axes.set_ylabel(plot.y)
