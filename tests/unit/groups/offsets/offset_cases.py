"""Topics and commits to try the offsets with."""

from collections.abc import Iterable

from martlet.base.ids import TopicId
from martlet.groups.offsets.table import OffsetTable
from martlet.groups.ports import TopicView
from martlet.groups.records import OffsetCommitted
from martlet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def topic_id(name: str) -> TopicId:
    return TopicId(name.encode().ljust(16, b"\0")[:16])


class SomeTopics:
    """A view of topics that a test may change."""

    def __init__(self, **partition_counts: int) -> None:
        self.counts = dict(partition_counts)

    def topic(self, name: str) -> TopicView | None:
        count = self.counts.get(name)
        return None if count is None else TopicView(topic_id(name), name, count)

    def topic_by_id(self, wanted: TopicId) -> TopicView | None:
        return next((self.topic(name) for name in self.counts if topic_id(name) == wanted), None)

    def names(self) -> Iterable[str]:
        return list(self.counts)


def commit_request(
    group_id: str = "g",
    *,
    topic: str = "orders",
    partition: int = 0,
    offset: int = 5,
    metadata: str | None = "",
    generation: int = -1,
    member_id: str = "",
    retention_ms: int = -1,
    epoch: int = -1,
) -> OffsetCommitRequest:
    """One partition, named and identified."""
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id(topic),
                partitions=[OffsetCommitRequestPartition(partition, offset, epoch, metadata)],
            )
        ],
    )


def table_of(*records: OffsetCommitted) -> OffsetTable:
    table = OffsetTable()
    for record in records:
        table.replay(record)
    return table
