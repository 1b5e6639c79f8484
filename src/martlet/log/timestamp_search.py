"""Finding a record by its time: the first at or after an instant, and the latest of all.

Rules: reads through the segments' indexes; opens exactly the one batch that holds the answer.

How it works: a segment's greatest timestamp rules it out or in; its time index says up to which offset everything is
earlier; from there batch headers are read until one reaches the time; the records of that batch decide. A batch
whose records cannot be opened answers with its first offset, which is early but misses nothing; so does a stretch that
is damaged, when it lies where the answer may be.
Proved by: tests/unit/log/test_timestamp_search.py, tests/properties/test_log_model.py
"""

from collections.abc import Iterator
from typing import Final

from martlet.base.errors import ApiError
from martlet.log.epoch_cache import EpochCache
from martlet.log.log_slice import TimestampOffset
from martlet.log.segment import NO_TIMESTAMP, Segment
from martlet.log.segment_list import SegmentList
from martlet.log.segment_walks import sound_batches
from martlet.wire.batch import BatchHeader
from martlet.wire.records.index import index_records, unpack_batches

_OPENED_BYTES_MAX: Final = 64 << 20


class TimestampSearch:
    """A view on a log's segments from its start to `end_offset`, made for one question."""

    __slots__ = ("_end_offset", "_epochs", "_segments", "_start_offset")

    def __init__(self, segments: SegmentList, epochs: EpochCache, *, start_offset: int, end_offset: int) -> None:
        self._segments = segments
        self._epochs = epochs
        self._start_offset = start_offset
        self._end_offset = end_offset

    def first_at(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after `timestamp_ms`."""
        for segment in self._visible():
            if segment.max_timestamp()[0] < timestamp_ms and not segment.trust.damage:
                continue
            candidate = self._first_candidate(segment, timestamp_ms)
            found = self._first_in(segment, candidate, timestamp_ms)
            damaged = self._first_damaged(segment, candidate)
            if damaged is not None and (found is None or damaged < found.offset):
                return self._answer(timestamp_ms, damaged)
            if found is not None:
                return found
        return None

    def _first_in(self, segment: Segment, candidate: int, timestamp_ms: int) -> TimestampOffset | None:
        for position, header in self._headers(segment, candidate):
            if header.max_timestamp >= timestamp_ms:
                found = self._first_record(segment, position, header, timestamp_ms)
                if found is not None:
                    return found
        return None

    def _first_damaged(self, segment: Segment, candidate: int) -> int | None:
        """The first offset from the candidate on that cannot be read, if it is visible."""
        for damage in segment.trust.damage:
            first_offset = max(damage.first_offset, candidate, self._start_offset)
            if first_offset < min(damage.next_offset, self._end_offset):
                return first_offset
        return None

    def latest(self) -> TimestampOffset | None:
        """The record with the greatest timestamp, the first one if there are several."""
        best: tuple[Segment, int, BatchHeader] | None = None
        for segment in self._visible():
            greatest, last_offset = segment.max_timestamp()
            if greatest == NO_TIMESTAMP or (best is not None and greatest <= best[2].max_timestamp):
                continue
            hidden = segment.base_offset < self._start_offset or segment.next_offset > self._end_offset
            for position, header in self._headers(segment, self._start_offset if hidden else last_offset):
                if header.max_timestamp != NO_TIMESTAMP and (
                    best is None or header.max_timestamp > best[2].max_timestamp
                ):
                    best = segment, position, header
                if not hidden:
                    break
        if best is None:
            return None
        return self._first_record(*best, best[2].max_timestamp)

    def _visible(self) -> Iterator[Segment]:
        for segment in self._segments.from_offset(self._start_offset):
            if segment.base_offset >= self._end_offset:
                return
            if segment.size or segment.is_sealed:
                yield segment
                if segment.is_sealed:
                    self._segments.used(segment)

    def _first_candidate(self, segment: Segment, timestamp_ms: int) -> int:
        """The offset up to which the time index rules everything out."""
        entry = segment.times.entry_before(timestamp_ms)
        if entry is not None and not (segment.index.is_proven or segment.is_true_time(*entry)):
            segment.rebuild_indexes()
            entry = segment.times.entry_before(timestamp_ms)
        return segment.base_offset if entry is None else segment.base_offset + entry.relative_offset + 1

    def _headers(self, segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from `offset` on that lie in the visible part."""
        for position, header in sound_batches(segment, max(offset, self._start_offset)):
            if header.last_offset >= self._end_offset:
                return
            yield position, header

    def _first_record(
        self, segment: Segment, position: int, header: BatchHeader, timestamp_ms: int
    ) -> TimestampOffset | None:
        if header.uses_log_append_time:
            return self._answer(header.max_timestamp, max(header.base_offset, self._start_offset))
        try:
            data, spans = unpack_batches(
                segment.file.pread(header.size, position), max_bytes=_OPENED_BYTES_MAX, check_crc=False
            )
            index = index_records(data, spans)
        except ApiError:
            return self._answer(header.max_timestamp, max(header.base_offset, self._start_offset))
        for record_ms, offset in zip(index.timestamps, index.offsets, strict=True):
            if record_ms >= timestamp_ms and offset >= self._start_offset:
                return self._answer(record_ms, offset)
        return None

    def _answer(self, timestamp_ms: int, offset: int) -> TimestampOffset:
        return TimestampOffset(timestamp_ms, offset, self._epochs.epoch_at(offset))
