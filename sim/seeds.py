"""Runs many seeds from the command line, `./dev sim --seeds N`: one line per failing seed, with the command to see it.

`--single` runs one broker alone instead of a cluster of three, `--transactions` the cluster with transactional clients
(then "acknowledged" counts transactions). `--verbose` prints the faults, every violation and what
the brokers log, with virtual time: what one wants to read of a single seed.
"""

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from enum import Enum
from typing import NamedTuple

from sim import cluster_run, queues_run, single_broker_run, transactions_run

_REASON_CHARACTERS_MAX = 400
_PROGRESS_SECONDS = 10.0
_SEEDS_PER_TASK = 4


class Result(NamedTuple):
    """What a seed came to, as far as the summary wants to know."""

    seed: int
    reasons: list[str]
    acknowledged: int = 0
    faults: Sequence[str] = ()
    starts: int = 0
    checks: int = 0
    trace_hash: str = ""
    virtual_ms: int = 0


class Kind(Enum):
    """What is run, and the option that asks for it."""

    CLUSTER = ""
    SINGLE = " --single"
    TRANSACTIONS = " --transactions"
    QUEUES = " --queues"


_RUNS = {Kind.TRANSACTIONS: transactions_run.run_seed, Kind.QUEUES: queues_run.run_seed}


def run_one(seed: int, *, kind: Kind = Kind.CLUSTER) -> Result:
    """One seed; whatever goes wrong is a reason."""
    try:
        if kind is Kind.SINGLE:
            alone = single_broker_run.run_seed(seed)
            return Result(seed, alone.violations, alone.acknowledged, alone.faults, alone.starts)
        done = _RUNS.get(kind, cluster_run.run_seed)(seed)
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed has failed
        return Result(seed, [line.strip() for line in traceback.format_exception(error)[::-1]])
    return Result(
        seed,
        done.violations,
        done.acknowledged,
        done.faults,
        done.starts,
        done.checks,
        done.trace_hash,
        done.virtual_ms,
    )


def _run_some(seeds: range, kind: Kind) -> list[Result]:
    logging.disable(logging.CRITICAL)
    return [run_one(seed, kind=kind) for seed in seeds]


def run_many(first: int, count: int, jobs: int, *, kind: Kind = Kind.CLUSTER) -> Iterator[Result]:
    """All of them, in order."""
    if jobs <= 1:
        for seed in range(first, first + count):
            yield from _run_some(range(seed, seed + 1), kind)
        return
    with ProcessPoolExecutor(jobs) as pool:
        chunks = [
            range(start, min(start + _SEEDS_PER_TASK, first + count))
            for start in range(first, first + count, _SEEDS_PER_TASK)
        ]
        for results in pool.map(_run_some, chunks, [kind] * len(chunks)):
            yield from results


class Tally:
    """Counts, and prints what is worth saying."""

    def __init__(self, count: int, kind: Kind) -> None:
        self._count = count
        self._kind = kind
        self._began = self._reported_at = time.monotonic()
        self.failed = self.done = 0
        self._acknowledged = self._faults = self._starts = self._checks = self._virtual_ms = 0

    def add(self, result: Result) -> None:
        self.done += 1
        self._acknowledged += result.acknowledged
        self._faults += len(result.faults)
        self._starts += result.starts
        self._checks += result.checks
        self._virtual_ms += result.virtual_ms
        if result.reasons:
            self.failed += 1
            reason = result.reasons[0].strip().replace("\n", " ")[:_REASON_CHARACTERS_MAX]
            again = f"./dev sim --first {result.seed} --seeds 1 --verbose{self._kind.value}"
            print(f"seed {result.seed} failed: {reason}; again: {again}", flush=True)
        if time.monotonic() - self._reported_at >= _PROGRESS_SECONDS:
            self._reported_at = time.monotonic()
            print(f"{self.done} of {self._count} seeds, {self.failed} failed", file=sys.stderr, flush=True)

    def summary(self) -> str:
        seconds = max(time.monotonic() - self._began, 0.001)
        return (
            f"{self.done} seeds, {self.failed} failed, {self.done / seconds:.1f} seeds per second; "
            f"{self._faults} faults, {self._starts} broker starts, {self._acknowledged} messages acknowledged, "
            f"{self._checks} replica states checked, {self._virtual_ms // 60_000} virtual minutes"
        )


class _VirtualTime(logging.Filter):
    """Puts the virtual time of the world that runs into every line."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.virtual = cluster_run.now_ms()
        return True


def _show(first: int, count: int, kind: Kind) -> int:
    handler = logging.StreamHandler(sys.stdout)
    handler.addFilter(_VirtualTime())
    handler.setFormatter(logging.Formatter("%(virtual)8s ms %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    failed = 0
    for seed in range(first, first + count):
        result = run_one(seed, kind=kind)
        for line in (*result.faults, *result.reasons):
            print(line)
        print(f"seed {seed}: {'failed' if result.reasons else 'passed'}, trace {result.trace_hash}")
        failed += bool(result.reasons)
    return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev sim", description="Runs the brokers in the deterministic simulator.")
    parser.add_argument("--seeds", type=int, default=300, help="how many; 300 by default")
    parser.add_argument("--first", type=int, default=0, help="the first seed; 0 by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once; 2 by default")
    parser.add_argument("--single", action="store_true", help="one broker alone instead of a cluster")
    parser.add_argument("--transactions", action="store_true", help="a cluster whose clients use transactions")
    parser.add_argument("--queues", action="store_true", help="a cluster with workers on a subscription")
    parser.add_argument("--verbose", action="store_true", help="print faults, violations and the brokers' own words")
    asked = parser.parse_args(arguments)
    kind = Kind.SINGLE if asked.single else Kind.TRANSACTIONS if asked.transactions else Kind.CLUSTER
    kind = Kind.QUEUES if asked.queues else kind
    if asked.verbose:
        return _show(asked.first, asked.seeds, kind)
    tally = Tally(asked.seeds, kind)
    for result in run_many(asked.first, asked.seeds, asked.jobs, kind=kind):
        tally.add(result)
    print(tally.summary())
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
