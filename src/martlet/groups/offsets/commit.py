"""Turning an OffsetCommit request into records and an answer for every partition.

What is checked here is what concerns a partition: its topic exists, its metadata is short enough. As in Kafka a
negative offset is stored as it is. Stricter than Kafka in two points, so that no client can fill the table with what
does not exist: the partition itself must exist, and the records of one request must fit into one batch.
"""

from typing import NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.groups.ports import GroupsOptions, TopicsView, TopicView
from martlet.groups.records import OffsetCommitted
from martlet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_VERSION_BY_TOPIC_ID = 10

COMMIT_BYTES_MAX = 8 * 1024 * 1024
"""Estimated bytes of the records that one request may make; a batch of the log must stay below twice this."""

_RECORD_OVERHEAD_BYTES = 64

_NO_RETENTION_GIVEN = -1
_INSTANT_MAX_MS = 2**63 - 1


class Commit(NamedTuple):
    """The outcome; `is_worth_asking` is false when no partition was left that the group would have to agree to."""

    response: OffsetCommitResponse
    records: list[OffsetCommitted]
    is_worth_asking: bool


def commit_offsets(
    request: OffsetCommitRequest, version: int, *, topics: TopicsView, options: GroupsOptions, now_ms: int
) -> Commit:
    """Records and answers, provided that the group agrees; raises ApiError when the records would be too many."""
    answers: list[OffsetCommitResponseTopic] = []
    records: list[OffsetCommitted] = []
    is_worth_asking = False
    expires_at_ms = -1
    if request.retention_time_ms != _NO_RETENTION_GIVEN:
        expires_at_ms = min(max(0, now_ms + request.retention_time_ms), _INSTANT_MAX_MS)
    for asked in request.topics:
        topic, missing = _find_topic(asked, version, topics)
        answer = OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id)
        answers.append(answer)
        for partition in asked.partitions:
            error = missing
            if topic is not None:
                error = _partition_error(partition, topic, options)
                is_worth_asking |= error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic is not None and error is ErrorCode.NONE:
                records.append(
                    OffsetCommitted(
                        request.group_id,
                        topic.name,
                        partition.partition_index,
                        partition.committed_offset,
                        # No version of the request has both, and neither has any form of the record.
                        partition.committed_leader_epoch if expires_at_ms < 0 else -1,
                        partition.committed_metadata or "",
                        now_ms,
                        expires_at_ms,
                    )
                )
            answer.partitions.append(OffsetCommitResponsePartition(partition.partition_index, error))
    _check_size(records)
    return Commit(OffsetCommitResponse(topics=answers), records, is_worth_asking)


def _find_topic(
    asked: OffsetCommitRequestTopic, version: int, topics: TopicsView
) -> tuple[TopicView | None, ErrorCode]:
    if version >= FIRST_VERSION_BY_TOPIC_ID:
        return topics.topic_by_id(TopicId(asked.topic_id)), ErrorCode.UNKNOWN_TOPIC_ID
    return topics.topic(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partition_error(partition: OffsetCommitRequestPartition, topic: TopicView, options: GroupsOptions) -> ErrorCode:
    if not 0 <= partition.partition_index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(partition.committed_metadata or "") > options.offset_metadata_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _check_size(records: list[OffsetCommitted]) -> None:
    """An upper bound in bytes: a character takes at most four."""
    size = sum(
        len(record.group_id) + len(record.topic) + len(record.metadata) + _RECORD_OVERHEAD_BYTES for record in records
    )
    if size * 4 > COMMIT_BYTES_MAX:
        size = sum(record_bytes(record) for record in records)
    if size > COMMIT_BYTES_MAX:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{len(records)} offsets take {size} bytes, more than the {COMMIT_BYTES_MAX} that fit into one commit",
        )


def record_bytes(record: OffsetCommitted) -> int:
    """About the size of the record in the log."""
    texts = len(record.group_id.encode()) + len(record.topic.encode()) + len(record.metadata.encode())
    return texts + _RECORD_OVERHEAD_BYTES
