"""Turning a TxnOffsetCommit request into staged offsets and an answer for every partition.

What is checked of a partition is what a plain commit checks. Whether the producer may is decided by the coordinator of
its transaction, asked beforehand.
"""

from martlet.coordinator.result import OfProducer
from martlet.groups.offsets.commit import commit_offsets
from martlet.groups.ports import GroupsOptions, TopicsView
from martlet.groups.records import OffsetPending
from martlet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from martlet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_VERSION_BY_NAME = 9
"""The version of a plain commit that names topics as this request does."""


def stage_offsets(
    request: TxnOffsetCommitRequest, *, topics: TopicsView, options: GroupsOptions, now_ms: int
) -> tuple[TxnOffsetCommitResponse, list[OffsetPending]]:
    """Answers and records, provided that the group agrees; raises ApiError when the records would be too many."""
    plain = OffsetCommitRequest(
        request.group_id,
        topics=[
            OffsetCommitRequestTopic(
                topic.name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition.partition_index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
    commit = commit_offsets(plain, _VERSION_BY_NAME, topics=topics, options=options, now_ms=now_ms)
    response = TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(one.partition_index, one.error_code) for one in topic.partitions],
            )
            for topic in commit.response.topics
        ]
    )
    staged = [OffsetPending(request.producer_id, request.producer_epoch, record) for record in commit.records]
    return response, staged


def producer_of(request: TxnOffsetCommitRequest) -> OfProducer:
    """Whose transaction the offsets are in."""
    return OfProducer(request.producer_id, request.producer_epoch)
