"""`martlet topic trim`: delete the oldest messages of partitions, up to an offset, a time, or all but the last N.

The words of `--before` are those of `martlet consume --from`, and mean the same: what reading from there would not
show is deleted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from martlet.base.ids import TopicPartition
from martlet.cli.confirmation import confirm_deletion
from martlet.cli.options import START, TOPIC_SELECTION, Target, TopicSelection, connects, json_option
from martlet.cli.output import format_count, print_json, print_note, print_table
from martlet.cli.partition_selection import partition_json, select_partitions
from martlet.cli.session import run_with_cluster
from martlet.cli.start_position import Start, resolve_start

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster


class _Trim(NamedTuple):
    """What a partition holds, and where it is to begin."""

    partition: TopicPartition
    held: range
    start: int

    @property
    def deleted(self) -> int:
        return max(0, self.start - self.held.start)

    def to_json(self) -> dict[str, Any]:
        offsets = {"first_offset_before": self.held.start, "first_offset": max(self.start, self.held.start)}
        return {**partition_json(self.partition), **offsets, "deleted": self.deleted}


@click.command()
@click.argument("selections", metavar="TOPIC[:PARTITION]...", nargs=-1, required=True, type=TOPIC_SELECTION)
@click.option(
    "--before",
    "start",
    type=START,
    required=True,
    help="latest (everything), -N (all but the last N of each partition), @TIME, or an offset.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@connects
def trim(
    selections: Sequence[TopicSelection], start: Start, dry_run: bool, yes: bool, as_json: bool, target: Target
) -> None:
    """Delete the oldest messages of topics, for good.

    Groups that had not read them go on with what is left. Offsets never change.
    """

    async def plan(cluster: "Cluster") -> list[_Trim]:
        partitions = list(await select_partitions(cluster, selections, all_topics=False))
        starts, held = await resolve_start(cluster, start, partitions)
        return [_Trim(partition, held[partition], starts[partition]) for partition in partitions]

    trims = run_with_cluster(target, plan)
    wanted = [one for one in trims if one.deleted]
    count = f"{format_count(sum(one.deleted for one in wanted), 'message')} of {format_count(len(wanted), 'partition')}"
    if wanted and not dry_run and not yes:
        confirm_deletion(f"Delete {count}, for good?")
    if wanted and not dry_run:
        run_with_cluster(target, lambda cluster: _delete(cluster, wanted))
    if as_json:
        print_json([one.to_json() for one in trims])
    elif not wanted:
        print_note("there is nothing to delete before that")
    else:
        print_table(
            ["TOPIC", "PARTITION", "FIRST", "NEW FIRST", "DELETED"],
            [[*one.partition, one.held.start, one.start, one.deleted] for one in wanted],
        )
        print_note(f"would delete {count}" if dry_run else f"deleted {count}")


async def _delete(cluster: "Cluster", trims: Sequence[_Trim]) -> None:
    from martlet.client.admin import Admin

    await Admin(cluster).delete_records({one.partition: one.start for one in trims})
