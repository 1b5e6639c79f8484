"""What a fetch brings from one partition: raw batches, and the records in them that a reader may see.

Rules: no I/O. To forward or store batches use `batches()`, which does not decode; `records()` does.

A reader sees neither records below the position it asked for (a batch is sent whole), nor control batches, nor, when
reading committed data, records of aborted transactions: a producer's records from the first offset of an aborted
transaction up to that transaction's marker.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from martlet.base.ids import TopicPartition
from martlet.wire.batch import BatchHeader, iterate_batches, parse_marker
from martlet.wire.fetch import AbortedTransaction
from martlet.wire.records.record import Record, read_records


class Fetched(NamedTuple):
    """The batches of one partition from `position` on; `next_position` is where the next fetch goes on."""

    partition: TopicPartition
    position: int
    next_position: int
    high_watermark: int
    log_start_offset: int
    data: memoryview
    aborted: Sequence[AbortedTransaction] | None

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every whole batch, control batches included; the views are valid as long as this object."""
        for start, header in iterate_batches(self.data):
            yield header, self._batch_at(start, header)

    def records(self, *, batch_bytes_max: int) -> Iterator[Record]:
        """The records a reader sees, in order; a batch that decompresses to more than the limit is refused."""
        for start, header in self.readable_batches(batch_bytes_max=batch_bytes_max):
            for record in read_records(self._batch_at(start, header), batch_bytes_max):
                if record.offset >= self.position:
                    yield record

    def readable_batches(self, *, batch_bytes_max: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch whose records a reader sees; the first may begin before `position`."""
        aborted = deque(sorted(self.aborted or (), key=lambda transaction: transaction.first_offset))
        aborting: set[int] = set()
        for start, header in iterate_batches(self.data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                aborting.add(aborted.popleft().producer_id)
            if header.is_control:
                if header.producer_id in aborting and _is_abort(self._batch_at(start, header), batch_bytes_max):
                    aborting.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in aborting:
                continue
            yield start, header

    def _batch_at(self, start: int, header: BatchHeader) -> memoryview:
        return self.data[start : start + header.size]


def _is_abort(batch: memoryview, batch_bytes_max: int) -> bool:
    for record in read_records(batch, batch_bytes_max):
        marker = parse_marker(record.key, record.value)
        return marker is not None and not marker.is_commit
    return False
