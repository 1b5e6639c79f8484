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
from martlet.base.errors import DiskFull, LogDamaged, StorageFailure
from martlet.log.aborted_index import AbortedIndex
from martlet.log.batch_order import EPOCH_MAX, NO_GAPS, NO_LIMIT, BatchOrder, KnownGaps
from martlet.log.batch_scan import BatchScan
from martlet.log.batch_survey import BatchSurvey, Damage
from martlet.log.epoch_cache import EpochCache
from martlet.log.file_names import ABORTED_INDEX, DELETED, INDEX, INDEX_KINDS, LOG, TIME_INDEX, offset_file
from martlet.log.index_files import append_entries, last_entry
from martlet.log.log_slice import LogSlice
from martlet.log.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from martlet.log.offset_index import OffsetIndex, decode_offset_index
from martlet.log.offset_index import decode_last_entry as decode_last_offset_entry
from martlet.log.rebuilt_files import read_rebuilt
from martlet.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from martlet.log.time_index import TimeIndex, decode_time_index
from martlet.log.time_index import decode_last_entry as decode_last_time_entry
from martlet.log.unchecked_bytes import UncheckedBytes
from martlet.wire.batch import HEADER_BYTES, MAGIC, BatchHeader, read_batch_header

NO_TIMESTAMP: Final = -1
_UNKNOWN: Final = -(1 << 63)
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1
POSITION_MAX: Final = (1 << 31) - 1
_RECENT_MAX: Final = 32
_SMALL_BYTES: Final = 8192
_WALK_BYTES: Final = 4096 + HEADER_BYTES
# base offset, length, (epoch), magic, (crc, attributes), last offset delta: all that a walk looks at.
_PLACE: Final = Struct(">qi4xb6xi")
_LEARNED: Final = (
    "_first_timestamp",
    "_index",
    "_is_max_proven",
    "_max_timestamp",
    "_max_timestamp_offset",
    "_recent_base",
    "_recent_offsets",
    "_recent_positions",
    "_times",
    "_unchecked",
    "_unindexed_bytes",
    "damage",
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
        "_disk",
        "_file",
        "_first_timestamp",
        "_index",
        "_index_interval_bytes",
        "_is_max_proven",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_prefix",
        "_recent_base",
        "_recent_offsets",
        "_recent_positions",
        "_times",
        "_unchecked",
        "_unindexed_bytes",
        "aborted",
        "base_offset",
        "damage",
        "epochs",
        "gaps",
        "is_sealed",
        "next_offset",
        "size",
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
        self._disk = disk
        self._prefix = f"{directory}/{offset_file(base_offset, '')}"
        self._index_interval_bytes = index_interval_bytes
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = size
        self.is_sealed = False
        self.gaps = gaps
        self.epochs: EpochCache | None = None
        """The log's, once it is open: no batch has a later leader epoch."""
        self.damage: tuple[Damage, ...] = ()
        """The stretches that hold no sound batch, as far as they have been found."""
        self._file: DiskFile | None = None
        self._unchecked = UncheckedBytes(self.path, size, base_offset) if size else None
        self._index: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self.aborted = AbortedIndex(disk, self._prefix + ABORTED_INDEX)
        self._recent_offsets: list[int] = []
        self._recent_positions: list[int] = []
        self._recent_base = NO_LIMIT
        self._unindexed_bytes = 0
        self._first_timestamp: int | None = None
        self._max_timestamp = _UNKNOWN
        self._max_timestamp_offset = base_offset
        self._is_max_proven = True

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int, gaps: KnownGaps = NO_GAPS
    ) -> "Segment":
        """A new, empty segment; what an earlier life left under its names is overwritten."""
        segment = cls(disk, directory, base_offset, size=0, index_interval_bytes=index_interval_bytes, gaps=gaps)
        file = disk.open(segment.path, create=True)
        if file.size():
            file.truncate(0)
        segment._file = file
        segment.aborted.remove()
        disk.remove(segment._prefix + INDEX)
        disk.remove(segment._prefix + TIME_INDEX)
        segment.start_indexes()
        return segment

    @property
    def path(self) -> str:
        return self._prefix + LOG

    @property
    def file(self) -> DiskFile:
        """The log file, opened when first asked for; never closed under a reader, who keeps it alive."""
        if self._file is None:
            self._file = self._disk.open(self.path)
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
        size = header.batch_length + 12
        timestamp = header.max_timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._max_timestamp_offset = last_offset
        if self._unindexed_bytes > self._index_interval_bytes:
            self.index.add(last_offset - self.base_offset, position)
            self.times.add(self._max_timestamp, self._max_timestamp_offset - self.base_offset)
            self._unindexed_bytes = 0
        self._unindexed_bytes += size
        offsets = self._recent_offsets
        if not offsets:
            self._recent_base = last_offset - header.last_offset_delta
            if position == 0:
                self._first_timestamp = timestamp
        offsets.append(last_offset)
        self._recent_positions.append(position)
        if len(offsets) > _RECENT_MAX:
            self._recent_base = offsets[_RECENT_MAX // 2 - 1] + 1
            del offsets[: _RECENT_MAX // 2], self._recent_positions[: _RECENT_MAX // 2]
        self.next_offset = last_offset + 1

    def seal(self, next_offset: int) -> None:
        """No more batches: note the greatest timestamp and where the next segment begins."""
        if self.size and not self.is_sealed:
            timestamp_ms, offset = self.max_timestamp()
            self.times.add(timestamp_ms, offset - self.base_offset)
        self.is_sealed = True
        self.next_offset = next_offset

    def truncate(self, position: int) -> None:
        """Drop the batches from `position` on, durably, and go on appending there."""
        self.cut_file(position)
        self.reopen(position)
        self.aborted.truncate(self.next_offset)
        self.persist_indexes()

    def cut_file(self, position: int) -> None:
        """End the log file at `position`, durably."""
        self.file.truncate(position)
        self.file.sync()
        self.size = position
        self.damage = tuple(damage for damage in self.damage if damage.end <= position)
        self.checked_from(position)

    # Trusting.

    def checked_from(self, position: int) -> None:
        """The checksums of all batches from `position` on hold."""
        if self._unchecked is not None:
            self._unchecked.trust_from(position)
            if not self._unchecked.end:
                self._unchecked = None

    def unchecked_in(self, position: int, size: int) -> UncheckedBytes | None:
        """What has to be checked when these bytes are read; None when they can be relied on."""
        unchecked = self._unchecked
        return unchecked if unchecked is not None and unchecked.covers(position, size) else None

    def distrust(self) -> None:
        """Have everything checked again; for a sealed segment, whose file changes no more."""
        if self.size:
            self._unchecked = UncheckedBytes(self.path, self.size, self.base_offset)

    def next_unchecked(self, max_bytes: int) -> LogSlice | None:
        """The first batches that nobody has checked, about so many bytes; None when all have been.

        Raises LogDamaged, once, when there are none where they should be.
        """
        unchecked = self._unchecked
        if self._ends_too_early():
            self.look_for_damage()
            raise self.damage_error(self.size, self.next_offset, "the file ends too early")
        if unchecked is None or unchecked.checked >= min(unchecked.end, self.size):
            return None
        start = unchecked.checked
        try:
            stop = self.cut_before(start + max_bytes, start=start, at_least_one=True)
        except LogDamaged:
            self.look_for_damage()
            raise
        epoch_max = EPOCH_MAX if self.epochs is None else self.epochs.epoch_max
        return LogSlice(self.file, start, stop - start, True, unchecked, self.gaps, epoch_max)

    def _ends_too_early(self) -> bool:
        """Whether all of a sealed segment has been checked, and it does not reach to the next one."""
        if not self.is_sealed or self.damage:
            return False
        unchecked = self._unchecked
        if unchecked is None:
            return self.size == 0 and self.gaps.end_of(self.base_offset) < self.next_offset
        is_checked = unchecked.checked >= unchecked.end == self.size
        return is_checked and self.gaps.end_of(unchecked.next_offset) < self.next_offset

    # Finding.

    def position_of(self, offset: int) -> int:
        """Where the first batch begins that ends at `offset` or later; `size` when there is none."""
        if offset >= self.next_offset:
            return self.size
        if offset >= self._recent_base:
            number = bisect_left(self._recent_offsets, offset)
            if number < len(self._recent_positions):
                return self._recent_positions[number]
        place = self.find(offset)
        return self.size if place is None else place.position

    def find(self, offset: int) -> BatchPlace | None:
        """The first batch that ends at `offset` or later; raises LogDamaged when it cannot be read (SEG-5)."""
        index = self.index
        if self.damage:
            for damage in self.damage:
                if damage.covers(offset):
                    raise self.damaged(damage)
        entry = index.entry_before(offset - self.base_offset)
        if entry < 0:
            return self._walk_to(offset, 0, self.base_offset)
        place = self._place_at(index.positions[entry])
        if place is None or place.last_offset != self.base_offset + index.offsets[entry]:
            self.rebuild_indexes()
            return self.find(offset)
        return self._walk_to(offset, place.position, place.base_offset)

    @property
    def ends_damaged(self) -> bool:
        """Whether damage reaches to the end of the file."""
        return any(damage.end >= self.size for damage in self.damage)

    def sound_until(self, start: int, stop: int) -> int:
        """`stop`, or where the first known damage behind `start` is: what is read at once must not step over any."""
        return min([stop, *(damage.position for damage in self.damage if damage.position > start)])

    def cut_before(self, limit: int, *, start: int, at_least_one: bool) -> int:
        """An end of a batch near below `limit`; with `at_least_one` never before the end of the one at `start`."""
        recent = self._recent_positions
        if recent and limit >= recent[0]:
            number = bisect_right(recent, limit)
            if recent[number - 1] > start:
                return recent[number - 1]
        else:
            index = self.index
            cut = index.position_up_to(limit)
            if cut > start:
                if index.is_proven or self._place_at(cut) is not None:
                    return cut
                self.rebuild_indexes()
                return self.cut_before(limit, start=start, at_least_one=at_least_one)
        end = start
        while end < self.size:
            place = self._place_at(end)
            if place is None and end > start:
                return end  # what follows is damaged: its reader will be told
            size = self.place_at(end).size if place is None else place.size
            if end + size > limit:
                return end + size if at_least_one and end == start else end
            end += size
        return end

    def end_before(self, position: int) -> int:
        """The offset after the last batch before `position`, where a batch begins or the file ends."""
        at = self.index.position_up_to(position - 1) if position else 0
        due = self.place_at(at).base_offset if at else self.base_offset
        while at < position:
            damage = self._next_damage(at, due)
            if damage is not None and damage.position == at:
                at, due = damage.end, damage.next_offset
                continue
            place = self.place_at(at)
            at, due = at + place.size, place.last_offset + 1
        return due

    def place_at(self, position: int) -> BatchPlace:
        """The batch at a position where one must be; raises StorageFailure when there is none."""
        place = self._place_at(position)
        if place is None:
            raise self.damage_error(position, self.base_offset, "there is no batch")
        return place

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch at a position where one must be."""
        self.place_at(position)
        return read_batch_header(self.file.pread(HEADER_BYTES, position))

    def scan(self, position: int, *, next_offset: int, check_crc: bool = False) -> BatchScan:
        """A walk over the batches from `position` on, up to the first that does not follow."""
        order = self._order(next_offset, self.next_offset)
        return BatchScan(self.file, position, self.size, order, check_crc=check_crc)

    def survey(
        self, position: int, *, next_offset: int, until: int | None = None, epoch_max: int = EPOCH_MAX
    ) -> BatchSurvey:
        """A walk over all from `position` on; the log goes on at `until` behind this segment, if that is known."""
        order = self._order(next_offset, NO_LIMIT if until is None else until)
        order.epoch_max = min(order.epoch_max, epoch_max)
        return BatchSurvey(self.file, position, self.size, order, until=until)

    def _order(self, next_offset: int, limit: int) -> BatchOrder:
        epoch_max = EPOCH_MAX if self.epochs is None else self.epochs.epoch_max
        limit = min(limit, self.base_offset + RELATIVE_OFFSET_MAX + 1)
        return BatchOrder(next_offset, self.gaps, limit=limit, epoch_max=epoch_max)

    def sound_batches(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from the one with `offset` on, without those that are damaged."""
        position, due = self._start_at(offset) if offset > self.base_offset else (0, self.base_offset)
        while position < self.size:
            damage = self._next_damage(position, due)
            end = self.size if damage is None else damage.position
            scan = BatchScan(self.file, position, end, self._order(due, self.next_offset), check_crc=False)
            yield from scan
            if scan.fault is not None:
                if scan.next_offset >= self.next_offset:
                    return
                self._find_damage(scan.position)
                position, due = self._start_at(scan.next_offset)
            elif damage is None:
                return
            else:
                position, due = damage.end, damage.next_offset

    def _start_at(self, offset: int) -> tuple[int, int]:
        """Where the sound batches from `offset` on begin, and the offset that is due there."""
        try:
            place = self.find(offset)
        except LogDamaged:
            damage = next((damage for damage in self.damage if damage.covers(offset)), None)
            if damage is None:
                raise
            return damage.end, damage.next_offset
        return (self.size, self.next_offset) if place is None else (place.position, place.base_offset)

    def look_for_damage(self) -> None:
        """Check all of the file and note what is damaged."""
        with self._unchanged_by_failure():
            self._survey_all()

    def find_damage_at(self, position: int) -> None:
        """Find out how far the damage at `position` reaches, which a reader has met."""
        is_surveyed = self._unchecked is None or self._unchecked.next_offset == NO_LIMIT
        if not is_surveyed or not any(damage.position <= position < damage.end for damage in self.damage):
            self.look_for_damage()

    def note_damage(self, damage: Collection[Damage]) -> None:
        """These are the stretches that hold no sound batch."""
        self.damage = tuple(damage)
        if damage:
            # The latest batches are at hand only where nothing is missing between them and the end.
            self._forget_recent()

    def reopen_damaged(self, next_offset: int) -> None:
        """Take this as the segment to append to, the next batch at `next_offset`, whatever is damaged before that."""
        self.is_sealed = False
        self.next_offset = next_offset
        self.look_for_damage()

    def damaged(self, damage: Damage) -> LogDamaged:
        """The error for an offset that cannot be read."""
        return LogDamaged(f"{self.path}: {damage}")

    def damage_error(self, position: int, offset: int, what: str) -> LogDamaged:
        """The error for bytes that should be batches and are not."""
        return LogDamaged(f"{self.path}: damaged at byte {position}, near offset {offset}: {what}")

    def _next_damage(self, position: int, due: int) -> Damage | None:
        """The first stretch known to be damaged that a walk has before it, at `position` and with `due` to come."""
        for damage in self.damage:
            if damage.position >= position and (damage.end > position or damage.next_offset > due):
                return damage
        return None

    def _find_damage(self, position: int) -> None:
        """A walk met something wrong at `position` that is not known yet: look at the whole file."""
        known = self.damage
        self.rebuild_indexes()
        if self.damage == known:
            raise self.damage_error(position, self.base_offset, "the file changes while it is read")

    def _place_at(self, position: int) -> BatchPlace | None:
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
        damage = self._next_damage(position, due) if self.damage else None
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
                self._find_damage(position)
                return self.find(offset)
        if damage is not None:
            return self._walk_to(offset, damage.end, damage.next_offset)
        if self.is_sealed and gaps.end_of(due) < limit:
            self._find_damage(end)
            return self.find(offset)
        return None

    # Timestamps.

    def first_timestamp(self) -> int:
        """The greatest timestamp of the first batch, -1 while empty or when that batch is damaged."""
        if self._first_timestamp is None and self.size:
            is_sound = self._place_at(0) is not None
            self._first_timestamp = self.header_at(0).max_timestamp if is_sound else NO_TIMESTAMP
        return NO_TIMESTAMP if self._first_timestamp is None else self._first_timestamp

    def max_timestamp(self) -> tuple[int, int]:
        """The greatest timestamp and the last offset of the first batch that has it; -1 while empty."""
        if self.size == 0:
            return NO_TIMESTAMP, self.base_offset
        if self._max_timestamp == _UNKNOWN:
            last = self.times.last()
            if last is not None:
                self._max_timestamp = last.timestamp_ms
                self._max_timestamp_offset = self.base_offset + last.relative_offset
            self._is_max_proven = False
        if not self._is_max_proven:
            if not self.is_true_time(self._max_timestamp, self._max_timestamp_offset - self.base_offset):
                self.rebuild_indexes()
            self._is_max_proven = True
        return self._max_timestamp, self._max_timestamp_offset

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
        index = self._index
        return self._load_indexes()[0] if index is None else index

    @property
    def times(self) -> TimeIndex:
        times = self._times
        return self._load_indexes()[1] if times is None else times

    def last_indexed(self) -> tuple[int, int]:
        """Position and base offset of the last batch with an entry, or of the segment's start; reads ends of files."""
        if self.size <= _SMALL_BYTES:
            return 0, self.base_offset
        entry = decode_last_offset_entry(last_entry(self._disk, self._prefix + INDEX, OFFSET_ENTRY_BYTES))
        place = self._place_at(entry[1]) if entry is not None and entry[1] >= 0 else None
        if entry is None or place is None or place.last_offset != self.base_offset + entry[0]:
            return 0, self.base_offset
        return place.position, place.base_offset

    def resume(self, position: int, first_offset: int) -> None:
        """Take this as the segment to append to, as a clean stop left it; the indexes stay unread until needed.

        The arguments are what `last_indexed` said. A small segment's indexes are not read but made again.
        """
        self.is_sealed = False
        self._forget_batches()
        self.next_offset = NO_LIMIT
        latest = (
            decode_last_time_entry(last_entry(self._disk, self._prefix + TIME_INDEX, TIME_ENTRY_BYTES))
            if position
            else None
        )
        if latest is None:
            self.start_indexes()
            self._note_all_from(0, self.base_offset)
            return
        self._max_timestamp = latest.timestamp_ms
        self._max_timestamp_offset = self.base_offset + latest.relative_offset
        self._is_max_proven = False
        self._note_all_from(position, first_offset)

    def start_recovery(self, trusted_offset: int) -> tuple[int, int]:
        """Forget what cannot be trusted after a crash; returns position and base offset to check batches from.

        Trusted are batches below `trusted_offset` and the index entries for them. The end of the time index may be
        missing, which cannot be seen from what is there, so checking begins at its last entry if that is earlier. The
        caller gives every batch it finds sound to `note_batch`.
        """
        self.is_sealed = False
        self._forget_batches()
        self.damage = ()
        self.next_offset = NO_LIMIT
        if trusted_offset <= self.base_offset:
            self.start_indexes()
            self.next_offset = self.base_offset
            return 0, self.base_offset
        index, times = self._read_indexes(check=True)
        last = times.last()
        index.truncate_offsets(min(trusted_offset - self.base_offset, 0 if last is None else last.relative_offset + 1))
        position, first_offset = self._continue_after(index, times)
        self.next_offset = first_offset
        return position, first_offset

    def start_indexes(self) -> None:
        """Begin with empty indexes, whatever their files hold."""
        self._index, self._times = OffsetIndex(), TimeIndex()
        self._index.has_excess = self._times.has_excess = True

    def reopen(self, position: int) -> None:
        """Take this as a segment to append to, its last batch ending at `position`; reads from the last entry on."""
        self.is_sealed = False
        self._forget_batches()
        self.size, self.next_offset = position, NO_LIMIT
        index, times = self.index, self.times
        index.truncate(position)
        self._note_all_from(*self._continue_after(index, times))

    def _continue_after(self, index: OffsetIndex, times: TimeIndex) -> tuple[int, int]:
        """Make the last entry of `index` the place to go on from; position and base offset of its batch.

        Without a sound last entry the indexes begin anew, and so does the walk over the segment.
        """
        if index.positions:
            place = self._place_at(index.positions[-1])
            latest = times.truncate(index.offsets[-1] + 1)
            is_sound = place is not None and place.last_offset == self.base_offset + index.offsets[-1]
            is_sound = is_sound and latest is not None and self.is_true_time(*latest) and self._index is index
            if place is not None and is_sound and latest is not None:
                self._max_timestamp = latest.timestamp_ms
                self._max_timestamp_offset = self.base_offset + latest.relative_offset
                index.truncate(place.position)
                self._unindexed_bytes = self._index_interval_bytes + 1
                return place.position, place.base_offset
        return self.begin_again()

    def begin_again(self) -> tuple[int, int]:
        """Forget all that walks have found out; position and base offset to check batches from."""
        self._forget_batches()
        self.damage = ()
        self.start_indexes()
        return 0, self.base_offset

    def rebuild_indexes(self) -> None:
        """Make both indexes from the log file; on the way notes what is damaged (SEG-4)."""
        with self._unchanged_by_failure():
            is_whole = not self.damage
            if is_whole:
                scan = self.scan(0, next_offset=self.base_offset)
                self._note_instead(scan, ())
                is_whole = scan.fault is None and self.next_offset == self.gaps.end_of(scan.next_offset)
            if not is_whole:
                self._survey_all()
        with suppress(StorageFailure):  # a reader needs them in memory only
            self.persist_indexes()

    def _survey_all(self) -> None:
        until = None if self.next_offset == NO_LIMIT else self.next_offset
        survey = self.survey(0, next_offset=self.base_offset, until=until)
        self._note_instead(survey, survey.damage)
        self.distrust()
        if self._unchecked is not None:
            self._unchecked.all_is_known(self.damage)

    def _note_instead(self, batches: Iterable[tuple[int, BatchHeader]], damage: Collection[Damage]) -> None:
        """Take these batches for the segment's, and this, known when all have been seen, for what is damaged."""
        is_sealed, next_offset = self.is_sealed, self.next_offset
        self._forget_batches()
        self.start_indexes()
        self.is_sealed = False
        for position, header in batches:
            self.note_batch(position, header.last_offset, header)
        self.note_damage(damage)
        if next_offset != NO_LIMIT:
            self.next_offset = next_offset
        if is_sealed:
            self.seal(next_offset)
            self._forget_recent()

    @contextmanager
    def _unchanged_by_failure(self) -> Iterator[None]:
        before = [(name, getattr(self, name)) for name in _LEARNED]
        try:
            yield
        except StorageFailure:
            for name, value in before:
                setattr(self, name, value)
            raise

    def persist_indexes(self) -> bool:
        """Bring the index files up to date; not so (False) on a full disk, which costs a rebuild at worst (SEG-3)."""
        try:
            self.aborted.save()
            if self._index is None or self._times is None:
                return True
            append_entries(self._disk, self._prefix + INDEX, self._index, OFFSET_ENTRY_BYTES)
            append_entries(self._disk, self._prefix + TIME_INDEX, self._times, TIME_ENTRY_BYTES)
        except DiskFull:
            return False
        return True

    def index_files(self) -> list[DiskFile]:
        """The index files, to be synced."""
        paths = (self._prefix + INDEX, self._prefix + TIME_INDEX)
        files = [self._disk.open(path) for path in paths if self._disk.exists(path)]
        return files + self.aborted.files()

    def release(self) -> None:
        """Let go of the open file, and of indexes that are safe in their files; for sealed segments."""
        self._file = None
        self._forget_recent()
        if all(index is None or index.persisted == len(index) for index in (self._index, self._times)):
            self._index = self._times = None
        self.aborted.release()

    def rename(self, suffix: str) -> list[str]:
        """Give all files the name they wait for removal under; returns the new names."""
        renamed = []
        for kind in (LOG, *INDEX_KINDS):
            if self._disk.exists(self._prefix + kind):
                self._disk.rename(self._prefix + kind, self._prefix + kind + suffix)
                renamed.append(self._prefix + kind + suffix)
        return renamed

    def discard(self) -> None:
        """Remove all files."""
        for path in self.rename(DELETED):
            self._disk.remove(path)

    def _forget_recent(self) -> None:
        self._recent_offsets, self._recent_positions, self._recent_base = [], [], NO_LIMIT

    def _forget_batches(self) -> None:
        self._forget_recent()
        self._unindexed_bytes = 0
        self._first_timestamp = None
        self._max_timestamp = _UNKNOWN
        self._max_timestamp_offset = self.base_offset
        self._is_max_proven = True

    def _note_all_from(self, position: int, first_offset: int) -> None:
        scan = self.scan(position, next_offset=first_offset)
        for place, header in scan:
            self.note_batch(place, header.last_offset, header)
        if scan.fault is not None:
            self._survey_all()
        if self.size == 0:
            self.next_offset = self.base_offset

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        index, times = self._read_indexes(check=False)
        if self.is_sealed and not self.damage and not self._reaches_end(index, times):
            self.rebuild_indexes()
            return self.index, self.times
        return index, times

    def _read_indexes(self, *, check: bool) -> tuple[OffsetIndex, TimeIndex]:
        content = read_rebuilt(self._disk, self._prefix + INDEX) or b""
        index = decode_offset_index(content, log_bytes=self.size, check=check)
        times = decode_time_index(read_rebuilt(self._disk, self._prefix + TIME_INDEX) or b"", check=check)
        self._index, self._times = index, times
        return index, times

    def _reaches_end(self, index: OffsetIndex, times: TimeIndex) -> bool:
        """Whether a sealed segment's index files are complete: little follows the last entry, and nothing later."""
        if self.size == 0:
            return self.gaps.end_of(self.base_offset) == self.next_offset
        if index.has_excess or times.has_excess or not times:
            return False
        position = index.positions[-1] if index.positions else 0
        if not 0 <= position < self.size:
            return False
        last = final = position
        end_offset, latest = -1, times.last()
        while position < self.size and position - last <= self._index_interval_bytes:
            place = self._place_at(position)
            if place is None:
                return False
            final = position
            position += place.size
            end_offset = place.last_offset + 1
        if position != self.size or self.gaps.end_of(end_offset) != self.next_offset:
            return False
        header = read_batch_header(self.file.pread(HEADER_BYTES, final))
        return latest is not None and header.max_timestamp <= latest.timestamp_ms
