"""One segment: a log file with its indexes, and finding batches in it.

Rules: knows positions, offsets and timestamps, but nothing of other segments, producers or epochs. Nothing is read when
a segment is found on disk; file and indexes are opened when first used and can be released again.

How it works: every `index_interval_bytes` a batch gets an entry in the indexes. The latest few batches are also
remembered one by one, so that readers at the end of the log find theirs without reading. Index files are written at
roll, checkpoint and close, never per append. A sealed segment gets no more batches; its last time index entry is its
greatest timestamp. Every walk expects each batch to follow the one before (`batch_order`). Where one does not, all of
the file is surveyed (`batch_survey`), and from then on `damage` says which stretches hold no sound batch: walks step
over them, and a reader of an offset in one gets LogDamaged, each time.

Invariants: SEG-1 `size` counts bytes of batches, damaged ones included; SEG-2 an index entry that came from a file is
compared with the batch it points to before it is believed, and the indexes are rebuilt from the log file when they
differ; SEG-3 index files may lag behind or be missing, the log file never; SEG-4 a rebuild that fails changes nothing;
SEG-5 `find` gives only batches that follow those before them, from the segment's start or a proven index entry on.
Proved by: tests/unit/log/test_segment.py, tests/properties/test_log_model.py
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from struct import Struct
from typing import Final, NamedTuple

from martlet.base.disk import Disk, DiskFile
from martlet.base.errors import LogDamaged, StorageFailure
from martlet.log.batch_order import EPOCH_MAX, NO_GAPS, NO_LIMIT, BatchOrder, KnownGaps
from martlet.log.batch_scan import BatchScan
from martlet.log.batch_survey import BatchSurvey, Damage
from martlet.log.epoch_cache import EpochCache
from martlet.log.known_batches import UNKNOWN_TIME, KnownBatches
from martlet.log.offset_index import OffsetIndex
from martlet.log.segment_files import SegmentFiles
from martlet.log.segment_trust import SegmentTrust
from martlet.log.time_index import TimeIndex
from martlet.wire.batch import HEADER_BYTES, MAGIC, BatchHeader, read_batch_header

NO_TIMESTAMP: Final = -1

RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
POSITION_MAX: Final = (1 << 31) - 1
_RECENT_MAX: Final = 32
_SMALL_BYTES: Final = 8192
_WALK_BYTES: Final = 4096 + HEADER_BYTES
# base offset, length, (epoch), magic, (crc, attributes), last offset delta: all that a walk reads.
_PLACE: Final = Struct(">qi4xb6xi")
_LEARNED: Final = (
    "known",
    "is_sealed",
    "next_offset",
)
"""What walks over the file have found out."""


class BatchPlace(NamedTuple):
    """Where a batch lies in its file and which offsets it holds."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class Segment:
    """Owned by one PartitionLog; only the last one of a log is not sealed."""

    __slots__ = (
        "_file",
        "aborted",
        "base_offset",
        "epochs",
        "files",
        "gaps",
        "index_interval_bytes",
        "is_sealed",
        "known",
        "next_offset",
        "size",
        "trust",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        size: int,
        index_interval_bytes: int,
        gaps: KnownGaps = NO_GAPS,
    ) -> None:
        self.files = SegmentFiles(disk, directory, base_offset)
        self.index_interval_bytes = index_interval_bytes
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = size
        self.is_sealed = False
        self.gaps = gaps
        self.epochs: EpochCache | None = None
        """The log's, once it is open: no batch has a later leader epoch."""
        self._file: DiskFile | None = None
        self.trust = SegmentTrust(self.path, base_offset, size)
        self.aborted = self.files.aborted
        self.known = KnownBatches(base_offset)

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int, gaps: KnownGaps = NO_GAPS
    ) -> "Segment":
        """A new, empty segment; what an earlier life left under its names is overwritten."""
        segment = cls(disk, directory, base_offset, size=0, index_interval_bytes=index_interval_bytes, gaps=gaps)
        segment._file = segment.files.create_log()
        return segment

    @property
    def path(self) -> str:
        return self.files.log_path

    @property
    def file(self) -> DiskFile:
        """The log file, opened when first asked for; never closed under a reader, who keeps it alive."""
        if self._file is None:
            self._file = self.files.open_log()
        return self._file

    # Appending.

    def write(self, batches: memoryview | bytes) -> int:
        """Put bytes at the end of the file; returns where. On failure the file is as before."""
        position = self.size
        file = self._file
        if file is None:
            file = self.file
        try:
            file.append(batches)
        except StorageFailure:
            # A part may have been written. If cutting it off fails too, that failure is the one to know about.
            file.truncate(position)
            raise
        self.size = position + len(batches)
        return position

    def note_batch(self, position: int, last_offset: int, header: BatchHeader) -> None:
        """Index a batch that was written or found at `position`; of `header` all but the base offset counts."""
        known = self.known
        size = header.batch_length + 12
        timestamp = header.max_timestamp
        if timestamp > known.max_timestamp:
            known.max_timestamp = timestamp
            known.max_timestamp_offset = last_offset
        if known.unindexed_bytes > self.index_interval_bytes:
            self.index.add(last_offset - self.base_offset, position)
            self.times.add(known.max_timestamp, known.max_timestamp_offset - self.base_offset)
            known.unindexed_bytes = 0
        known.unindexed_bytes += size
        offsets = known.recent_offsets
        if not offsets:
            known.recent_base = last_offset - header.last_offset_delta
            if position == 0:
                known.first_timestamp = timestamp
        offsets.append(last_offset)
        known.recent_positions.append(position)
        if len(offsets) > _RECENT_MAX:
            known.recent_base = offsets[_RECENT_MAX // 2 - 1] + 1
            del offsets[: _RECENT_MAX // 2], known.recent_positions[: _RECENT_MAX // 2]
        self.next_offset = last_offset + 1

    def seal(self, next_offset: int) -> None:
        """No more batches: note the greatest timestamp and where the next segment begins."""
        if self.size and not self.is_sealed:
            timestamp_ms, offset = self.max_timestamp()
            self.times.add(timestamp_ms, offset - self.base_offset)
        self.is_sealed = True
        self.next_offset = next_offset

    # Finding.

    def position_of(self, offset: int) -> int:
        """Where the first batch begins that ends at `offset` or later; `size` when there is none."""
        if offset >= self.next_offset:
            return self.size
        known = self.known
        if offset >= known.recent_base:
            number = bisect_left(known.recent_offsets, offset)
            if number < len(known.recent_positions):
                return known.recent_positions[number]
        place = self.find(offset)
        return self.size if place is None else place.position

    def find(self, offset: int) -> BatchPlace | None:
        """The first batch that ends at `offset` or later; raises LogDamaged when it cannot be read (SEG-5)."""
        index = self.index
        if self.trust.damage:
            damage = self.trust.damage_of(offset)
            if damage is not None:
                raise self.trust.error(damage)
        entry = index.entry_before(offset - self.base_offset)
        if entry < 0:
            return self._walk_to(offset, 0, self.base_offset)
        place = self.find_place(index.positions[entry])
        if place is None or place.last_offset != self.base_offset + index.offsets[entry]:
            self.rebuild_indexes()
            return self.find(offset)
        return self._walk_to(offset, place.position, place.base_offset)

    def cut_before(self, limit: int, *, start: int, at_least_one: bool) -> int:
        """An end of a batch near below `limit`; with `at_least_one` never before the end of the one at `start`."""
        recent = self.known.recent_positions
        if recent and limit >= recent[0]:
            number = bisect_right(recent, limit)
            if recent[number - 1] > start:
                return recent[number - 1]
        else:
            index = self.index
            cut = index.position_up_to(limit)
            if cut > start:
                if index.is_proven or self.find_place(cut) is not None:
                    return cut
                self.rebuild_indexes()
                return self.cut_before(limit, start=start, at_least_one=at_least_one)
        end = start
        while end < self.size:
            place = self.find_place(end)
            if place is None and end > start:
                return end  # what follows is damaged: its reader gets the error
            size = self.place_at(end).size if place is None else place.size
            if end + size > limit:
                return end + size if at_least_one and end == start else end
            end += size
        return end

    def place_at(self, position: int) -> BatchPlace:
        """The batch at a position where one must be; raises StorageFailure when there is none."""
        place = self.find_place(position)
        if place is None:
            raise self.trust.error_at(position, self.base_offset, "there is no batch")
        return place

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch at a position where one must be."""
        self.place_at(position)
        return read_batch_header(self.file.pread(HEADER_BYTES, position))

    def scan(self, position: int, *, next_offset: int, check_crc: bool = False) -> BatchScan:
        """A walk over the batches from `position` on, up to the first that does not follow."""
        order = self.order(next_offset, self.next_offset)
        return BatchScan(self.file, position, self.size, order, check_crc=check_crc)

    def survey(
        self, position: int, *, next_offset: int, until: int | None = None, epoch_max: int = EPOCH_MAX
    ) -> BatchSurvey:
        """A walk over all from `position` on; the log goes on at `until` behind this segment, if that is known."""
        order = self.order(next_offset, NO_LIMIT if until is None else until)
        order.epoch_max = min(order.epoch_max, epoch_max)
        return BatchSurvey(self.file, position, self.size, order, until=until)

    def order(self, next_offset: int, limit: int) -> BatchOrder:
        epoch_max = EPOCH_MAX if self.epochs is None else self.epochs.epoch_max
        limit = min(limit, self.base_offset + RELATIVE_OFFSET_MAX + 1)
        return BatchOrder(next_offset, self.gaps, limit=limit, epoch_max=epoch_max)

    def survey_damage(self) -> None:
        """Check all of the file and note what is damaged."""
        with self._unchanged_by_failure():
            self.survey_all()

    def note_fault(self, position: int) -> None:
        """A walk met something wrong at `position` that is not known yet: survey the whole file."""
        known = self.trust.damage
        self.rebuild_indexes()
        if self.trust.damage == known:
            raise self.trust.error_at(position, self.base_offset, "the file changes while it is read")

    def find_place(self, position: int) -> BatchPlace | None:
        head = self.file.pread(HEADER_BYTES, position)
        if len(head) < HEADER_BYTES:
            return None
        base_offset, length, magic, delta = _PLACE.unpack_from(head)
        size = length + 12
        if magic != MAGIC or size < HEADER_BYTES or position + size > self.size or delta < 0:
            return None
        if base_offset < self.base_offset or base_offset + delta >= self.next_offset:
            return None
        return BatchPlace(position, size, base_offset, base_offset + delta)

    def _walk_to(self, offset: int, position: int, due: int) -> BatchPlace | None:
        """The batch that holds `offset`, from the one at `position` on, where `due` is expected."""
        file, limit, gaps = self.file, self.next_offset, self.gaps
        unpack = _PLACE.unpack_from
        damage = self.trust.next_damage(position, due) if self.trust.damage else None
        end = self.size if damage is None else damage.position
        while position < end:
            window = file.pread(_WALK_BYTES, position)
            at, last = 0, min(len(window), end - position) - HEADER_BYTES
            is_sound = last >= 0
            while is_sound and at <= last:
                base_offset, length, magic, delta = unpack(window, at)
                size = length + 12
                is_sound = (
                    (base_offset == due or gaps.allow(due, base_offset))
                    and magic == MAGIC
                    and HEADER_BYTES <= size <= end - position - at
                    and 0 <= delta < limit - base_offset
                )
                if is_sound:
                    due = base_offset + delta + 1
                    if due > offset:
                        return BatchPlace(position + at, size, base_offset, due - 1)
                    at += size
            position += at
            if not is_sound:
                self.note_fault(position)
                return self.find(offset)
        if damage is not None:
            return self._walk_to(offset, damage.end, damage.next_offset)
        if self.is_sealed and gaps.end_of(due) < limit:
            self.note_fault(end)
            return self.find(offset)
        return None

    # Timestamps.

    def max_timestamp(self) -> tuple[int, int]:
        """The greatest timestamp and the last offset of the first batch that has it; -1 while empty."""
        if self.size == 0:
            return NO_TIMESTAMP, self.base_offset
        if self.known.max_timestamp == UNKNOWN_TIME:
            last = self.times.last()
            if last is not None:
                self.known.max_timestamp = last.timestamp_ms
                self.known.max_timestamp_offset = self.base_offset + last.relative_offset
            self.known.is_max_proven = False
        if not self.known.is_max_proven:
            if not self.is_true_time(self.known.max_timestamp, self.known.max_timestamp_offset - self.base_offset):
                self.rebuild_indexes()
            self.known.is_max_proven = True
        return self.known.max_timestamp, self.known.max_timestamp_offset

    def is_true_time(self, timestamp_ms: int, relative_offset: int) -> bool:
        """Whether the batch that a time index entry names agrees with it (SEG-2)."""
        offset = self.base_offset + relative_offset
        try:
            place = self.find(offset)
        except LogDamaged:
            return False
        if place is None or place.last_offset != offset:
            return False
        return self.header_at(place.position).max_timestamp == timestamp_ms

    # Indexes: loading, rebuilding, writing, letting go.

    @property
    def index(self) -> OffsetIndex:
        index = self.files.offsets
        return self._load_indexes()[0] if index is None else index

    @property
    def times(self) -> TimeIndex:
        times = self.files.times
        return self._load_indexes()[1] if times is None else times

    def rebuild_indexes(self) -> None:
        """Make both indexes from the log file; on the way notes what is damaged (SEG-4)."""
        with self._unchanged_by_failure():
            is_whole = not self.trust.damage
            if is_whole:
                scan = self.scan(0, next_offset=self.base_offset)
                self._note_instead(scan, ())
                is_whole = scan.fault is None and self.next_offset == self.gaps.end_of(scan.next_offset)
            if not is_whole:
                self.survey_all()
        with suppress(StorageFailure):  # a reader needs them in memory only
            self.files.save_indexes()

    def survey_all(self) -> None:
        until = None if self.next_offset == NO_LIMIT else self.next_offset
        survey = self.survey(0, next_offset=self.base_offset, until=until)
        self._note_instead(survey, survey.damage)
        self.trust.surveyed(self.size)

    def _note_instead(self, batches: Iterable[tuple[int, BatchHeader]], damage: Collection[Damage]) -> None:
        """Take these batches for the segment's, and this, known when all have been seen, for what is damaged."""
        is_sealed, next_offset = self.is_sealed, self.next_offset
        self.known = KnownBatches(self.base_offset)
        self.files.start_indexes()
        self.is_sealed = False
        for position, header in batches:
            self.note_batch(position, header.last_offset, header)
        self.trust.note_damage(damage)
        if damage:
            # The latest batches are at hand only where nothing is missing between them and the end.
            self.known.forget_recent()
        if next_offset != NO_LIMIT:
            self.next_offset = next_offset
        if is_sealed:
            self.seal(next_offset)
            self.known.forget_recent()

    @contextmanager
    def _unchanged_by_failure(self) -> Iterator[None]:
        before = [(name, getattr(self, name)) for name in _LEARNED]
        damage, unchecked = self.trust.damage, self.trust.unchecked
        offsets, times = self.files.offsets, self.files.times
        try:
            yield
        except StorageFailure:
            for name, value in before:
                setattr(self, name, value)
            self.trust.damage, self.trust.unchecked = damage, unchecked
            self.files.offsets, self.files.times = offsets, times
            raise

    def release(self) -> None:
        """Let go of the open file, and of indexes that are safe in their files; for sealed segments."""
        self._file = None
        self.known.forget_recent()
        self.files.release()

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        index, times = self.files.read_indexes(log_bytes=self.size, check=False)
        if self.is_sealed and not self.trust.damage and not _reaches_end(self, index, times):
            self.rebuild_indexes()
            return self.index, self.times
        return index, times


def _reaches_end(segment: Segment, index: OffsetIndex, times: TimeIndex) -> bool:
    """Whether a sealed segment's index files are complete: little follows the last entry, and nothing later."""
    if segment.size == 0:
        return segment.gaps.end_of(segment.base_offset) == segment.next_offset
    if index.has_excess or times.has_excess or not times:
        return False
    position = index.positions[-1] if index.positions else 0
    if not 0 <= position < segment.size:
        return False
    last = final = position
    end_offset, latest = -1, times.last()
    while position < segment.size and position - last <= segment.index_interval_bytes:
        place = segment.find_place(position)
        if place is None:
            return False
        final = position
        position += place.size
        end_offset = place.last_offset + 1
    if position != segment.size or segment.gaps.end_of(end_offset) != segment.next_offset:
        return False
    header = read_batch_header(segment.file.pread(HEADER_BYTES, final))
    return latest is not None and header.max_timestamp <= latest.timestamp_ms
