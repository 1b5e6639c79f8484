"""What a leader's answer does to a followed partition: the follower's rules decide, this carries it out.

Rules: bytes that are damaged, do not follow, or carry an epoch that the leader cannot have sent are refused as a whole;
nothing of them reaches the log. Trouble is raised as ApiError and concerns this partition alone.

Invariant: FOL-3 the log is touched only in the role in which it was requested: an answer to an earlier epoch, or to
another end of the log, changes nothing.

Proved by: tests/unit/broker/following/test_apply.py
"""

import logging

from martlet.base.errors import ApiError, ErrorCode, error_code
from martlet.broker.following.partition import Followed
from martlet.broker.following.request import RequestedPartition
from martlet.log.replicated_batches import check_replicated
from martlet.replication.follower import Append, EpochEnd, FetchAnswer, StartAt, TruncateTo
from martlet.wire.fetch import FetchPartitionResult

logger = logging.getLogger(__name__)


def is_no_news(requested: RequestedPartition, result: FetchPartitionResult) -> bool:
    """Whether the answer says what is known already; with a thousand idle partitions nearly all of them do."""
    return (
        not result.error_code
        and not result.records
        and result.diverging_epoch is None
        and result.high_watermark == requested.followed.partition.high_watermark
        and result.log_start_offset <= requested.position.log_start_offset
    )


def take_result(requested: RequestedPartition, result: FetchPartitionResult, now_ms: int) -> int:
    """Do what the answer says; returns the bytes appended, raises ApiError when the partition should pause."""
    followed = requested.followed
    partition = followed.partition
    follower = partition.follower
    if follower is None or partition.offline:
        return 0
    step = follower.step_for(_answer_of(result), requested.position, followed.log)
    if isinstance(step, Append):
        return _append(followed, result, now_ms)
    if isinstance(step, TruncateTo):
        _truncate(followed, step.end_offset, now_ms)
    elif isinstance(step, StartAt):
        followed.log.start_at(step.offset, now_ms)
    elif step.error is not ErrorCode.NONE:
        raise ApiError(step.error)
    return 0


def _truncate(followed: Followed, end_offset: int, now_ms: int) -> None:
    log = followed.log
    before = (log.end_offset, log.last_epoch)
    logger.info("%s: its leader's history parts from ours; going back from %d to %d", followed.partition.name,
                log.end_offset, end_offset)  # fmt: skip
    log.truncate_to(end_offset, now_ms)
    if before == (log.end_offset, log.last_epoch):
        # Each round must leave less to agree on, or the two would go on for ever.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"truncating to {end_offset} changed nothing")


def _answer_of(result: FetchPartitionResult) -> FetchAnswer:
    diverging = result.diverging_epoch
    return FetchAnswer(
        error=error_code(result.error_code),
        high_watermark=result.high_watermark,
        log_start_offset=result.log_start_offset,
        diverging=None if diverging is None else EpochEnd(diverging.epoch, diverging.end_offset),
        has_records=bool(result.records),
    )


def _append(followed: Followed, result: FetchPartitionResult, now_ms: int) -> int:
    log, follower = followed.log, followed.partition.follower
    records = memoryview(result.records)
    if records:
        newest_epoch = -1 if follower is None else follower.leader_epoch
        batches = check_replicated(records, last_epoch=log.last_epoch, newest_epoch=newest_epoch)
        first = batches.first
        end_offset = log.end_offset
        if first.base_offset < end_offset <= min(first.last_offset, result.log_start_offset):
            # The leader's log begins inside a batch, which comes whole, and nothing of ours is in it any more: begin
            # where the batch does.
            log.start_at(first.base_offset, now_ms)
        log.append(batches, now_ms=now_ms)
    log.commit(result.high_watermark)
    log_start_offset = min(result.log_start_offset, log.end_offset)
    if log_start_offset > log.log_start_offset:
        log.advance_log_start(log_start_offset)
    return len(records)
