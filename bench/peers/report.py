"""What the comparison found: each figure of Martlet beside the same figure of each peer, and what was asked of it.

How it works: a `Sample` is one figure of one system in one round. Ratios are taken inside a round, between runs made
right after each other. How they are shown is in `tables` and `plots`.

Proved by: tests/unit/bench/test_peer_report.py
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.report import Target, ratio_at_least, ratio_at_most

OURS: Final = "martlet"
JUDGED_BY: Final = "kafka"
TUNED: Final = "kafka-tuned"
LIMIT: Final = "sink"
RATE: Final = "messages a second"
CPU: Final = "CPU seconds per million messages"


@dataclass(frozen=True)
class Sample:
    """`point` says where in a plot it belongs, such as {"value_bytes": 100}."""

    workload: str
    case: str
    figure: str
    unit: str
    value: float
    system: str = ""
    round: int = 0
    point: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.workload, self.case, self.figure


@dataclass(frozen=True)
class Row:
    """One figure of Martlet beside one other system's."""

    workload: str
    case: str
    figure: str
    unit: str
    peer: str
    value: float
    """Martlet's median; what it was measured beside is `peer_value`."""
    peer_value: float
    ratios: tuple[float, ...]
    target: Target | None

    @property
    def verdict(self) -> str:
        if self.target is None:
            return "-"
        return "ok" if self.target.is_met([], self.ratios) else "MISSED"

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def rows(samples: Iterable[Sample]) -> list[Row]:
    """All comparisons that were made in one round at least, in the order in which they were first measured."""
    by_key: dict[tuple[str, str, str], dict[str, dict[int, Sample]]] = {}
    for sample in samples:
        by_key.setdefault(sample.key, {}).setdefault(sample.system, {})[sample.round] = sample
    found = []
    for key, systems in by_key.items():
        ours = systems.get(OURS, {})
        for peer, theirs in systems.items():
            shared = [number for number in ours if number in theirs and theirs[number].value]
            if peer == OURS or not shared:
                continue
            found.append(
                Row(
                    *key,
                    unit=ours[shared[0]].unit,
                    peer=peer,
                    value=statistics.median(ours[number].value for number in shared),
                    peer_value=statistics.median(theirs[number].value for number in shared),
                    ratios=tuple(ours[number].value / theirs[number].value for number in shared),
                    target=target_of(key, peer),
                )
            )
    return found


def target_of(key: tuple[str, str, str], peer: str) -> Target | None:
    """What is asked of Martlet beside Kafka in its default configuration; nothing is asked beside the others."""
    workload, case, figure = key
    if peer != JUDGED_BY:
        return None
    if figure == CPU and workload in ("publish", "consume"):
        return ratio_at_most(1.0)
    if figure == RATE and workload in ("publish", "consume") and case.startswith(("100 B,", "1 KB,")):
        return ratio_at_least(1.0)
    if workload == "latency" and case.startswith("200/s"):
        return ratio_at_most(1.0)
    if workload == "start":
        bounds = {"start to the first message": 0.2, "idle memory": 0.25}
        return ratio_at_most(bounds[figure]) if figure in bounds else None
    return None


def write_samples(directory: Path, run: Mapping[str, Any], samples: Sequence[Sample]) -> None:
    """peers.json: what was run, and every sample."""
    directory.mkdir(parents=True, exist_ok=True)
    content = {**run, "samples": [asdict(sample) for sample in samples]}
    (directory / "peers.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_samples(directory: Path) -> tuple[dict[str, Any], list[Sample]]:
    """What `write_samples` wrote: the run without its samples, and these."""
    run: dict[str, Any] = json.loads((directory / "peers.json").read_text("utf-8"))
    return run, [Sample(**one) for one in run.pop("samples")]
