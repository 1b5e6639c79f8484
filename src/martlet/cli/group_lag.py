"""`martlet group lag`: how far groups are behind, in messages and in time."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from martlet.base.clock import SystemClock
from martlet.cli.options import GROUP, Target, connects, json_option
from martlet.cli.output import format_count, format_duration, print_json, print_note, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.base.ids import TopicPartition
    from martlet.client.cluster import Cluster
    from martlet.client.groups import Groups
    from martlet.client.lag import PartitionLag


class GroupLag(NamedTuple):
    """One group with the lag of each of its partitions, and who reads it."""

    group_id: str
    state: str
    lags: "Sequence[PartitionLag]"
    readers: "dict[TopicPartition, str]"


@click.command()
@click.argument("name", type=GROUP, metavar="[GROUP]", required=False)
@click.option("--all", "every", is_flag=True, help="One line for each group there is.")
@json_option
@connects
def lag(name: str | None, every: bool, as_json: bool, target: Target) -> None:
    """Show how far a group is behind, in messages and in time.

    The time is the age of the first message that the group has not read.
    """
    if (name is None) != every:
        raise click.UsageError("give a group, or --all for every group")

    async def work(cluster: "Cluster") -> list[GroupLag]:
        from martlet.client.groups import Groups

        groups = Groups(cluster)
        names = [listing.group_id for listing in await groups.listings()] if name is None else [name]
        return [found for each in names if (found := await _lag_of(cluster, groups, each, missing_ok=every))]

    found = run_with_cluster(target, work)
    if as_json:
        print_json([_group_json(group) for group in found] if every else _group_json(found[0]))
    elif every:
        _print_groups(found)
    else:
        _print_partitions(found[0])


async def _lag_of(cluster: "Cluster", groups: "Groups", name: str, *, missing_ok: bool) -> GroupLag | None:
    from martlet.base.errors import ApiError, ErrorCode
    from martlet.client.lag import partition_lags

    try:
        description = await groups.describe(name)
    except ApiError as error:
        # Between the list and the question it may have gone.
        if missing_ok and error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    owners = description.owners()
    lags = await partition_lags(cluster, await groups.committed(name), owners.keys(), SystemClock().now_ms())
    readers = {partition: member.client_id or member.member_id for partition, member in owners.items()}
    return GroupLag(name, description.state, lags, readers)


def _print_groups(found: Sequence[GroupLag]) -> None:
    if not found:
        print_note("there are no groups; a group appears when its first consumer does")
        return
    print_table(
        ["GROUP", "STATE", "PARTITIONS", "LAG", "BEHIND"],
        [
            [group.group_id, group.state, len(group.lags), total_messages(group.lags), _behind(oldest_ms(group.lags))]
            for group in found
        ],
    )


def _print_partitions(found: GroupLag) -> None:
    if not found.lags:
        print_note(f"group {found.group_id} has committed nothing and reads nothing")
        return
    print_table(
        ["TOPIC", "PARTITION", "COMMITTED", "FIRST", "END", "LAG", "BEHIND", "READER"],
        [
            [
                each.partition.topic,
                each.partition.partition,
                each.committed,
                each.log_start,
                each.log_end,
                each.messages,
                _behind(each.age_ms),
                found.readers.get(each.partition),
            ]
            for each in found.lags
        ],
    )
    total, oldest = total_messages(found.lags), oldest_ms(found.lags)
    if total is not None:
        waits = f", the oldest waits for {format_duration(oldest)}" if total and oldest is not None else ""
        print_note(f"{format_count(total, 'message')} behind{waits}")


def total_messages(lags: "Iterable[PartitionLag]") -> int | None:
    """All partitions together; None when the lag of none is known."""
    known = [each.messages for each in lags if each.messages is not None]
    return sum(known) if known else None


def oldest_ms(lags: "Iterable[PartitionLag]") -> int | None:
    """How long the message waits that waits longest."""
    return max((each.age_ms for each in lags if each.age_ms is not None), default=None)


def _behind(age_ms: int | None) -> str | None:
    return None if age_ms is None else format_duration(age_ms)


def _group_json(group: GroupLag) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "lag": total_messages(group.lags),
        "lag_seconds": _seconds(oldest_ms(group.lags)),
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed": each.committed,
                "first_offset": each.log_start,
                "end_offset": each.log_end,
                "lag": each.messages,
                "lag_seconds": _seconds(each.age_ms),
                "reader": group.readers.get(each.partition),
            }
            for each in group.lags
        ],
    }


def _seconds(age_ms: int | None) -> float | None:
    return None if age_ms is None else age_ms / 1000
