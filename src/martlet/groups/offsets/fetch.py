"""Answering OffsetFetch for one group, in the form of version 8 and later.

A partition without a commit is answered with offset -1 and no error, and so is everything of a group that does not
exist: clients then start where their reset policy says. A client that asks for stable offsets only is answered with
UNSTABLE_OFFSET_COMMIT, and asks again, for a partition whose offset an open transaction may change.
"""

from collections.abc import Iterable, Mapping

from martlet.base.errors import ErrorCode
from martlet.base.ids import NO_TOPIC_ID, TopicId
from martlet.groups.offsets.commit import FIRST_VERSION_BY_TOPIC_ID
from martlet.groups.offsets.table import CommittedOffset, OffsetTable
from martlet.groups.ports import TopicsView
from martlet.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


def fetch_offsets(
    asked: OffsetFetchRequestGroup, version: int, *, require_stable: bool, table: OffsetTable, topics: TopicsView
) -> OffsetFetchResponseGroup:
    """Everything asked for; all offsets of the group when no topics are named."""
    by_id = version >= FIRST_VERSION_BY_TOPIC_ID
    answer = OffsetFetchResponseGroup(group_id=asked.group_id)
    if asked.topics is None:
        answer.topics.extend(_all_topics(asked.group_id, by_id, require_stable, table, topics))
    else:
        for topic in asked.topics:
            answer.topics.append(_one_topic(asked.group_id, topic, by_id, require_stable, table, topics))
    return answer


def _all_topics(
    group_id: str, by_id: bool, require_stable: bool, table: OffsetTable, topics: TopicsView
) -> Iterable[OffsetFetchResponseTopics]:
    for name, committed in sorted(table.of_group(group_id).items()):
        topic_id = NO_TOPIC_ID
        if by_id:
            topic = topics.topic(name)
            if topic is None:
                continue  # deleted, and so about to lose its offsets; it has no id to answer with
            topic_id = topic.id
        found = [
            _partition(committed, index, require_stable and table.pending.holds(group_id, name, index))
            for index in sorted(committed)
        ]
        yield OffsetFetchResponseTopics(name="" if by_id else name, topic_id=topic_id, partitions=found)


def _one_topic(
    group_id: str,
    asked: OffsetFetchRequestTopics,
    by_id: bool,
    require_stable: bool,
    table: OffsetTable,
    topics: TopicsView,
) -> OffsetFetchResponseTopics:
    answer = OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id)
    name = asked.name
    if by_id:
        topic = topics.topic_by_id(TopicId(asked.topic_id))
        if topic is None:
            answer.partitions.extend(_missing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in asked.partition_indexes)
            return answer
        name = topic.name
    committed = table.of_topic(group_id, name)
    for index in asked.partition_indexes:
        is_unstable = require_stable and table.pending.holds(group_id, name, index)
        answer.partitions.append(_partition(committed, index, is_unstable))
    return answer


def _partition(
    committed: Mapping[int, CommittedOffset], index: int, is_unstable: bool
) -> OffsetFetchResponsePartitions:
    if is_unstable:
        return _missing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    offset = committed.get(index)
    if offset is None:
        return _missing(index, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def _missing(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=error
    )
