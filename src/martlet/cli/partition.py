"""`martlet partition`: where partitions lie and who leads them; move them, and have leaders elected."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.cli.confirmation import confirm
from martlet.cli.exit_codes import ExitCode
from martlet.cli.options import TOPIC_SELECTION, Target, TopicSelection, connects, json_option
from martlet.cli.output import format_count, print_json, print_note, print_table
from martlet.cli.partition_move import move
from martlet.cli.partition_selection import (
    check_selection,
    partition_json,
    select_partitions,
    selects_partitions,
    tell_refused,
)
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.cluster_admin import Move, Outcomes
    from martlet.client.metadata import PartitionInfo


@click.group()
def partition() -> None:
    """Show where partitions lie, move them, and elect their leaders."""


partition.add_command(move)


# --- list


@partition.command("list")
@click.argument("selections", metavar="[TOPIC[:PARTITION]]...", nargs=-1, type=TOPIC_SELECTION)
@click.option("--problems", is_flag=True, help="Only those without a leader or with fewer copies in sync than wished.")
@click.option("--moving", is_flag=True, help="Only those on their way to other brokers.")
@click.option("--internal", is_flag=True, help="Include the topics Martlet keeps for itself.")
@json_option
@connects
def list_partitions(
    selections: Sequence[TopicSelection], problems: bool, moving: bool, internal: bool, as_json: bool, target: Target
) -> None:
    """List partitions with their leaders and copies.

    Copies are listed by broker, the preferred leader first. --problems and --moving look at internal topics as well.
    """

    async def work(cluster: "Cluster") -> list[dict[str, Any]]:
        from martlet.client.cluster_admin import ClusterAdmin

        found = await select_partitions(cluster, selections, all_topics=not selections)
        moves = await ClusterAdmin(cluster).moves()
        hidden = {name for name, topic in cluster.metadata.topics.items() if topic.is_internal}
        shows_all = internal or problems or moving or selections
        return [
            describe_partition(where, info, moves.get(where))
            for where, info in found.items()
            if shows_all or where.topic not in hidden
        ]

    rows = run_with_cluster(target, work)
    if problems:
        rows = [row for row in rows if row["problem"]]
    if moving:
        rows = [row for row in rows if row["moving_to"]]
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_note("no partition is like that" if problems or moving else "there are no partitions")
        return
    print_partitions(rows)


def describe_partition(where: TopicPartition, info: "PartitionInfo", move: "Move | None") -> dict[str, Any]:
    """One partition for people and programs."""
    return {
        "topic": where.topic,
        "partition": where.partition,
        "leader": info.leader if info.leader >= 0 else None,
        "leader_epoch": info.leader_epoch,
        "replicas": list(info.replicas),
        "in_sync": list(info.in_sync),
        "offline": list(info.offline),
        "problem": problem_of(info, move),
        "moving_to": list(move.wished) if move is not None else None,
    }


def problem_of(info: "PartitionInfo", move: "Move | None") -> str | None:
    """What is wrong with a partition, if anything; a copy that a move is only just making is no fault."""
    if info.leader < 0:
        return "no leader"
    coming = move.adding if move is not None else ()
    missing = [replica for replica in info.replicas if replica not in info.in_sync and replica not in coming]
    return f"not in sync: {','.join(map(str, missing))}" if missing else None


def print_partitions(rows: Sequence[dict[str, Any]]) -> None:
    """The table of `partition list` and of what is wrong in `cluster status`."""
    print_table(
        ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "STATE"],
        [
            [
                row["topic"],
                row["partition"],
                row["leader"],
                row["leader_epoch"],
                ",".join(map(str, row["replicas"])),
                ",".join(map(str, row["in_sync"])),
                _state(row),
            ]
            for row in rows
        ],
    )


def _state(row: dict[str, Any]) -> str:
    moving = f"moving to {','.join(map(str, row['moving_to']))}" if row["moving_to"] else None
    return "; ".join(filter(None, (row["problem"], moving))) or "ok"


# --- elect


@partition.command()
@selects_partitions
@click.option(
    "--unclean",
    is_flag=True,
    help="Where nobody leads, take any copy that is there, although acknowledged messages may be lost by it.",
)
@click.option("--yes", is_flag=True, help="Do not ask before an unclean election.")
@json_option
@connects
def elect(
    selections: Sequence[TopicSelection], all_topics: bool, unclean: bool, yes: bool, as_json: bool, target: Target
) -> int:
    """Have partitions led by their preferred leaders.

    That is the first of a partition's replicas. Martlet does it by itself every few minutes; after a broker has come
    back, this does it now.
    """
    check_selection(selections, all_topics)
    if unclean and not yes:
        confirm(
            "Where no complete copy is left, elect any copy and give up the messages that it lacks, for good?",
            "nobody was elected",
        )

    async def work(cluster: "Cluster") -> "Outcomes":
        from martlet.client.cluster_admin import ClusterAdmin

        wanted = await select_partitions(cluster, selections, all_topics=all_topics)
        return await ClusterAdmin(cluster).elect(wanted, unclean=unclean)

    outcomes = run_with_cluster(target, work)
    elected = sorted(where for where, error in outcomes.items() if error is None)
    unneeded = sum(error is not None and error.code == ErrorCode.ELECTION_NOT_NEEDED for error in outcomes.values())
    refused = {
        where: error
        for where, error in sorted(outcomes.items())
        if error is not None and error.code != ErrorCode.ELECTION_NOT_NEEDED
    }
    if as_json:
        print_json(
            {
                "elected": [partition_json(where) for where in elected],
                "unneeded": unneeded,
                "refused": [partition_json(where) | {"error": str(error)} for where, error in refused.items()],
            }
        )
    else:
        print_note(f"elected leaders of {format_count(len(elected), 'partition')}; {unneeded:,} needed none")
    if refused:
        tell_refused([f"{where}: {error}" for where, error in refused.items()], "had no leader elected")
    return ExitCode.OK
