"""`martlet partition move`: bring partitions onto other brokers, evenly, and follow the moves to their end.

How it works: where everything is to lie is computed here, from what the cluster says now and by the same rules that it
places new topics by. The moves are begun a few at a time, and the next ones as soon as others have ended. Whatever ends
this command, the cluster finishes the moves that have begun; the same command again does the rest and nothing twice.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from martlet.base.clock import SystemClock
from martlet.base.errors import ApiError
from martlet.base.ids import BrokerId, TopicPartition
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import BROKER_LIST, Target, TopicSelection, connects, json_option
from martlet.cli.output import format_count, format_duration, print_json, print_note, print_table
from martlet.cli.partition_selection import (
    check_selection,
    partition_json,
    select_partitions,
    selects_partitions,
    tell_refused,
)
from martlet.cli.partition_throttle import end_throttle, set_throttle
from martlet.cli.progress import Progress
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.cluster_admin import BrokerState, ClusterAdmin, Move

_LOOK_SECONDS: Final = 0.5
_AT_ONCE: Final = 50
_SETTLE_LOOKS: Final = 10

Placement = Mapping[TopicPartition, Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What was asked for."""

    selections: Sequence[TopicSelection]
    all_topics: bool
    to: tuple[int, ...] | None
    replicas: tuple[int, ...] | None
    replication: int | None
    at_once: int
    waits: bool
    throttle: int | None


@dataclass(slots=True)
class _Tally:
    """How far it has come; read when the command is interrupted as well."""

    before: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    wished: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    begun: set[TopicPartition] = field(default_factory=set)
    done: set[TopicPartition] = field(default_factory=set)
    refused: dict[TopicPartition, ApiError] = field(default_factory=dict)

    @property
    def selected(self) -> int:
        return len(self.before)

    @property
    def under_way(self) -> int:
        return len(self.begun) - len(self.done)


@click.command()
@selects_partitions
@click.option("--to", type=BROKER_LIST, help="The brokers to spread them over.  [default: all that run]")
@click.option("--replication", type=click.IntRange(min=1), metavar="N", help="Replicas of each.  [default: as now]")
@click.option(
    "--replicas", type=BROKER_LIST, help="Exactly these brokers for each, the preferred leader first; instead of --to."
)
@click.option("--cancel", is_flag=True, help="Cancel their moves instead: they stay where they were.")
@click.option("--dry-run", is_flag=True, help="Only show what would move.")
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    default=_AT_ONCE,
    show_default=True,
    metavar="N",
    help="Partitions that move at the same time.",
)
@click.option(
    "--throttle",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="Bytes per second that a broker copies at most; also changes the rate of moves under way. 0 takes it away.",
)
@click.option("--wait/--no-wait", "waits", default=True, help="Follow the moves to their end.  [default: wait]")
@json_option
@connects
def move(
    selections: Sequence[TopicSelection],
    all_topics: bool,
    to: tuple[int, ...] | None,
    replication: int | None,
    replicas: tuple[int, ...] | None,
    cancel: bool,
    dry_run: bool,
    at_once: int,
    throttle: int | None,
    waits: bool,
    as_json: bool,
    target: Target,
) -> int:
    """Move partitions to other brokers, evenly.

    As little is copied as possible. Replicas go to different racks where there are several, and leaders are evened out
    as well. Publishing and consuming go on meanwhile; nothing is dropped before its new replicas are complete. With
    --no-wait all moves begin at once.

    \b
    After a cluster has grown from one broker to three:
      martlet partition move --all-topics --replication 3
    Everything onto the brokers 2 and 3, each copying 20 MB per second at most:
      martlet partition move --all-topics --to 2,3 --throttle 20000000
    One partition, by hand:
      martlet partition move orders:0 --replicas 3,1
    """
    check_selection(selections, all_topics)
    if cancel and (to or replicas or replication or dry_run or throttle is not None):
        raise click.UsageError("--cancel goes with a selection only")
    if replicas and (to or replication):
        raise click.UsageError("--replicas says everything; --to and --replication do not go with it")
    job = _Job(
        selections=selections,
        all_topics=all_topics,
        to=to,
        replicas=replicas,
        replication=replication,
        at_once=at_once,
        waits=waits,
        throttle=throttle,
    )
    if cancel:
        return _cancel(target, job, as_json)
    tally = _Tally()
    run_with_cluster(target, lambda cluster: _plan(cluster, job, tally))
    if dry_run:
        _show_plan(tally, as_json)
        return ExitCode.OK
    return _move(target, job, tally, as_json)


# --- what to move where


async def _plan(cluster: "Cluster", job: _Job, tally: _Tally) -> None:
    from martlet.client.cluster_admin import ClusterAdmin
    from martlet.cluster.partition_targets import plan_onto
    from martlet.cluster.placement import Site

    admin = ClusterAdmin(cluster)
    brokers = (await admin.state()).brokers
    selected = await select_partitions(cluster, job.selections, all_topics=job.all_topics)
    moves = await admin.moves()
    for where, info in selected.items():
        tally.before[where] = moves[where].wished if where in moves else info.replicas
    if job.replicas:
        _check_brokers(job.replicas, brokers)
        chosen = dict.fromkeys(tally.before, job.replicas)
        tally.wished = {where: wish for where, wish in chosen.items() if wish != tally.before[where]}
        return
    if job.to:
        _check_brokers(job.to, brokers)
    sites = [
        Site(BrokerId(broker.id), broker.rack)
        for broker in brokers
        if (broker.id in job.to if job.to else broker.is_alive and not broker.is_draining)
    ]
    placed = {where: tuple(map(BrokerId, replicas)) for where, replicas in tally.before.items()}
    tally.wished = dict(plan_onto(placed, sites, factor=job.replication))


def _check_brokers(wanted: Sequence[int], brokers: Sequence["BrokerState"]) -> None:
    """A move to a broker that is not there would never end."""
    known = {broker.id: broker for broker in brokers}
    for broker in wanted:
        if broker not in known:
            there = f"there are {', '.join(map(str, known))}" if len(known) > 1 else f"the only one is {min(known)}"
            raise CommandFailed(
                ExitCode.NOT_FOUND, f"there is no broker {broker}; {there}", "`martlet cluster status` shows them"
            )
        if not known[broker].is_alive:
            raise CommandFailed(
                ExitCode.NOT_REACHABLE, f"broker {broker} is not running, so nothing can move there", "start it first"
            )
        if known[broker].is_draining:
            raise CommandFailed(
                ExitCode.CONFLICT,
                f"broker {broker} is being drained and takes nothing new",
                f"`martlet cluster undrain {broker}` ends that",
            )


def _show_plan(tally: _Tally, as_json: bool) -> None:
    rows = [(where, tally.before[where], wish) for where, wish in sorted(tally.wished.items())]
    if as_json:
        print_json(
            {
                "dry_run": True,
                "selected": tally.selected,
                "moves": [partition_json(where) | {"from": [*old], "to": [*new]} for where, old, new in rows],
            }
        )
        return
    if rows:
        print_table(
            ["TOPIC", "PARTITION", "FROM", "TO", "COPIED TO"],
            [
                [where.topic, where.partition, _ids(old), _ids(new), _ids(one for one in new if one not in old) or None]
                for where, old, new in rows
            ],
        )
    print_note(f"nothing was changed: {_summary(tally)}")


def _ids(brokers: Any) -> str:
    return ",".join(map(str, brokers))


def _summary(tally: _Tally) -> str:
    """`12 of 20 partitions to move; new copies: broker 2 12, broker 3 12`."""
    copies = Counter(
        broker for where, wish in tally.wished.items() for broker in wish if broker not in tally.before[where]
    )
    text = f"{len(tally.wished):,} of {format_count(tally.selected, 'partition')} to move"
    made = ", ".join(f"{count:,} on broker {broker}" for broker, count in sorted(copies.items()))
    return f"{text}, with new copies: {made}" if made else text


# --- moving


def _move(target: Target, job: _Job, tally: _Tally, as_json: bool) -> int:
    if not tally.wished:
        if job.throttle is not None:
            run_with_cluster(target, lambda cluster: _change_throttle(cluster, job, tally))
            if not as_json:
                rate = f"{job.throttle:,} bytes per second" if job.throttle else "no limit"
                print_note(f"the throttle of those that move: {rate}")
        if as_json:
            print_json(_result(tally))
        else:
            print_note(f"nothing to do: {format_count(tally.selected, 'partition')} as wished already")
        return ExitCode.OK
    print_note(_summary(tally))
    progress, clock = Progress(), SystemClock()
    began_at_ms = clock.monotonic_ms()
    try:
        run_with_cluster(target, lambda cluster: _carry_out(cluster, job, tally, progress))
    except KeyboardInterrupt:
        progress.end()
        print_note(
            f"{len(tally.done):,} of {len(tally.wished):,} moved; the cluster goes on with the {tally.under_way:,} "
            "that have begun (`martlet partition list --moving`), and the same command again moves the rest"
        )
        _note_throttle(job)
        raise
    finally:
        progress.end()
    if as_json:
        print_json(_result(tally))
    elif job.waits:
        duration = format_duration(clock.monotonic_ms() - began_at_ms)
        print_note(f"moved {format_count(len(tally.done), 'partition')} in {duration}")
    else:
        print_note(f"{format_count(tally.under_way, 'move')} begun; `martlet partition list --moving` shows them")
        _note_throttle(job)
    if tally.refused:
        refused = [f"{where}: {error}" for where, error in sorted(tally.refused.items())]
        tell_refused(refused, "were not moved" if len(refused) > 1 else "was not moved")
    return ExitCode.OK


def _note_throttle(job: _Job) -> None:
    if job.throttle:
        print_note(f"they copy at {job.throttle:,} bytes per second until the same command says --throttle 0")


def _result(tally: _Tally) -> dict[str, Any]:
    return {
        "dry_run": False,
        "selected": tally.selected,
        "moved": [partition_json(where) | {"to": [*tally.wished[where]]} for where in sorted(tally.done)],
        "under_way": [partition_json(where) for where in sorted(tally.begun - tally.done)],
        "refused": [partition_json(where) | {"error": str(error)} for where, error in sorted(tally.refused.items())],
    }


async def _carry_out(cluster: "Cluster", job: _Job, tally: _Tally, progress: Progress) -> None:
    from martlet.client.cluster_admin import ClusterAdmin

    admin = ClusterAdmin(cluster)
    waiting = sorted(tally.wished)
    throttled = await _change_throttle(cluster, job, tally)
    if not job.waits:
        await _begin(admin, tally, waiting)
        return
    while waiting or tally.under_way:
        moving = await admin.moves()
        tally.done.update(where for where in tally.begun if where not in moving)
        free = max(0, job.at_once - len(moving))
        if waiting and free:
            await _begin(admin, tally, waiting[:free])
            waiting = waiting[free:]
        else:
            progress.show(await _story(admin, tally, moving))
            await asyncio.sleep(_LOOK_SECONDS)
    await _look_back(cluster, tally)
    if throttled:
        await end_throttle(cluster, throttled)
    # Leaders follow by themselves within minutes; a caller that waits for the moves wants it even now.
    await admin.elect(tally.done)


async def _change_throttle(cluster: "Cluster", job: _Job, tally: _Tally) -> list[str]:
    """The throttle as it was asked for; returns the topics in whose settings it is to be taken away in the end."""
    from martlet.client.cluster_admin import ClusterAdmin

    if job.throttle is None:
        return []
    if not job.throttle:
        await end_throttle(cluster, sorted({where.topic for where in tally.before}))
        return []
    moving = await ClusterAdmin(cluster).moves()
    chosen = {where: move for where, move in moving.items() if where in tally.before}
    return await set_throttle(cluster, job.throttle, tally.wished, tally.before, chosen)


async def _begin(admin: "ClusterAdmin", tally: _Tally, partitions: Sequence[TopicPartition]) -> None:
    for where, error in (await admin.reassign({where: tally.wished[where] for where in partitions})).items():
        if error is None:
            tally.begun.add(where)
        else:
            tally.refused[where] = error


async def _story(admin: "ClusterAdmin", tally: _Tally, moving: Mapping[TopicPartition, "Move"]) -> str:
    """How far it has come and, where that is the reason for standing still, which broker is missing."""
    text = f"moved {len(tally.done):,} of {len(tally.wished):,} partitions, {len(moving):,} under way"
    needed = {broker for one in moving.values() for broker in one.adding}
    away = [broker.id for broker in (await admin.state()).brokers if broker.id in needed and not broker.is_alive]
    return f"{text}; waiting for broker {_ids(away)}, which is not running" if away else text


async def _look_back(cluster: "Cluster", tally: _Tally) -> None:
    """A move that is not under way any more has ended, or was cancelled or replaced."""
    from martlet.base.errors import ErrorCode
    from martlet.client.admin import Admin

    for attempt in range(_SETTLE_LOOKS):
        topics = await Admin(cluster).topics()
        astray = [
            where
            for where in tally.done
            if where.topic not in topics
            or topics[where.topic].partitions[where.partition].replicas != tally.wished[where]
        ]
        if not astray or attempt == _SETTLE_LOOKS - 1:
            break
        # The broker that was asked may know it a moment later than the one that has finished it.
        await asyncio.sleep(_LOOK_SECONDS)
    for where in astray:
        tally.done.discard(where)
        tally.begun.discard(where)
        tally.refused[where] = ApiError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "its move was cancelled or replaced by another command"
        )


# --- cancelling


def _cancel(target: Target, job: _Job, as_json: bool) -> int:
    async def work(cluster: "Cluster") -> dict[TopicPartition, ApiError | None]:
        from martlet.client.cluster_admin import ClusterAdmin

        admin = ClusterAdmin(cluster)
        selected = await select_partitions(cluster, job.selections, all_topics=job.all_topics)
        moving = await admin.moves()
        return await admin.reassign({where: None for where in selected if where in moving})

    outcomes = run_with_cluster(target, work)
    cancelled = sorted(where for where, error in outcomes.items() if error is None)
    refused = {where: error for where, error in sorted(outcomes.items()) if error is not None}
    if as_json:
        print_json(
            {
                "cancelled": [partition_json(where) for where in cancelled],
                "refused": [partition_json(where) | {"error": str(error)} for where, error in refused.items()],
            }
        )
    else:
        print_note(f"cancelled {format_count(len(cancelled), 'move')}" if outcomes else "none of these is moving")
    if refused:
        tell_refused([f"{where}: {error}" for where, error in refused.items()], "still moving")
    return ExitCode.OK
