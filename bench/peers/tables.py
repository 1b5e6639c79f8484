"""The comparison's tables, `peers.md`: beside Kafka one line for each figure, beside the others one column for each.

Every comparison stands in exactly one of them: a ratio is the median of its rounds with the smallest and the largest,
the absolute values stand beside it for orientation. What could not be run is listed with its reason, never estimated.

Proved by: tests/unit/bench/test_peer_tables.py
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.peers.report import JUDGED_BY, LIMIT, OURS, TUNED, Row, Sample, rows
from bench.report import format_number, markdown_table

_FIRST_HEADINGS: Final = ["workload", "case", "figure", OURS]
_KAFKA_HEADINGS: Final = [*_FIRST_HEADINGS, JUDGED_BY, "ratio [min–max]", "rounds"]


def write_tables(directory: Path, run: Mapping[str, Any], samples: Sequence[Sample]) -> None:
    """peers.md in that directory."""
    (directory / "peers.md").write_text(format_markdown(run, samples), "utf-8")


def format_markdown(run: Mapping[str, Any], samples: Sequence[Sample]) -> str:
    """Machine, versions, configurations, what is missing, then the tables."""
    lines = [f"- {name}: {value}" for name, value in run["machine"].items()]
    lines += [f"- {name}: {value}" for name, value in run["versions"].items()]
    lines += [f"- {name}: **missing** ({reason})" for name, reason in run["missing"].items()]
    lines += ["", "Configurations:", ""]
    lines += [f"- {name}: {text}" for name, text in run["configurations"].items()]
    if run["failures"]:
        lines += ["", "Not measured:", "", *(f"- {text}" for text in run["failures"])]
    for heading, table in _tables(rows(samples)):
        lines += ["", f"## {heading}", "", *table]
    return "\n".join([*lines, ""])


def _tables(found: Sequence[Row]) -> Iterable[tuple[str, list[str]]]:
    judged = [[*_cells(row), row.target.text, row.verdict] for row in found if row.target]
    if judged:
        yield (
            "Where targets are, beside Kafka as shipped",
            markdown_table([*_KAFKA_HEADINGS, "target", "verdict"], judged),
        )
    others = [_cells(row) for row in found if row.peer == JUDGED_BY and not row.target]
    if others:
        yield "The other workloads, beside Kafka as shipped", markdown_table(_KAFKA_HEADINGS, others)
    kin = (TUNED, LIMIT)
    strangers = list(dict.fromkeys(row.peer for row in found if row.peer not in (JUDGED_BY, *kin)))
    if strangers:
        yield "Beside other queues, by their own clients", _side_by_side(found, strangers)
    if any(row.peer in kin for row in found):
        yield "Beside a tuned Kafka, and the load generator's own limit (sink)", _side_by_side(found, kin)


def _side_by_side(found: Sequence[Row], peers: Sequence[str]) -> list[str]:
    by_figure: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in found:
        if row.peer in peers:
            by_figure.setdefault((row.workload, row.case, row.figure), {})[row.peer] = row
    lines = [
        [*_first_cells(next(iter(beside.values()))), *(_ratio_and_value(beside.get(peer)) for peer in peers)]
        for beside in by_figure.values()
    ]
    return markdown_table([*_FIRST_HEADINGS, *(f"ratio to {peer} (its value)" for peer in peers)], lines)


def _first_cells(row: Row) -> list[str]:
    return [row.workload, row.case, row.figure, f"{format_number(row.value)} {row.unit}".strip()]


def _cells(row: Row) -> list[str]:
    return [*_first_cells(row), format_number(row.peer_value), _ratio_with_spread(row), str(len(row.ratios))]


def _ratio_with_spread(row: Row) -> str:
    return f"{_ratio(row.ratio)} [{_ratio(min(row.ratios))}–{_ratio(max(row.ratios))}]"


def _ratio_and_value(row: Row | None) -> str:
    if row is None:
        return ""
    ratio = _ratio(row.ratio) if len(row.ratios) == 1 else _ratio_with_spread(row)
    return f"{ratio} ({format_number(row.peer_value)})"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"
