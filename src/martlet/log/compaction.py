"""Compacting segments: keep the last record of each key; made, and put in place, by `log_compaction`.

Rules: reads sealed segments below the recovery point only, which change no more; the log may go on, roll, delete and be
truncated meanwhile. Whatever changed under a group of segments makes its result worthless and only that.

How it works: the first pass notes the latest offset of each key in the part not yet compacted, up to a number of keys
(`KEYS_MAX`): memory is bounded, and what did not fit is left to the next plan. The second pass rewrites all segments up
to there, neighbours together while they fit into one. A group that loses nothing is left alone.

Invariants: COMPACT-1 of every key the last record below the high watermark survives (or was a tombstone past its
deadline); COMPACT-2 offsets and order stay, and the last batch of every group stays, emptied if need be, so that the
end of the log can be reached; COMPACT-3 the last batch of every producer stays, so that its sequence numbers survive a
rebuild; COMPACT-4 a record of an aborted transaction takes no committed record's place; COMPACT-5 while data of an
aborted transaction may be left anywhere, the index says that it is aborted.
Proved by: tests/unit/log/test_compaction.py, tests/properties/test_log_compaction.py
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from martlet.base.disk import Disk, DiskFile
from martlet.log.aborted_index import AbortedTransaction
from martlet.log.batch_cleaning import BatchCleaner, keys_of_batch
from martlet.log.batch_order import COMPACTED
from martlet.log.compaction_swap import commit_swap
from martlet.log.file_names import CLEANED
from martlet.log.options import LogOptions
from martlet.log.segment import POSITION_MAX, RELATIVE_OFFSET_MAX, Segment
from martlet.log.segment_list import SegmentList
from martlet.log.segment_walks import first_timestamp
from martlet.log.transaction_cleaning import LastOfProducers, TransactionCleaning
from martlet.wire.batch import BatchHeader, read_batch_header

KEYS_MAX: Final = 400_000
"""Keys remembered at once; some 80 MB."""
_WRITE_BYTES: Final = 1 << 20
_GROWTH_ROOM_BYTES: Final = 64 << 20


class Source(NamedTuple):
    """A segment to compact and its file, held so that it stays readable when the segment is deleted meanwhile."""

    segment: Segment
    file: DiskFile


@dataclass(slots=True)
class CleanedGroup:
    """Neighbouring segments and the one made of them; `replacement` is None when there is nothing to gain."""

    segments: list[Segment]
    replacement: Segment | None = None

    def put_in_place(self, disk: Disk, directory: str, segments: SegmentList) -> None:
        """Let the replacement take the place of the segments, on disk and in the list."""
        replacement = self.replacement
        if replacement is None:
            return
        replacement.aborted.save()
        for file in replacement.aborted.files():
            file.sync()
        bases = [segment.base_offset for segment in self.segments]
        commit_swap(disk, directory, bases[0], bases)
        segments.replace(self.segments, replacement)
        replacement.files.save_indexes()

    def discard(self, disk: Disk) -> None:
        """Remove what was written: the segments have changed meanwhile."""
        if self.replacement is not None:
            disk.remove(self.replacement.path + CLEANED)


@dataclass(slots=True)
class CompactionPlan:
    """One compaction on its way."""

    disk: Disk
    directory: str
    options: LogOptions
    now_ms: int
    generation: int
    sources: list[Source]
    first_dirty_offset: int
    last_of_producers: LastOfProducers
    aborted: list[AbortedTransaction]
    keys_max: int = KEYS_MAX
    cleaned_offset: int = 0
    groups: list[CleanedGroup] = field(default_factory=list)
    is_over: bool = False

    def run(self) -> None:
        """Read, decide, write; raises StorageFailure, after which the plan is over."""
        try:
            transactions = TransactionCleaning(self.aborted)
            latest = self._map_keys(transactions)
            cleaner = BatchCleaner(
                lambda digest: latest.get(digest, -1),
                transactions,
                now_ms=self.now_ms,
                delete_retention_ms=self.options.delete_retention_ms,
            )
            sources = [source for source in self.sources if source.segment.base_offset < self.cleaned_offset]
            for group in _group(sources, self.options):
                self.groups.append(self._clean_group(group, cleaner))
        except BaseException:
            self.is_over = True
            raise

    def _map_keys(self, transactions: TransactionCleaning) -> dict[bytes, int]:
        latest: dict[bytes, int] = {}
        self.cleaned_offset = self.sources[-1].segment.next_offset
        for source in self.sources:
            if source.segment.next_offset <= self.first_dirty_offset:
                continue
            for batch, header in _batches([source]):
                if header.last_offset < self.first_dirty_offset or transactions.is_aborted(header):
                    continue
                if latest and len(latest) + header.record_count > self.keys_max:
                    self.cleaned_offset = header.base_offset
                    return latest
                latest.update(keys_of_batch(batch, header))
        return latest

    def _clean_group(self, sources: list[Source], cleaner: BatchCleaner) -> CleanedGroup:
        segments = [source.segment for source in sources]
        interval, base_offset = self.options.index_interval_bytes, segments[0].base_offset
        cleaned = Segment(self.disk, self.directory, base_offset, size=0, index_interval_bytes=interval, gaps=COMPACTED)
        cleaned.files.start_indexes()
        cleaned.aborted.clear()
        aborted = {one.last_offset: one for one in self.aborted}
        writer = _BatchWriter(self.disk, cleaned.path + CLEANED, cleaned)
        is_changed = len(sources) > 1
        batches = _batches(sources)
        upcoming = next(batches, None)
        while upcoming is not None:
            (batch, header), upcoming = upcoming, next(batches, None)
            kept = cleaner.clean(batch, header, must_stay=upcoming is None or self.last_of_producers.has(header))
            if header.is_control and header.last_offset in aborted:
                cleaned.aborted.add(aborted[header.last_offset])
            is_changed = is_changed or kept is not batch
            if kept is not None:
                writer.add(kept)
        if not is_changed:
            self.disk.remove(cleaned.path + CLEANED)
            return CleanedGroup(segments)
        writer.finish()
        cleaned.seal(segments[-1].next_offset)
        return CleanedGroup(segments, cleaned)


class _BatchWriter:
    """Gathers cleaned batches into large writes and indexes them."""

    __slots__ = ("_file", "_pending", "_pending_bytes", "_segment")

    def __init__(self, disk: Disk, path: str, segment: Segment) -> None:
        self._file: DiskFile = disk.open(path, create=True)
        self._file.truncate(0)
        self._segment = segment
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def add(self, batch: bytes) -> None:
        header = read_batch_header(batch)
        self._segment.note_batch(self._segment.size, header.last_offset, header)
        self._segment.size += len(batch)
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        if self._pending_bytes >= _WRITE_BYTES:
            self._write()

    def finish(self) -> None:
        """Write the rest and wait until the device has it all."""
        self._write()
        self._file.sync()

    def _write(self) -> None:
        self._file.append(b"".join(self._pending))
        self._pending.clear()
        self._pending_bytes = 0


def choose_segments(
    segments: SegmentList, options: LogOptions, *, now_ms: int, up_to_offset: int, first_dirty_offset: int
) -> list[Segment]:
    """The segments to compact now, clean ones first; none when the log is clean enough."""
    chosen: list[Segment] = []
    dirty_bytes = clean_bytes = 0
    is_overdue = False
    for segment in segments.sealed():
        if segment.next_offset > up_to_offset:
            break
        if segment.next_offset <= first_dirty_offset:
            clean_bytes += segment.size
        else:
            if _is_too_young(segment, options, now_ms):
                break
            dirty_bytes += segment.size
            is_overdue = is_overdue or now_ms - first_timestamp(segment) > options.max_compaction_lag_ms
        chosen.append(segment)
    if dirty_bytes == 0:
        return []
    is_dirty_enough = dirty_bytes >= options.min_cleanable_dirty_ratio * (dirty_bytes + clean_bytes)
    return chosen if is_dirty_enough or is_overdue else []


def _is_too_young(segment: Segment, options: LogOptions, now_ms: int) -> bool:
    # Without a lag no record is too young, not even one from a client whose clock is ahead.
    lag_ms = options.min_compaction_lag_ms
    return lag_ms > 0 and now_ms - segment.max_timestamp()[0] < lag_ms


def _group(sources: list[Source], options: LogOptions) -> Iterator[list[Source]]:
    """Neighbours that fit into one segment."""
    bytes_max = min(options.segment_bytes, POSITION_MAX - _GROWTH_ROOM_BYTES)
    group: list[Source] = []
    group_bytes = 0
    for source in sources:
        segment = source.segment
        if group and (
            group_bytes + segment.size > bytes_max
            or segment.next_offset - group[0].segment.base_offset > RELATIVE_OFFSET_MAX
        ):
            yield group
            group, group_bytes = [], 0
        group.append(source)
        group_bytes += segment.size
    if group:
        yield group


def _batches(sources: list[Source]) -> Iterator[tuple[bytes, BatchHeader]]:
    """All batches of sealed segments, whole and checked; raises StorageFailure when one is damaged."""
    for segment, file in sources:
        scan = segment.scan(0, next_offset=segment.base_offset, check_crc=True)
        for position, header in scan:
            yield file.pread(header.size, position), header
        if scan.fault is not None:
            raise segment.trust.error_at(scan.position, scan.next_offset, scan.fault)
