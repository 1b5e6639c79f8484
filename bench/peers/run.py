"""`./dev bench peers`: Martlet beside other queues, on this machine, in one run, with the same load.

    python -m bench.peers [--with kafka,nats,rabbitmq,redis] [--minutes N] [--rounds N] [--only NAME]... [--profile]
                          [--quick] [--out DIR] [--work-dir DIR] [--go-on] [--redraw] [--list]

In every round each workload is run on one system after the other, and the order changes from round to round. Each gets
a fresh server on an empty directory, a warm-up, and the machine for itself. The first round is everything with
everybody; the following ones are the workloads with targets, on Martlet and Kafka alone; the last two are everything
again. After `--minutes` nothing new is begun, but the first round is always finished; `--go-on` adds the rounds that
are missing then. Results, written after every workload: `peers.json` (every sample), `peers.md` (ratios) and
`peers-….png`; with `--profile` also `profile-….txt`, from a round of its own whose figures are dropped. Status 1 when a
target beside Kafka is missed.
"""

import argparse
import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.peers.plots import draw_plots
from bench.peers.profile import profiled
from bench.peers.report import JUDGED_BY, OURS, Sample, read_samples, rows, write_samples
from bench.peers.session import Session, Workload, of_system
from bench.peers.systems.cache import Missing
from bench.peers.systems.kafka import Kafka, TunedKafka
from bench.peers.systems.martlet import Martlet
from bench.peers.systems.nats import Nats
from bench.peers.systems.rabbitmq import RabbitMq
from bench.peers.systems.redis import Redis
from bench.peers.systems.sink import SinkSystem
from bench.peers.systems.system import Durability, Protocol, System
from bench.peers.tables import write_tables
from bench.peers.workloads.latency import latency
from bench.peers.workloads.producers import producers, rebalance
from bench.peers.workloads.start import recovery, start
from bench.peers.workloads.throughput import batches, compressed, consume, partitions, publish, replicated, together
from bench.peers.workloads.tools import tools
from bench.processes import ROOT, end_with_children, raise_file_limit
from bench.report import machine_facts, say
from bench.rounds import Context

RESULTS: Final = ROOT / "bench" / "results"
_PEERS: Final[dict[str, tuple[System, ...]]] = {
    "kafka": (Kafka(), TunedKafka()),
    "nats": (Nats(),),
    "rabbitmq": (RabbitMq(),),
    "redis": (Redis(),),
}
_FLUSHED: Final = (Durability.FLUSHED,)
_CACHED: Final = (Durability.CACHED,)
_WIDE_ROUNDS_AT_THE_END: Final = 2
_MAY_DIFFER: Final = ("commit", "date")
WORKLOADS: Final = (
    Workload("publish", publish, is_judged=True, with_sink=True),
    Workload("consume", consume, _CACHED, is_judged=True, with_sink=True),
    Workload("latency", latency, is_judged=True, with_sink=True),
    Workload("start", start, _FLUSHED, is_judged=True, warms_up=False),
    Workload("batches", batches, kafka_only=True, with_sink=True),
    Workload("together", together),
    Workload("producers", producers, _CACHED, kafka_only=True, with_sink=True),
    Workload("partitions", partitions, _CACHED, kafka_only=True),
    Workload("compressed", compressed, _CACHED, kafka_only=True, with_sink=True),
    Workload("replicated", replicated, _CACHED, nodes=3, kafka_only=True),
    Workload("rebalance", rebalance, _CACHED, kafka_only=True),
    Workload("tools", tools, kafka_only=True),
    Workload("recovery", recovery, _CACHED, kafka_only=True),
)


@dataclass
class Run:
    """What is measured, and what came of it so far."""

    context: Context
    systems: Sequence[System]
    workloads: Sequence[Workload]
    out: Path
    facts: dict[str, Any]
    samples: list[Sample] = field(default_factory=list)

    def measure(self, deadline: float) -> None:
        seen = 1 + max((sample.round for sample in self.samples), default=-1)
        for number, workload, is_narrow in schedule(self.workloads, self.context.rounds, seen):
            for durability in workload.durabilities:
                if number and time.monotonic() > deadline:
                    return
                systems = [one for one in self.systems if _takes_part(one, workload, durability)]
                if is_narrow:
                    systems = [one for one in systems if one.name in (OURS, JUDGED_BY)]
                turn = number % max(1, len(systems))
                for system in systems[turn:] + systems[:turn]:
                    self.samples += self._measure(system, workload, durability, number)
                write_samples(self.out, self.facts, self.samples)
            _draw(self.out, self.facts, self.samples)

    def _measure(self, system: System, workload: Workload, durability: Durability, number: int) -> list[Sample]:
        say(f"round {number + 1}: {workload.name}, {durability}, {system.name} ...")
        found: list[Sample] = []
        started = time.monotonic()
        try:
            with self._session(system, workload, durability) as session:
                for sample in workload.run(session):
                    found.append(of_system(sample, system.name, number))
                    say(f"    {sample.case}: {sample.figure} {sample.value:,.2f} {sample.unit}")
        except Exception as error:  # noqa: BLE001 - one system that fails must not cost the figures of the others
            text = f"{workload.name}, {durability}, {system.name}: {type(error).__name__}: {str(error)[-600:]}"
            self.facts["failures"].append(text)
            say(f"    FAILED {text}")
        say(f"    [{time.monotonic() - started:.0f} s]")
        return found

    @contextlib.contextmanager
    def _session(self, system: System, workload: Workload, durability: Durability) -> Iterator[Session]:
        with ExitStack() as stack:
            directory = stack.enter_context(self.context.directory(f"{system.name}-{workload.name}"))
            running = stack.enter_context(system.start(directory / "server", durability, nodes=workload.nodes))
            session = Session(self.context, running, directory, workload.name)
            if workload.warms_up:
                session.warm_up()
            yield session

    def profile(self) -> None:
        """Every workload once more on Martlet under a profiler; the figures are dropped."""
        martlet = self.systems[0]
        for workload in self.workloads:
            for durability in workload.durabilities:
                say(f"profile: {workload.name}, {durability} ...")
                path = self.out / f"profile-{workload.name}-{durability}.stacks"
                with self._session(martlet, workload, durability) as session, ExitStack() as stack:
                    stack.enter_context(profiled(session.running.processes[0].pid, path))
                    for _ in workload.run(session):
                        pass


def schedule(workloads: Sequence[Workload], rounds: int, seen: int = 0) -> Iterator[tuple[int, Workload, bool]]:
    """What is run in which order after the rounds seen, and whether only on the systems that targets are about.

    A run that time cuts short has seen everything once and its targets most often.
    """
    wide = {0, *range(max(1, rounds - _WIDE_ROUNDS_AT_THE_END), rounds)} if rounds else set()
    for number in range(seen, rounds):
        for workload in workloads:
            if number in wide or workload.is_judged:
                yield number, workload, number not in wide


def gone_on(kept: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a run that is gone on with; refused where its further rounds would be about something else."""
    for group in ("machine", "versions", "configurations"):
        for name, value in now[group].items():
            before = kept[group].get(name, value)
            if before != value and name not in _MAY_DIFFER:
                raise SystemExit(f"{name} is {value} now and was {before} in the run that is kept: measure again")
    facts = {group: {**kept[group], **now[group]} for group in ("machine", "versions", "configurations")}
    for name in _MAY_DIFFER:
        seen = [*kept["machine"].get(name, "").split(", "), now["machine"][name]]
        facts["machine"][name] = ", ".join(dict.fromkeys(filter(None, seen)))
    missing = {name: why for name, why in now["missing"].items() if f"{name} version" not in kept["versions"]}
    return {**facts, "missing": {**kept["missing"], **missing}, "failures": list(kept["failures"])}


def _takes_part(system: System, workload: Workload, durability: Durability) -> bool:
    if isinstance(system, SinkSystem):
        return workload.with_sink
    if workload.kafka_only and system.protocol is not Protocol.KAFKA:
        return False
    if isinstance(system, TunedKafka) and not workload.is_judged:
        return False
    return durability in system.durabilities and workload.nodes in system.nodes


def obtain(names: Sequence[str]) -> tuple[list[System], dict[str, str], dict[str, str]]:
    """The systems that are here or could be fetched, their versions, and why others are missing."""
    systems: list[System] = []
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    wanted: list[System] = [Martlet(), *(one for name in names for one in _PEERS[name]), SinkSystem()]
    for system in wanted:
        try:
            versions[system.name] = system.obtain()
            systems.append(system)
        except Missing as reason:
            missing[system.name] = str(reason)
            say(f"{system.name} is missing: {reason}")
    return systems, versions, missing


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench peers", description="Martlet beside other queues.")
    everyone = ",".join(_PEERS)
    parser.add_argument("--with", dest="peers", default=everyone, help=f"which ({everyone})")
    parser.add_argument("--minutes", type=float, default=240.0, help="begin no further round after this many (240)")
    parser.add_argument("--rounds", type=int, help="rounds (7, or 1 with --quick; 0: only --profile)")
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("--only", action="append", choices=names, help="run this workload; may be repeated")
    parser.add_argument("--profile", action="store_true", help="also profile the broker under each workload")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that all works, figures mean nothing")
    parser.add_argument("--out", type=Path, help="where the results go (bench/results; dropped with --quick)")
    parser.add_argument("--work-dir", type=Path, help="where the data goes (the directory for temporary files)")
    parser.add_argument(
        "--go-on", action="store_true", help="further rounds to the samples kept, up to --rounds in all"
    )
    parser.add_argument("--redraw", action="store_true", help="only make table and plots again from the samples kept")
    parser.add_argument("--list", action="store_true", help="only say which systems are here, in which version")
    arguments = parser.parse_args()
    unknown = set(filter(None, arguments.peers.split(","))) - set(_PEERS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {everyone}")
    return arguments


def _kept(directory: Path) -> tuple[dict[str, Any], list[Sample]]:
    if not (directory / "peers.json").exists():
        raise SystemExit(f"there is no {directory / 'peers.json'}: measure first, or name its directory with --out")
    return read_samples(directory)


def _draw(directory: Path, facts: Mapping[str, Any], samples: Sequence[Sample]) -> None:
    write_tables(directory, facts, samples)
    draw_plots(directory, samples)


def main() -> int:
    arguments = _arguments()
    end_with_children()
    raise_file_limit()
    if arguments.redraw:
        directory = arguments.out or RESULTS
        _draw(directory, *_kept(directory))
        return 0
    systems, versions, missing = obtain([name for name in arguments.peers.split(",") if name])
    if arguments.list:
        for name, text in (versions | {name: f"missing: {why}" for name, why in missing.items()}).items():
            print(f"{name:14}{text}")
        return 0
    work = Path(tempfile.mkdtemp(prefix="martlet-bench-", dir=arguments.work_dir))
    rounds = arguments.rounds if arguments.rounds is not None else 1 if arguments.quick else 7
    context = Context(work, rounds, arguments.quick)
    configurations = {f"{one.name}, {kind}": one.configuration(kind) for one in systems for kind in one.durabilities}
    facts: dict[str, Any] = {
        "machine": machine_facts(work) | {"date": time.strftime("%Y-%m-%d")},
        "versions": {f"{name} version": version for name, version in versions.items()},
        "missing": missing,
        "configurations": configurations,
        "failures": [],
    }
    out = arguments.out or (work / "results" if arguments.quick else RESULTS)
    chosen = [one for one in WORKLOADS if not arguments.only or one.name in arguments.only]
    if arguments.quick:
        systems = [one for one in systems if not isinstance(one, TunedKafka)]
    samples: list[Sample] = []
    if arguments.go_on:
        kept, samples = _kept(out)
        facts = gone_on(kept, facts)
    run = Run(context, systems, chosen, out, facts, samples)
    deadline = time.monotonic() + 60 * arguments.minutes
    try:
        run.measure(deadline)
        if arguments.profile:
            run.profile()
        if not rounds:
            return 0
        print((out / "peers.md").read_text("utf-8"))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if arguments.quick:
        print("A quick run: the figures mean nothing.")
        return 1 if facts["failures"] else 0
    missed = [row for row in rows(run.samples) if row.verdict == "MISSED"]
    print(f"{len(missed)} targets missed, {len(facts['failures'])} measurements failed")
    return 1 if missed or facts["failures"] else 0
