"""`./dev bench quick`: a guard against regressions, in less than two minutes.

    python -m bench.quick [--record] [--work-dir DIR]

Measures bulk publish, bulk consume and light round trips beside the bare loop, with a part of the data and of the
samples that `./dev bench broker` takes, and compares the ratios with the recorded ones (`bench/results/quick.json`).
Status 1 when one is worse by more than 20 %. What seems to be is measured again before it is believed, as long as there
is time, because a short run on a shared machine is easily disturbed. `--record` measures everything twice and writes it
as the new record: on a quiet machine only, and with a reason in the commit. A ratio says the same on any machine, but
not exactly: a record made on another processor is named in the output.

Proved by: tests/unit/bench/test_quick.py
"""

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.latency import round_trips
from bench.processes import ROOT, end_with_children, raise_file_limit
from bench.report import Figure, format_table, machine_facts
from bench.rounds import Context
from bench.throughput import FLUSHES, consume, publish

RECORD: Final = ROOT / "bench" / "results" / "quick.json"
FALL_MAX: Final = 0.20
_ROUNDS: Final = 3
_SHARE: Final = 5
_SECONDS_MAX: Final = 118.0
Case = Callable[[Context], list[Figure]]
_CASES: Final[tuple[Case, ...]] = (
    *(partial(round_trips, flush=flush) for flush in FLUSHES),
    *(partial(publish, value_bytes=size, flush=flush) for size in (1024, 100) for flush in FLUSHES),
    *(partial(consume, value_bytes=size) for size in (1024, 100)),
)


class _PartContext(Context):
    def sized(self, full: int, quick: int) -> int:
        return max(quick, full // _SHARE)


@dataclass(frozen=True)
class Change:
    """A ratio now beside its record; `share` is how much of the recorded performance is left."""

    name: str
    recorded: float
    now: float
    share: float

    @property
    def is_fallen(self) -> bool:
        return self.share < 1 - FALL_MAX

    def __str__(self) -> str:
        state = "FALLEN" if self.is_fallen else "ok"
        return f"{self.name:45} recorded {self.recorded:.2f}, now {self.now:.2f}: {self.share:.0%}  {state}"


def is_guarded(figure: Figure) -> bool:
    """Tails of so few samples say nothing."""
    return bool(figure.ratios) and not figure.name.endswith("p99")


def less_is_better(unit: str) -> bool:
    return unit in ("µs", "ms", "s", "MiB")


def changes(record: Mapping[str, Any], figures: Sequence[Figure]) -> list[Change]:
    """Every guarded figure that has a record; one that is new is not judged before it is recorded."""
    found = []
    for figure in filter(is_guarded, figures):
        recorded = record.get(figure.name)
        if recorded is None:
            continue
        now = statistics.median(figure.ratios)
        share = recorded["ratio"] / now if less_is_better(figure.unit) else now / recorded["ratio"]
        found.append(Change(figure.name, recorded["ratio"], now, share))
    return found


def merged(first: Sequence[Figure], second: Sequence[Figure]) -> list[Figure]:
    """The rounds of both runs of the same figures."""
    again = {figure.name: figure for figure in second}
    for figure in first:
        if figure.name in again:
            figure.values += again[figure.name].values
            figure.limits += again[figure.name].limits
    return list(first)


def record_of(figures: Sequence[Figure]) -> dict[str, Any]:
    return {
        figure.name: {
            "ratio": round(statistics.median(figure.ratios), 3),
            "min": round(min(figure.ratios), 3),
            "max": round(max(figure.ratios), 3),
        }
        for figure in filter(is_guarded, figures)
    }


@dataclass
class _Measured:
    """A case with what it came to so far."""

    case: Case
    figures: list[Figure]
    seconds: float

    def is_fallen(self, record: Mapping[str, Any]) -> bool:
        return any(change.is_fallen for change in changes(record, self.figures))


def _measure(context: Context) -> list[_Measured]:
    measured = []
    for case in _CASES:
        began = time.monotonic()
        measured.append(_Measured(case, case(context), 0.0))
        measured[-1].seconds = time.monotonic() - began
    return measured


def _measure_again(context: Context, suspects: Sequence[_Measured], seconds_left: Callable[[], float]) -> None:
    """Those that there is time for."""
    for one in suspects:
        if one.seconds < seconds_left():
            merged(one.figures, one.case(context))


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench quick", description="A guard against regressions.")
    parser.add_argument("--record", action="store_true", help="write what is measured as the new record")
    parser.add_argument("--work-dir", type=Path, help="where the data goes (the directory for temporary files)")
    arguments = parser.parse_args()
    end_with_children()
    raise_file_limit()
    stored = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() and not arguments.record else {}
    record = stored.get("figures", {})
    work = Path(tempfile.mkdtemp(prefix="martlet-bench-", dir=arguments.work_dir))
    started = time.monotonic()
    try:
        facts = machine_facts(work)
        context = _PartContext(work, _ROUNDS, quick=False)
        measured = _measure(context)
        if arguments.record:
            _measure_again(context, measured, lambda: math.inf)
        else:
            fallen = [one for one in measured if one.is_fallen(record)]
            _measure_again(context, fallen, lambda: started + _SECONDS_MAX - time.monotonic())
        figures = [figure for one in measured for figure in one.figures]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{format_table(figures)}\n\n{time.monotonic() - started:.0f} s")
    if arguments.record:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        content = {"machine": facts, "figures": record_of(figures)}
        RECORD.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        return 0
    if not record:
        print("Nothing is recorded; run it with --record on a quiet machine.")
        return 2
    if stored["machine"]["processors"] != facts["processors"]:
        print(f"The record is of another machine: {stored['machine']['processors']}")
    found = changes(record, figures)
    print("\n".join(map(str, found)))
    return 1 if any(change.is_fallen for change in found) else 0


if __name__ == "__main__":
    sys.exit(main())
