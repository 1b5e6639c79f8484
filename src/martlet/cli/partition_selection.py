"""Which partitions a command is about (`TOPIC`, `TOPIC:0,3`, several, or all there are), and which of them failed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from martlet.base.ids import TopicPartition
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import TOPIC_SELECTION, TopicSelection
from martlet.cli.output import format_count, print_note

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.metadata import PartitionInfo, TopicInfo

_REFUSALS_SHOWN_MAX: Final = 10

Function = TypeVar("Function", bound=Callable[..., Any])


def selects_partitions(function: Function) -> Function:
    """Adds the arguments TOPIC[:PARTITION]... and the flag --all-topics, as `selections` and `all_topics`."""
    function = click.option(
        "--all-topics", is_flag=True, help="All partitions of all topics, those Martlet keeps for itself included."
    )(function)
    return click.argument("selections", metavar="[TOPIC[:PARTITION]]...", nargs=-1, type=TOPIC_SELECTION)(function)


def check_selection(selections: Sequence[TopicSelection], all_topics: bool) -> None:
    """One of the two must be there, and not both."""
    if bool(selections) == all_topics:
        raise click.UsageError("say which partitions: TOPIC, TOPIC:0,3 or --all-topics")


async def select_partitions(
    cluster: "Cluster", selections: Sequence[TopicSelection], *, all_topics: bool
) -> dict[TopicPartition, "PartitionInfo"]:
    """The partitions selected as they are now, sorted."""
    from martlet.client.admin import Admin

    topics = await Admin(cluster).topics()
    if all_topics:
        chosen = [TopicPartition(topic.name, index) for topic in topics.values() for index in topic.partitions]
    else:
        chosen = [partition for selection in selections for partition in _partitions_of(selection, topics)]
    return {partition: topics[partition.topic].partitions[partition.partition] for partition in sorted(set(chosen))}


def _partitions_of(selection: TopicSelection, topics: dict[str, "TopicInfo"]) -> list[TopicPartition]:
    from martlet.client.errors import TopicMissing

    topic = topics.get(selection.topic)
    if topic is None:
        raise TopicMissing(selection.topic)
    for index in selection.partitions or ():
        if index not in topic.partitions:
            raise CommandFailed(
                ExitCode.NOT_FOUND,
                f"topic {selection.topic!r} has no partition {index}; it has {len(topic.partitions)}, numbered from 0",
            )
    return [TopicPartition(topic.name, index) for index in selection.partitions or topic.partitions]


def partition_json(where: TopicPartition) -> dict[str, Any]:
    return {"topic": where.topic, "partition": where.partition}


def tell_refused(refused: Sequence[str], what: str) -> NoReturn:
    """Name some of what failed and end the command with a failure."""
    for sentence in refused[:_REFUSALS_SHOWN_MAX]:
        print_note(sentence)
    if len(refused) > _REFUSALS_SHOWN_MAX:
        print_note(f"and {len(refused) - _REFUSALS_SHOWN_MAX:,} more")
    raise CommandFailed(ExitCode.FAILURE, f"{format_count(len(refused), 'partition')} {what}")
