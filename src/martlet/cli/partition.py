"""`martlet partition`: where partitions lie and who leads them; move them, and have leaders elected."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from martlet.base.errors import ErrorCode
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
    from martlet.client.cluster_admin import Outcomes
    from martlet.client.reports import PartitionReport


@click.group()
def partition() -> None:
    """Show where partitions lie, move them, and elect their leaders."""


partition.add_command(move)


# --- list


@partition.command("list")
@click.argument("selections", metavar="[TOPIC[:PARTITION]]...", nargs=-1, type=TOPIC_SELECTION)
@click.option(
    "--problems", is_flag=True, help="Only those without a leader or with fewer replicas in sync than wished."
)
@click.option("--moving", is_flag=True, help="Only those on their way to other brokers.")
@click.option("--internal", is_flag=True, help="Include the topics Martlet keeps for itself.")
@json_option
@connects
def list_partitions(
    selections: Sequence[TopicSelection], problems: bool, moving: bool, internal: bool, as_json: bool, target: Target
) -> None:
    """List partitions with their leaders and replicas.

    Replicas are listed by broker, the preferred leader first. --problems and --moving include internal topics.
    """

    async def work(cluster: "Cluster") -> "list[PartitionReport]":
        from martlet.client.cluster_admin import ClusterAdmin
        from martlet.client.reports import PartitionReport

        found = await select_partitions(cluster, selections, all_topics=not selections)
        moves = await ClusterAdmin(cluster).moves()
        hidden = {name for name, topic in cluster.metadata.topics.items() if topic.is_internal}
        shows_all = internal or problems or moving or selections
        return [
            PartitionReport(where, info, moves.get(where))
            for where, info in found.items()
            if shows_all or where.topic not in hidden
        ]

    rows = run_with_cluster(target, work)
    if problems:
        rows = [row for row in rows if row.problem]
    if moving:
        rows = [row for row in rows if row.move]
    if as_json:
        print_json([row.to_json() for row in rows])
        return
    if not rows:
        print_note("no partition is like that" if problems or moving else "there are no partitions")
        return
    print_partitions(rows)


def print_partitions(reports: "Sequence[PartitionReport]") -> None:
    """The table of `partition list` and of what is wrong in `cluster status`."""
    print_table(
        ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "STATE"],
        [
            [
                report.partition.topic,
                report.partition.partition,
                report.leader,
                report.info.leader_epoch,
                ",".join(map(str, report.info.replicas)),
                ",".join(map(str, report.info.in_sync)),
                _state(report),
            ]
            for report in reports
        ],
    )


def _state(report: "PartitionReport") -> str:
    moving = f"moving to {','.join(map(str, report.move.wished))}" if report.move else None
    return "; ".join(filter(None, (report.problem, moving))) or "ok"


# --- elect


@partition.command()
@selects_partitions
@click.option(
    "--unclean",
    is_flag=True,
    help="Where there is no leader, elect any replica that is alive; acknowledged messages may be lost by it.",
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
            "Where no complete replica is left, elect any replica and give up the messages that it lacks, for good?",
            "no leader was elected",
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
