"""`martlet group reset`: move a group without members to other offsets.

The words of `--to` are those of `martlet consume --from`, and mean the same. An offset that a partition does not hold
is moved to the nearest that it does, and that is said.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import GROUP, START, TOPIC_SELECTION, Target, TopicSelection, connects, json_option
from martlet.cli.output import format_count, print_json, print_note, print_table
from martlet.cli.session import run_with_cluster
from martlet.cli.start_position import ALLOWED, Start, StartKind, resolve_start

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.group_members import GroupDescription
    from martlet.client.groups import CommittedOffset, Groups

_NAMED_MEMBERS_MAX = 3


class Move(NamedTuple):
    """Where a partition stands and where it goes, None if nowhere; `note` says why that is not where it was sent."""

    partition: TopicPartition
    before: int | None
    after: int | None
    note: str | None = None


class _Job(NamedTuple):
    group: str
    selections: Sequence[TopicSelection]
    start: Start | None
    shift: int | None
    dry_run: bool


@click.command(short_help="Move a group to other offsets.")
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option(
    "--topic",
    "selections",
    type=TOPIC_SELECTION,
    multiple=True,
    help="A topic, or some of its partitions (TOPIC:0,3). May be repeated.",
)
@click.option("--all-topics", is_flag=True, help="Everything the group has committed.")
@click.option("--to", "start", type=START, help=f"{ALLOWED}.")
@click.option("--by", "shift", type=int, metavar="N", help="Forward by N messages from where it stands; back with -N.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@json_option
@connects
def reset(
    name: str,
    selections: Sequence[TopicSelection],
    all_topics: bool,
    start: Start | None,
    shift: int | None,
    dry_run: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Move a group to other offsets, so that its consumers read on from there.

    The group must have no members: stop its consumers first.

    \b
    TIME:  @2026-11-01T08:00, @1793520000000 (ms since 1970), @-15m (s m h d ago)
    """
    if bool(selections) == all_topics:
        raise click.UsageError("say what to reset: --topic TOPIC[:PARTITION] or --all-topics")
    if (start is None) == (shift is None):
        raise click.UsageError("say where to: --to START or --by N")
    job = _Job(name, selections, start, shift, dry_run)
    moves = run_with_cluster(target, lambda cluster: _reset(cluster, job))
    if as_json:
        print_json(_json(job, moves))
        return
    print_table(
        ["TOPIC", "PARTITION", "BEFORE", "AFTER"],
        [[move.partition.topic, move.partition.partition, move.before, move.after] for move in moves],
    )
    for move in moves:
        if move.note:
            print_note(move.note)
    offsets = format_count(len(_made(moves)), "offset")
    print_note(f"nothing was changed: {offsets} would be" if dry_run else f"reset {offsets} of {name}")


def _made(moves: Sequence[Move]) -> dict[TopicPartition, int]:
    return {move.partition: move.after for move in moves if move.after is not None}


def _json(job: _Job, moves: Sequence[Move]) -> dict[str, Any]:
    return {
        "group": job.group,
        "dry_run": job.dry_run,
        "partitions": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "before": move.before,
                "after": move.after,
                "note": move.note,
            }
            for move in moves
        ],
    }


async def _reset(cluster: "Cluster", job: _Job) -> list[Move]:
    from martlet.client.groups import Groups

    groups = Groups(cluster)
    await _check_empty(groups, job.group)
    committed = await groups.committed(job.group)
    partitions = await _chosen(cluster, job, committed)
    moves = await _moves(cluster, job, partitions, committed)
    if not job.selections:
        moves = sorted([*moves, *_left_alone(committed, partitions)])
    if not job.dry_run:
        try:
            await groups.commit(job.group, _made(moves))
        except ApiError as error:
            if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            # A member has joined meanwhile; the broker lets no group be moved under its members.
            await _check_empty(groups, job.group)
            raise
    return moves


async def _check_empty(groups: "Groups", name: str) -> None:
    """A group that does not exist yet may be reset too: its consumers will start there."""
    try:
        description = await groups.describe(name)
    except ApiError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return
        raise
    if description.members:
        raise CommandFailed(
            ExitCode.CONFLICT,
            f"group {name!r} has {format_count(len(description.members), 'member')} connected "
            f"({_who(description)}), and only a group without members can be reset",
            f"stop those consumers; `martlet group describe {name}` shows when the group is Empty",
        )


def _who(description: "GroupDescription") -> str:
    """The first members by client and host."""
    names = [f"{member.client_id or member.member_id} at {member.client_host}" for member in description.members]
    more = len(names) - _NAMED_MEMBERS_MAX
    return ", ".join(names[:_NAMED_MEMBERS_MAX]) + (f" and {more} more" if more > 0 else "")


async def _chosen(
    cluster: "Cluster", job: _Job, committed: Mapping[TopicPartition, "CommittedOffset"]
) -> list[TopicPartition]:
    from martlet.client.offsets import existing_partitions

    if not job.selections:
        if not committed:
            raise CommandFailed(
                ExitCode.NOT_FOUND, f"group {job.group!r} has committed nothing", "name what to reset with --topic"
            )
        return sorted(await existing_partitions(cluster, committed))
    chosen: set[TopicPartition] = set()
    for selection in job.selections:
        info = await cluster.topic(selection.topic)
        for number in selection.partitions or ():
            if number not in info.partitions:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {selection.topic!r} has no partition {number}; "
                    f"it has {len(info.partitions)}, numbered from 0",
                )
        numbers = info.partitions if selection.partitions is None else selection.partitions
        chosen.update(TopicPartition(selection.topic, number) for number in numbers)
    return sorted(chosen)


async def _moves(
    cluster: "Cluster",
    job: _Job,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, "CommittedOffset"],
) -> list[Move]:
    from martlet.client.offsets import offset_ranges

    before = {partition: committed[partition].offset for partition in partitions if partition in committed}
    if job.start is not None and job.start.kind is not StartKind.OFFSET:
        positions, _ = await resolve_start(cluster, job.start, partitions)
        return [Move(partition, before.get(partition), positions[partition]) for partition in partitions]
    held = await offset_ranges(cluster, partitions)
    moves = []
    for partition in partitions:
        if job.start is not None:
            wanted = job.start.number
        elif partition in before:
            wanted = before[partition] + (job.shift or 0)
        else:
            raise CommandFailed(
                ExitCode.NOT_FOUND,
                f"group {job.group!r} has committed nothing in {partition}, so there is nothing to move from",
                "give --to START instead of --by N",
            )
        moves.append(_within(partition, before.get(partition), wanted, held[partition]))
    return moves


def _left_alone(
    committed: Mapping[TopicPartition, "CommittedOffset"], partitions: Sequence[TopicPartition]
) -> list[Move]:
    """What was committed in topics that have been deleted since: there is nowhere to move it to."""
    gone = committed.keys() - set(partitions)
    return [
        Move(partition, committed[partition].offset, None, f"{partition} does not exist any more, so it was left alone")
        for partition in sorted(gone)
    ]


def _within(partition: TopicPartition, before: int | None, wanted: int, held: range) -> Move:
    if wanted < held.start:
        note = f"{partition} begins at {held.start}, so that is taken for {wanted}"
        return Move(partition, before, held.start, note)
    if wanted > held.stop:
        note = f"{partition} ends at {held.stop}, so that is taken for {wanted}"
        return Move(partition, before, held.stop, note)
    return Move(partition, before, wanted)
