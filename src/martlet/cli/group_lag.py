"""`martlet group lag`: how far groups are behind, in messages and in time."""

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from martlet.base.clock import SystemClock
from martlet.cli.options import GROUP, Target, connects, json_option
from martlet.cli.output import format_count, format_duration, is_terminal, print_json, print_note, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.lag import GroupLag


@click.command()
@click.argument("name", type=GROUP, metavar="[GROUP]", required=False)
@click.option("--all", "all_groups", is_flag=True, help="One line for each group there is.")
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C; with --json a line each time.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to show it with --watch.",
)
@json_option
@connects
def lag(name: str | None, all_groups: bool, watch: bool, interval: float, as_json: bool, target: Target) -> None:
    """Show how far a group is behind, in messages and in time.

    The time is the age of the first message that the group has not read.
    """
    if (name is None) != all_groups:
        raise click.UsageError("give a group, or --all for every group")

    async def work(cluster: "Cluster") -> None:
        while True:
            found = await _find(cluster, name)
            if watch and is_terminal(sys.stdout) and not as_json:
                click.clear()
            _print(found, is_one=not all_groups, as_json=as_json)
            if not watch:
                return
            sys.stdout.flush()
            await asyncio.sleep(interval)

    run_with_cluster(target, work)


async def _find(cluster: "Cluster", name: str | None) -> "list[GroupLag]":
    from martlet.client.lag import group_lag, group_lags

    now_ms = SystemClock().now_ms()
    return await group_lags(cluster, now_ms) if name is None else [await group_lag(cluster, name, now_ms)]


def _print(found: "list[GroupLag]", *, is_one: bool, as_json: bool) -> None:
    if as_json:
        print_json(found[0].to_json() if is_one else [group.to_json() for group in found])
    elif is_one:
        _print_partitions(found[0])
    else:
        _print_groups(found)


def _print_groups(found: "Sequence[GroupLag]") -> None:
    if not found:
        print_note("there are no groups; a group appears when its first consumer does")
        return
    print_table(
        ["GROUP", "STATE", "PARTITIONS", "LAG", "BEHIND"],
        [
            [group.group_id, group.state, len(group.partitions), group.messages, _behind(group.oldest_ms)]
            for group in found
        ],
    )


def _print_partitions(found: "GroupLag") -> None:
    if not found.partitions:
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
            for each in found.partitions
        ],
    )
    total, oldest = found.messages, found.oldest_ms
    if total is not None:
        waits = f", the oldest waits for {format_duration(oldest)}" if total and oldest is not None else ""
        print_note(f"{format_count(total, 'message')} behind{waits}")


def _behind(age_ms: int | None) -> str | None:
    return None if age_ms is None else format_duration(age_ms)
