"""Messages waiting to be sent: gathered into batches, one queue of batches per partition.

Rules: no I/O and no decisions about retries; `producer` takes batches from here and settles them.

Invariants: (CLT-11) records of a partition leave in the order they were added; (CLT-12) a batch that has been taken for
sending gets no more records; (CLT-13) every batch ends once, with offsets, with an error, or by being split into two.
"""

import asyncio
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from martlet.base.ids import TopicPartition
from martlet.base.invariant import invariant
from martlet.wire.records.encode import RecordFields

_RECORD_OVERHEAD_BYTES: Final = 32
_HEADER_OVERHEAD_BYTES: Final = 12


class Delivered(NamedTuple):
    """Where a message has been written; offset -1 when no acknowledgement was asked for."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ProducerIdentity(NamedTuple):
    """Under which id and epoch a partition's batches are numbered."""

    producer_id: int
    producer_epoch: int


class BatchOutcome(NamedTuple):
    """How a batch ended: at an offset, with an error, or as two halves with outcomes of their own."""

    base_offset: int = -1
    log_append_time_ms: int = -1
    error: Exception | None = None
    halves: "tuple[PendingBatch, PendingBatch] | None" = None


class PendingBatch:
    """Records of one partition that travel together. The outcome is never an exception, so none goes unretrieved."""

    __slots__ = (
        "base_sequence",
        "deadline",
        "due_at",
        "encoded",
        "is_closed",
        "not_before",
        "outcome",
        "outcome_unknown",
        "partition",
        "records",
        "size_bytes",
    )

    def __init__(self, partition: TopicPartition, *, due_at: float, deadline: float) -> None:
        self.partition = partition
        self.records: list[RecordFields] = []
        self.size_bytes = 0
        self.due_at = due_at
        self.deadline = deadline
        self.not_before = 0.0
        self.is_closed = False
        self.encoded: bytes | None = None
        self.base_sequence = -1
        self.outcome_unknown = False
        self.outcome: asyncio.Future[BatchOutcome] = asyncio.get_running_loop().create_future()

    def add(self, record: RecordFields, size_bytes: int) -> "Delivery":
        invariant(not self.is_closed, "CLT-12: a closed batch gets no more records")
        self.records.append(record)
        self.size_bytes += size_bytes
        return Delivery(self, len(self.records) - 1)

    def add_all(self, records: list[RecordFields], size_bytes: int) -> None:
        """Take many records at once and close; the fate of a single one is not reported."""
        invariant(not self.is_closed, "CLT-12: a closed batch gets no more records")
        self.records += records
        self.size_bytes += size_bytes
        self.is_closed = True

    def split(self) -> "tuple[PendingBatch, PendingBatch]":
        """Two batches with half of the records each, in order; settles this one with them."""
        middle = len(self.records) // 2
        first = PendingBatch(self.partition, due_at=0.0, deadline=self.deadline)
        second = PendingBatch(self.partition, due_at=0.0, deadline=self.deadline)
        for half, records in ((first, self.records[:middle]), (second, self.records[middle:])):
            half.records = records
            half.size_bytes = sum(record_bytes(record) for record in records)
            half.is_closed = True
        self.settle(BatchOutcome(halves=(first, second)))
        return first, second

    def settle(self, outcome: BatchOutcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    async def wait_settled(self) -> None:
        """Until this batch, or all that it was split into, has its outcome."""
        outcome = await asyncio.shield(self.outcome)
        for half in outcome.halves or ():
            await half.wait_settled()


class Delivery:
    """The promise for one message: await it for where it was written, or for the error that kept it from there."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: PendingBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __await__(self) -> Generator[object, None, Delivered]:
        return self._wait().__await__()

    async def _wait(self) -> Delivered:
        batch, index = self._batch, self._index
        while True:
            outcome = await asyncio.shield(batch.outcome)
            if outcome.halves is None:
                break
            first, second = outcome.halves
            batch, index = (first, index) if index < len(first.records) else (second, index - len(first.records))
        if outcome.error is not None:
            raise outcome.error
        offset = outcome.base_offset + index if outcome.base_offset >= 0 else -1
        timestamp_ms = outcome.log_append_time_ms if outcome.log_append_time_ms >= 0 else batch.records[index][0]
        return Delivered(batch.partition.topic, batch.partition.partition, offset, timestamp_ms)


class PartitionQueue:
    """The batches of one partition, oldest first; at most the oldest is under way."""

    __slots__ = ("identity", "is_busy", "needs_new_identity", "next_sequence", "partition", "waiting")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[PendingBatch] = deque()
        self.is_busy = False
        self.identity: ProducerIdentity | None = None
        self.needs_new_identity = False
        self.next_sequence = 0

    def open_batch(self, size_bytes: int, batch_bytes_max: int) -> PendingBatch | None:
        """The batch that takes a record of this size; None when a new one must be opened. Closes the full one."""
        if not self.waiting or self.waiting[-1].is_closed:
            return None
        last = self.waiting[-1]
        if last.records and last.size_bytes + size_bytes > batch_bytes_max:
            last.is_closed = True
            return None
        return last

    def ready_at(self) -> float:
        """When the oldest batch wants to be sent: a closed one at once, an open one when it has lingered."""
        oldest = self.waiting[0]
        return max(0.0 if oldest.is_closed or len(self.waiting) > 1 else oldest.due_at, oldest.not_before)

    def renumber(self) -> None:
        """Start over under a new id: what was sent under the old one cannot be distinguished from what was not."""
        self.identity = None
        self.needs_new_identity = True
        self.next_sequence = 0
        for batch in self.waiting:
            batch.encoded = None
            batch.base_sequence = -1


def chunks_of(records: Sequence[RecordFields], batch_bytes_max: int) -> Iterator[tuple[list[RecordFields], int]]:
    """Runs of records that fit one batch each, with what they take there; a larger record comes alone."""
    first = size_bytes = 0
    for row, record in enumerate(records):
        more_bytes = record_bytes(record)
        if row > first and size_bytes + more_bytes > batch_bytes_max:
            yield [*records[first:row]], size_bytes
            first, size_bytes = row, 0
        size_bytes += more_bytes
    if first < len(records):
        yield [*records[first:]], size_bytes


def record_bytes(record: RecordFields) -> int:
    """An upper bound of what the record takes in a batch before compression."""
    _, key, value, headers = record
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, header_value in headers:
        size += _HEADER_OVERHEAD_BYTES + 4 * len(name) + len(header_value or b"")
    return size
