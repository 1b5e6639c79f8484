"""What a consumer's fetch gets of a partition: what is committed, or for readers of committed data what is decided.

Leaders and followers both serve consumers up to their high watermark, and readers of committed data up to their last
stable offset; a leader names a follower in the reader's rack where there is one (KIP-392).

Proved by: tests/unit/broker/parked/test_follower_reads.py, tests/unit/broker/partitions/test_last_stable_offset.py
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import Link
from martlet.broker.parked.fetch import FetchAttempt, diverging_epoch
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.watermarks import READ_UNCOMMITTED, ChangeWaiters
from martlet.broker.routing.read_replica import preferred_read_replica
from martlet.broker.services import BrokerServices
from martlet.security.rules import Operation
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import end_offset_of, read_batch_header
from martlet.wire.compression import Compression
from martlet.wire.fetch import AbortedTransaction, FetchPartition, FetchPartitionResult, FetchRequest

_FIRST_FROM_FOLLOWERS: Final = 11
"""Consumers of older versions do not know that followers can serve them."""
_FIRST_WITH_ZSTD: Final = 10
"""Consumers of older versions could do nothing with what a topic of `compression.type=zstd` holds."""


class ConsumerReads:
    """The `Reads` of one consumer's fetch."""

    __slots__ = ("_broker", "_link", "_request", "_version")

    def __init__(self, broker: BrokerServices, request: FetchRequest, link: Link, version: int) -> None:
        self._broker = broker
        self._request = request
        self._link = link
        self._version = version

    def begin(self) -> None:
        """Each attempt stands alone."""

    def examine(self, attempt: FetchAttempt, topic: str, asked: FetchPartition) -> FetchPartitionResult:
        rules = self._broker.access.rules
        if rules is not None and not rules.may(self._link, Operation.READ, topic, ApiKey.FETCH.name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        table, request = self._broker.partitions, self._request
        may_follow = self._version >= _FIRST_FROM_FOLLOWERS
        partition = (table.readable if may_follow else table.get)(topic, asked.partition)
        attempt.partitions.append(partition)
        partition.check_online()
        partition.check_leader_epoch(asked.current_leader_epoch)
        log, watermarks = partition.log, partition.watermarks
        if self._version < _FIRST_WITH_ZSTD and log.options.compression == Compression.ZSTD:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if partition.leader is None:
            _check_reaches(partition, asked.fetch_offset)
        diverging = diverging_epoch(partition, asked)
        if diverging is not None:
            attempt.complete = True
            return FetchPartitionResult(asked.partition, diverging_epoch=diverging)
        isolation = request.isolation_level
        answer = FetchPartitionResult(
            asked.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None if isolation == READ_UNCOMMITTED else (),
        )
        if partition.leader is not None and request.rack_id:
            nearer = preferred_read_replica(
                partition,
                self._broker.image,
                rack=request.rack_id,
                listener=self._link.listener.name,
                fetch_offset=asked.fetch_offset,
            )
            if nearer is not None:
                attempt.complete = True
                return answer._replace(preferred_read_replica=nearer)
        readable_end = watermarks.readable_end(isolation)
        if isolation != READ_UNCOMMITTED and asked.fetch_offset >= readable_end:
            self._check_decidable(partition)
        attempt.include(partition, asked, readable_end)
        return answer

    def _check_decidable(self, partition: Partition) -> None:
        """A reader that waits for a transaction's end which is damaged may wait for ever: it gets an error."""
        damage = partition.log.lost_decision()
        if damage is not None:
            raise ApiError(self._broker.partitions.damage.read_failed(partition, damage))

    def changes(self, partition: Partition) -> ChangeWaiters:
        return partition.watermarks.readers

    def filled(self, partition: Partition, result: FetchPartitionResult, content: bytes) -> FetchPartitionResult:
        counters = partition.counters
        counters.bytes_out += len(content)
        counters.fetches += 1
        if not content or result.aborted_transactions is None:
            return result._replace(records=content)
        first_offset = read_batch_header(content).base_offset
        aborted = [
            AbortedTransaction(one.producer_id, one.first_offset)
            for one in partition.log.aborted_transactions(first_offset, end_offset_of(content))
        ]
        return result._replace(records=content, aborted_transactions=aborted)

    def answered(self) -> None:
        """Nothing is remembered of a consumer."""


def _check_reaches(partition: Partition, offset: int) -> None:
    """What a follower does not have, or does not know to be committed, its leader may: the reader is to ask there.

    A replica may fall behind its readers, as on a new disk, and says neither OFFSET_OUT_OF_RANGE then nor that the
    reader's history has parted from its own: a reader that takes either for the last word starts over, or skips
    messages.
    """
    if offset > partition.high_watermark:
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
