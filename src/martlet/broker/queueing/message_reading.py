"""The bytes of leased messages: whole batches where all of one is leased, slices of them otherwise.

A slice is cut from an open batch, and the last open batches are kept, because one batch is handed out bit by bit.
Offsets without a record (holes of compaction, markers of transactions), and for readers of committed data those of
aborted transactions, are reported as gaps. Batches that are not sliced are not looked into.

Rule: nothing is leased or settled here. Reading may wait for the device; meanwhile the partition may change hands.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

import logging
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.threads import Workers
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.watermarks import READ_COMMITTED
from martlet.queues.engine import Delivery
from martlet.wire.batch import BatchHeader, iterate_batches
from martlet.wire.records.slices import OpenBatch

logger = logging.getLogger(__name__)

_OPEN_MAX: Final = 4
_OPEN_BYTES_MAX: Final = 64 << 20
_READ_BYTES_MAX: Final = 1 << 20
_SINGLE: Final = 1

Ranges = list[tuple[int, int]]


@dataclass(slots=True)
class Found:
    """What was read of some deliveries."""

    deliveries: list[Delivery] = field(default_factory=list)
    batches: list[bytes] = field(default_factory=list)
    gaps: Ranges = field(default_factory=list)
    """Leased, and without a record that could be delivered."""
    left: list[Delivery] = field(default_factory=list)
    """Leased, and beyond the limit of bytes."""
    size: int = 0


class MessageReader:
    """Of one partition, for all of its queues."""

    def __init__(self, partition: Partition, readers: Workers) -> None:
        self._partition = partition
        self._readers = readers
        self._open: OrderedDict[int, OpenBatch] = OrderedDict()

    async def read(self, deliveries: Sequence[Delivery], bytes_max: int, isolation: int) -> Found:
        """Raises ApiError, or StorageFailure for what cannot be read."""
        found = Found()
        end = self._partition.watermarks.readable_end(isolation)
        aborted = Aborted(self._partition, deliveries, end) if isolation == READ_COMMITTED else None
        data = b""
        batches: list[tuple[int, BatchHeader]] = []
        for number, delivery in enumerate(deliveries):
            at = max(delivery.first, self._partition.log.log_start_offset)
            if at > delivery.first:
                found.gaps.append((delivery.first, min(at - 1, delivery.last)))
            while at <= delivery.last:
                batch = next((one for one in batches if one[1].last_offset >= at), None)
                if batch is None:
                    # One message of many batches is no reason to read all that lies behind it.
                    limit = _SINGLE if delivery.last == delivery.first else min(bytes_max, _READ_BYTES_MAX)
                    data = await self._read(at, limit, end)
                    batches = list(iterate_batches(data))
                    if not batches:
                        found.gaps.append((at, delivery.last))  # nothing readable is left there
                        break
                    continue
                position, header = batch
                if header.base_offset > at:
                    hole = min(header.base_offset - 1, delivery.last)
                    found.gaps.append((at, hole))
                    at = hole + 1
                    continue
                last = min(header.last_offset, delivery.last)
                piece = self._piece(data, position, header, at, last, aborted)
                if found.batches and found.size + sum(map(len, piece.batches)) > bytes_max:
                    found.left = [Delivery(at, delivery.last, delivery.attempts), *deliveries[number + 1 :]]
                    return found
                _take(found, piece, delivery.attempts)
                at = last + 1
        return found

    async def _read(self, offset: int, max_bytes: int, end: int) -> bytes:
        partition = self._partition
        piece = partition.log.locate(offset, max_bytes=max_bytes, end_offset=end, at_least_one=True)
        content = piece.read_now()
        if content is None:
            epoch = partition.leader_epoch
            content = await self._readers.run(piece.read)
            if partition.leader_epoch != epoch or partition.leader is None:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return content

    def _piece(
        self, data: bytes, position: int, header: BatchHeader, first: int, last: int, aborted: "Aborted | None"
    ) -> Found:
        """What of one batch is asked for."""
        if header.is_control or (aborted is not None and aborted.has(header)):
            return Found(gaps=[(first, last)])
        is_whole = first == header.base_offset and last == header.last_offset
        if is_whole and header.record_count == header.last_offset_delta + 1:
            batch = data[position : position + header.size]
            return Found([Delivery(first, last, 0)], [batch])
        try:
            opened = self._opened(data, position, header)
        except ApiError as error:
            # Its checksum is right, its records make no sense: a holder has to find that out, and the attempts end.
            logger.warning("%s at offset %d is handed out whole: %s", self._partition.name, header.base_offset, error)
            return Found([Delivery(first, last, 0)], [data[position : position + header.size]])
        offsets = opened.offsets
        rows = offsets[bisect_left(offsets, first) : bisect_right(offsets, last)]
        runs, gaps = _runs(rows, first, last)
        return Found([Delivery(*run, 0) for run in runs], list(opened.slices([(first, last)])), gaps)

    def _opened(self, data: bytes, position: int, header: BatchHeader) -> OpenBatch:
        opened = self._open.pop(header.base_offset, None)
        if opened is None or opened.crc != header.crc:
            batch = memoryview(data)[position : position + header.size]
            opened = OpenBatch(batch, header, max_bytes=_OPEN_BYTES_MAX)
        self._open[header.base_offset] = opened
        if len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)
        return opened


class Aborted:
    """Which batches of a range belong to transactions that were aborted."""

    def __init__(self, partition: Partition, deliveries: Sequence[Delivery], end: int) -> None:
        first, last = deliveries[0].first, deliveries[-1].last
        self._ranges: dict[int, Ranges] = {}
        for entry in partition.log.aborted_transactions(first, min(last + 1, end)):
            self._ranges.setdefault(entry.producer_id, []).append((entry.first_offset, entry.last_offset))

    def has(self, header: BatchHeader) -> bool:
        ranges = self._ranges.get(header.producer_id) if self._ranges and header.is_transactional else None
        return ranges is not None and any(first <= header.base_offset <= last for first, last in ranges)


def _runs(offsets: Sequence[int], first: int, last: int) -> tuple[Ranges, Ranges]:
    """The offsets that are there, as ranges, and what lies between them, from the first to the last."""
    runs: Ranges = []
    gaps: Ranges = []
    at = first
    for offset in offsets:
        if offset > at or not runs:
            if offset > at:
                gaps.append((at, offset - 1))
            runs.append((offset, offset))
        else:
            runs[-1] = (runs[-1][0], offset)
        at = offset + 1
    if at <= last:
        gaps.append((at, last))
    return runs, gaps


def _take(found: Found, piece: Found, attempts: int) -> None:
    """Add what one batch gave; neighbours of one attempt become one delivery."""
    for first, last, _ in piece.deliveries:
        before = found.deliveries[-1] if found.deliveries else None
        if before is not None and before.last + 1 == first and before.attempts == attempts:
            found.deliveries[-1] = Delivery(before.first, last, attempts)
        else:
            found.deliveries.append(Delivery(first, last, attempts))
    found.batches += piece.batches
    found.gaps += piece.gaps
    found.size += sum(map(len, piece.batches))
