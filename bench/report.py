"""What a benchmark says in the end: figures beside their limits, as a table for people and as JSON for machines.

How it works: a `Comparison` gathers rounds. In each round the figure and its limit are measured right after each other,
and the ratio is taken inside the round, so that what slows the machine down for a while slows both. Reported is the
median over the rounds, with the smallest and the largest.

A target on the ratio is judged by the median; a target on the value itself by the worst round.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

_PACKAGES: Final = ("martlet", "uvloop", "crc32c", "confluent-kafka", "mypy")


@dataclass(frozen=True)
class Target:
    """What a figure has to reach."""

    of: Literal["ratio", "value"]
    comparison: Literal["≥", "≤"]
    bound: float
    text: str

    def is_met(self, values: Sequence[float], ratios: Sequence[float]) -> bool:
        if self.of == "ratio":
            measured = statistics.median(ratios)
        else:
            measured = max(values) if self.comparison == "≤" else min(values)
        return measured >= self.bound if self.comparison == "≥" else measured <= self.bound


def ratio_at_least(bound: float) -> Target:
    return Target("ratio", "≥", bound, f"ratio ≥ {bound:g}")


def ratio_at_most(bound: float) -> Target:
    return Target("ratio", "≤", bound, f"ratio ≤ {bound:g}")


def value_at_most(bound: float, unit: str) -> Target:
    return Target("value", "≤", bound, f"≤ {bound:g} {unit}")


@dataclass
class Figure:
    """One line of the report."""

    name: str
    unit: str
    values: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    target: Target | None = None
    note: str = ""

    def add(self, value: float, limit: float | None = None) -> None:
        """The result of one more round."""
        self.values.append(value)
        if limit is not None:
            self.limits.append(limit)

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def limit(self) -> float | None:
        return statistics.median(self.limits) if self.limits else None

    @property
    def ratios(self) -> list[float]:
        """Round by round; a limit measured once stands for all rounds."""
        limits = self.limits * len(self.values) if len(self.limits) == 1 else self.limits
        return [value / limit for value, limit in zip(self.values, limits, strict=True)] if limits else []

    @property
    def verdict(self) -> str:
        if self.target is None:
            return "-"
        return "ok" if self.target.is_met(self.values, self.ratios) else "MISSED"

    def row(self) -> list[str]:
        ratios = self.ratios
        spread = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}–{max(ratios):.2f}]" if ratios else ""
        limit = "" if self.limit is None else format_number(self.limit)
        target = self.target.text if self.target else ""
        value = f"{format_number(self.value)} {self.unit}"
        return [self.name, value, limit, spread, target, self.verdict, self.note]

    def as_data(self) -> dict[str, object]:
        data = asdict(self) | {"value": self.value, "limit": self.limit, "ratios": self.ratios, "verdict": self.verdict}
        data["target"] = self.target.text if self.target else None
        return data


def format_number(number: float) -> str:
    """Three significant digits or so, thousands apart."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


_HEADINGS: Final = ["figure", "value", "limit", "ratio [min–max]", "target", "verdict", "note"]


def format_table(figures: Sequence[Figure]) -> str:
    """Aligned columns; the notes last, because they are long."""
    rows = [_HEADINGS, *(figure.row() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def format_markdown(facts: Mapping[str, str], figures: Sequence[Figure]) -> str:
    """The same for a document."""
    table = markdown_table(_HEADINGS, [figure.row() for figure in figures])
    return "\n".join([*(f"- {name}: {value}" for name, value in facts.items()), "", *table, ""])


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in a document."""
    lines = [f"| {' | '.join(cell or ' ' for cell in row)} |" for row in (headings, *rows)]
    lines.insert(1, "|" + "---|" * len(headings))
    return lines


def machine_facts(work: Path) -> dict[str, str]:
    """What the figures depend on besides the code."""
    facts = {
        "processors": f"{os.cpu_count()} × {_processor_name()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(work),
        "commit": _commit(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    for package in _PACKAGES:
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            facts[package] = "from source"
    return facts


def _commit() -> str:
    """What was measured; a tree with changes of its own says so."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _file_system(path: Path) -> str:
    """The kind of file system that holds `path`: the longest mount point it is below."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return "unknown"
    found = [(len(place), kind) for place, kind in mounts if path.resolve().is_relative_to(place)]
    return max(found)[1] if found else "unknown"


def write_json(path: Path, facts: Mapping[str, str], figures: Sequence[Figure]) -> None:
    content = {"machine": dict(facts), "figures": [figure.as_data() for figure in figures]}
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def say(text: str) -> None:
    """Progress, apart from the report."""
    print(text, file=sys.stderr, flush=True)
