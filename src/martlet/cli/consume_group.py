"""`martlet consume --group`: print messages as a member of a consumer group, and commit what was printed.

A message counts as read once it is printed: what a command prints and cannot commit any more is printed again by the
group's next member. Members come and go as everywhere; partitions are shared with all other members.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from martlet.base.ids import TopicPartition
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.message_writer import MessageWriter
from martlet.cli.output import print_note
from martlet.client.consumer.group_consumer import (
    GroupConsumer,
    GroupConsumerOptions,
    PartitionsLost,
    RebalanceListener,
    Start,
)
from martlet.client.consumer.membership import MemberOptions
from martlet.client.fetcher import FetcherOptions, OutOfRange
from martlet.client.offsets import LATEST, list_offsets

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster

_POLL_MS: Final = 500


@dataclass(frozen=True, slots=True)
class GroupJob:
    """What to read as which group, and when to stop."""

    group: str
    topics: Sequence[str]
    pattern: str | None
    from_earliest: bool
    """Where to begin in partitions of which the group has committed nothing; else at their ends."""
    follow: bool
    patience_ms: int
    """How long a command that does not follow waits for partitions."""


class _Ends(RebalanceListener):
    """Where the partitions ended when the group gave them to this member."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.ends: dict[TopicPartition, int] = {}

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        found = await list_offsets(self._cluster, dict.fromkeys(partitions, LATEST), read_committed=True)
        self.ends |= {partition: at.offset for partition, at in found.items()}

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.ends.pop(partition, None)

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        await self.on_revoked(partitions)


async def consume_as_group(cluster: "Cluster", job: GroupJob, writer: MessageWriter) -> None:
    for topic in job.topics:
        # A member waits for a topic that does not exist; a person has mistyped it.
        await cluster.topic(topic)
    ends = _Ends(cluster)
    options = GroupConsumerOptions(
        member=MemberOptions(group_id=job.group),
        fetch=FetcherOptions(read_committed=True, out_of_range=OutOfRange.EARLIEST),
        start=Start.EARLIEST if job.from_earliest else Start.LATEST,
    )
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + job.patience_ms / 1000
    async with GroupConsumer(cluster, options, ends) as consumer:
        consumer.subscribe(job.topics, pattern=job.pattern)
        committed: dict[TopicPartition, int] = {}
        while not writer.is_full:
            arrived = await consumer.poll(_POLL_MS)
            # Where nothing was printed yet, the start is committed: the group's next member begins there too.
            done = consumer.positions | {fetched.partition: writer.write(fetched) for fetched in arrived}
            writer.flush()
            if done != committed:
                await _commit(consumer, done)
                committed = done
            if job.follow:
                continue
            if not ends.ends and loop.time() > give_up_at:
                raise CommandFailed(
                    ExitCode.TIMEOUT,
                    f"group {job.group!r} has given this member no partitions",
                    f"`martlet group describe {job.group}` shows its members; --timeout SECONDS waits longer",
                )
            if ends.ends and all(consumer.positions.get(one, 0) >= end for one, end in ends.ends.items()):
                return


async def _commit(consumer: GroupConsumer, done: dict[TopicPartition, int]) -> None:
    try:
        await consumer.commit(done)
    except PartitionsLost as error:
        print_note(f"{error}; they may be printed again")
