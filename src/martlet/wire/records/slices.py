"""Some records of a batch as batches of their own, without encoding a record again.

A client that is leased ten records of a batch of ten thousand should not be sent ten thousand. A slice keeps base
offset, base timestamp and the records' own bytes, so their deltas stay true: it looks like a batch after compaction. It
is not compressed. Length, record count, last offset and checksum are its own; the greatest timestamp is the batch's.

Proved by: tests/unit/wire/test_records_slices.py
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from martlet.wire.batch import COMPRESSION_MASK, BatchHeader, rebuild_batch
from martlet.wire.primitives import Buffer
from martlet.wire.records.index import RecordIndex, index_records, unpack_batches


class OpenBatch:
    """One batch, uncompressed and indexed; worth keeping while its records are handed out bit by bit."""

    __slots__ = ("_data", "_header", "_index")

    def __init__(self, batch: Buffer, header: BatchHeader, *, max_bytes: int) -> None:
        """Raises CorruptRecords, DecompressionLimit, or ApiError(CORRUPT_MESSAGE)."""
        self._data, spans = unpack_batches(batch, [(0, header)], max_bytes=max_bytes)
        self._index: RecordIndex = index_records(self._data, spans)
        self._header = header._replace(attributes=header.attributes & ~COMPRESSION_MASK)

    @property
    def offsets(self) -> Sequence[int]:
        """Of its records, ascending."""
        return self._index.offsets

    @property
    def crc(self) -> int:
        """Of the batch as it was."""
        return self._header.crc

    def slices(self, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """A batch for each range of offsets, first and last, that has a record in this one."""
        offsets = self._index.offsets
        for first, last in ranges:
            begin, end = bisect_left(offsets, first), bisect_right(offsets, last)
            if begin < end:
                yield self._slice(begin, end)

    def _slice(self, begin: int, end: int) -> bytes:
        """The rows from `begin` to before `end`."""
        bounds = self._index.record_bounds
        header = self._header._replace(
            record_count=end - begin,
            last_offset_delta=self._index.offsets[end - 1] - self._header.base_offset,
        )
        return rebuild_batch(header, memoryview(self._data)[bounds[2 * begin] : bounds[2 * end - 1]])
