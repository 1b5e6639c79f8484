"""Opening a log: which segments there are, how far they can be trusted, and what follows from their batches.

Rules: runs once per log before anybody uses it. After a clean stop it reads a few small files and the end of the last
segment, however much the log holds. After a crash it also reads everything past the recovery point.

How it works. Below the recovery point everything was synced and has been acknowledged; past it, pages may be missing,
zero or torn, and whole files may be gone. So the batches past it are checked one by one, and at the first that does not
hold the log is cut, later segments included. A fault below it is damage to acknowledged data: the log does not open.
The same goes for any fault after a clean stop. When the recovery point itself cannot be read, only the very end of the
log may be cut. A killed process leaves at most the beginning of its last write; a log that was cut by more, or that
ends below what was committed, says that it is damaged: it lacks what others may count on.

Invariants: (1) nothing below the recovery point is ever cut; (2) what is cut, and snapshots of it, are gone durably
before the log is used; (3) producer state and epochs are those of the batches that are left.
Proved by: tests/unit/log/test_recovery.py, tests/properties/test_log_model.py
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

from martlet.base.disk import DirectoryEntry, Disk
from martlet.base.errors import LogDamaged
from martlet.base.ids import TopicPartition
from martlet.log.batch_scan import BatchScan
from martlet.log.checkpoints import BrokenCheckpoint, decode_offsets
from martlet.log.compaction_swap import finish_swaps
from martlet.log.epoch_cache import EpochCache
from martlet.log.epoch_recovery import recover_epochs
from martlet.log.file_names import DAMAGE_FOUND, DELETED, LOG, SNAPSHOT, parse_offset_file
from martlet.log.options import LogOptions
from martlet.log.producer_snapshot import ProducerSnapshots
from martlet.log.producer_state import ProducerStates
from martlet.log.segment import Segment
from martlet.log.segment_list import SegmentList
from martlet.wire.batch import BatchHeader

_NEVER: Final = 1 << 63


class LogCheckpoint(NamedTuple):
    """What the log directory's checkpoints say of a log; `recovery_point` None means that it is not known."""

    recovery_point: int | None = 0
    log_start_offset: int = 0
    cleaned_offset: int = 0
    is_clean: bool = False
    high_watermark: int = 0
    """Everything below was committed when it was written down."""


class LoadedLog(NamedTuple):
    """A log as found on disk, ready for use."""

    segments: SegmentList
    epochs: EpochCache
    producers: ProducerStates
    snapshots: ProducerSnapshots
    log_start_offset: int
    end_offset: int
    flushed_offset: int
    newly_sealed: list[Segment]
    cut_bytes: int
    is_damaged: bool
    """Something was cut that was whole once: more than the write in which a process was killed."""
    lacks_committed: bool
    """It ends below what was known to be committed."""
    is_new: bool


def apply_floor(checkpoint: LogCheckpoint, content: bytes, partition: TopicPartition) -> LogCheckpoint:
    """What holds after a truncation that the checkpoints may not know of; the floor's file says how deep it went."""
    try:
        floor = decode_offsets(content)[partition]
    except (BrokenCheckpoint, KeyError):
        return checkpoint._replace(recovery_point=None, cleaned_offset=0, high_watermark=0)
    recovery_point = None if checkpoint.recovery_point is None else min(checkpoint.recovery_point, floor)
    return checkpoint._replace(
        recovery_point=recovery_point,
        log_start_offset=min(checkpoint.log_start_offset, floor),
        cleaned_offset=min(checkpoint.cleaned_offset, floor),
        high_watermark=min(checkpoint.high_watermark, floor),
    )


def load_log(
    disk: Disk,
    directory: str,
    options: LogOptions,
    checkpoint: LogCheckpoint,
    now_ms: int,
    on_damage: Callable[[], None] = lambda: None,
) -> LoadedLog:
    """Everything of a partition's directory; raises LogDamaged when acknowledged data is damaged or missing.

    `on_damage` is called before anything is cut that was whole once: afterwards nobody can see that it was there.
    """
    entries = disk.list_directory(directory)
    if any(entry.name == DAMAGE_FOUND for entry in entries):
        found = (disk.read_file(f"{directory}/{DAMAGE_FOUND}") or b"").decode(errors="replace").strip()
        raise LogDamaged(f"{directory}: damage was found in it before: {found}")
    if finish_swaps(disk, directory, entries):
        entries = disk.list_directory(directory)
    return _Recovery(disk, directory, options, checkpoint, now_ms, on_damage).run(entries)


def replay_producers(
    snapshots: ProducerSnapshots, segments: SegmentList, end_offset: int, options: LogOptions, now_ms: int
) -> ProducerStates:
    """Producer state at `end_offset`: the newest snapshot before it and the batches since."""
    offset, producers = snapshots.load_latest(up_to_offset=end_offset) or (0, ProducerStates())
    producers.expire(now_ms, options.producer_id_expiration_ms)
    if offset >= end_offset:
        return producers
    for segment in segments.from_offset(offset):
        position = segment.position_of(offset) if segment.base_offset < offset else 0
        for _, header in segment.scan(position, next_offset=segment.base_offset, check_crc=False):
            if header.base_offset >= end_offset:
                return producers
            if header.producer_id >= 0 and header.base_offset >= offset:
                producers.record(header, header.last_offset, _appended_at_ms(header, now_ms))
    return producers


def _appended_at_ms(header: BatchHeader, now_ms: int) -> int:
    # When a batch came is only known if it says so; now is on the safe side of expiring its producer.
    return header.max_timestamp if header.uses_log_append_time else now_ms


class _Recovery:
    """One opening of a log: what has been found so far."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        checkpoint: LogCheckpoint,
        now_ms: int,
        on_damage: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._options = options
        self._checkpoint = checkpoint
        self._now_ms = now_ms
        self._on_damage = on_damage
        self._segments: list[Segment] = []
        self._snapshots = ProducerSnapshots(disk, directory, [])
        self._producers = ProducerStates()
        self._epochs: list[tuple[int, int]] = []
        self._first_checked_offset = self._end_offset = 0
        self._newly_sealed: list[Segment] = []
        self._has_removed = False
        self._cut_bytes = 0
        self._is_damaged = False

    def run(self, entries: list[DirectoryEntry]) -> LoadedLog:
        self._take_stock(entries)
        is_new = not self._segments
        if is_new:
            self._segments.append(self._first_segment())
        checkpoint = self._checkpoint
        if checkpoint.is_clean:
            self._resume()
        else:
            self._check_and_cut()
        log_start_offset = max(checkpoint.log_start_offset, self._segments[0].base_offset)
        self._check_reach(log_start_offset)
        self._clear_up()
        segments = SegmentList(self._segments)
        flushed_offset = self._end_offset
        if not checkpoint.is_clean:
            flushed_offset = min(self._end_offset, max(log_start_offset, checkpoint.recovery_point or 0))
        return LoadedLog(
            segments=segments,
            epochs=recover_epochs(
                self._disk,
                self._directory,
                segments,
                self._epochs,
                checked=(self._first_checked_offset, self._end_offset),
                log_start_offset=log_start_offset,
            ),
            producers=self._producers,
            snapshots=self._snapshots,
            log_start_offset=log_start_offset,
            end_offset=self._end_offset,
            flushed_offset=flushed_offset,
            newly_sealed=self._newly_sealed,
            cut_bytes=self._cut_bytes,
            is_damaged=self._is_damaged or self._end_offset < checkpoint.high_watermark,
            lacks_committed=self._end_offset < checkpoint.high_watermark,
            is_new=is_new,
        )

    def _take_stock(self, entries: list[DirectoryEntry]) -> None:
        """Find segments and snapshots in the directory; remove what was deleted before."""
        segments: list[Segment] = []
        snapshots: list[int] = []
        interval = self._options.index_interval_bytes
        for name, is_directory, size in entries:
            parsed = None if is_directory else parse_offset_file(name)
            if parsed is None:
                continue
            offset, suffix = parsed
            if suffix.endswith(DELETED):
                self._disk.remove(f"{self._directory}/{name}")
                self._has_removed = True
            elif suffix == LOG:
                segments.append(Segment(self._disk, self._directory, offset, size=size, index_interval_bytes=interval))
            elif suffix == SNAPSHOT:
                snapshots.append(offset)
        while len(segments) > 1 and segments[1].base_offset <= self._checkpoint.log_start_offset:
            # Deleted, but the removal did not survive a crash.
            self._discard(segments.pop(0))
        for segment, following in pairwise(segments):
            segment.is_sealed = True
            segment.next_offset = following.base_offset
        if segments:
            segments[-1].next_offset = _NEVER
        self._segments = segments
        self._snapshots = ProducerSnapshots(self._disk, self._directory, snapshots)

    def _first_segment(self) -> Segment:
        start, flushed = self._checkpoint.log_start_offset, self._checkpoint.recovery_point
        if flushed is not None and flushed > start:
            raise LogDamaged(f"{self._directory}: no segments, though offsets up to {flushed} were flushed")
        interval = self._options.index_interval_bytes
        return Segment.create(self._disk, self._directory, start, index_interval_bytes=interval)

    def _resume(self) -> None:
        """Go on as a clean stop left the log; only the last few batches are looked at."""
        segment = self._segments[-1]
        position, self._first_checked_offset = segment.last_indexed()
        scan = segment.scan(position, next_offset=self._first_checked_offset, check_crc=True)
        for _, header in scan:
            self._note_epoch(header)
        if scan.fault is not None:
            raise segment.damage(scan.position, scan.next_offset, scan.fault)
        segment.checked_from(position)
        self._end_offset = scan.next_offset
        segment.resume(position, self._first_checked_offset)
        self._producers = self._producers_at(self._end_offset)

    def _check_and_cut(self) -> None:
        """Check all that may have suffered in a crash, and cut the log at the first fault that may be cut."""
        segments, trusted = self._segments, self._checkpoint.recovery_point or 0
        number = len(segments) - 1
        # A segment that ends at the recovery point was perhaps sealed after it: its batches are safe, its indexes may
        # lack their ends.
        while number > 0 and segments[number].base_offset >= trusted:
            number -= 1
        position, self._end_offset = segments[number].start_recovery(trusted)
        self._first_checked_offset = self._end_offset
        self._producers = self._producers_at(self._end_offset)
        while number < len(segments):
            segment = segments[number]
            is_last = number == len(segments) - 1
            scan = self._check_segment(segment, position)
            fault = scan.fault
            if fault is None and not is_last and segments[number + 1].base_offset != self._end_offset:
                fault = f"the next segment begins at {segments[number + 1].base_offset}"
            if fault is not None:
                if self._end_offset < trusted or (self._checkpoint.recovery_point is None and not is_last):
                    raise segment.damage(scan.position, self._end_offset, fault)
                if not (is_last and scan.ends_in_unfinished_write()):
                    self._on_damage()
                    self._is_damaged = True
                self._cut(number, scan.position)
            elif not is_last:
                segment.seal(self._end_offset)
                self._newly_sealed.append(segment)
                segments[number + 1].start_recovery(self._end_offset)
            segment.persist_indexes()
            number, position = number + 1, 0

    def _check_segment(self, segment: Segment, position: int) -> BatchScan:
        """Check the batches from `position` on and take in what they say, up to the first that does not hold."""
        scan = segment.scan(position, next_offset=self._end_offset, check_crc=True)
        now_ms, producers = self._now_ms, self._producers
        latest_epoch = self._epochs[-1][0] if self._epochs else -1
        for at, header in scan:
            segment.note_batch(at, header.last_offset, header)
            if header.partition_leader_epoch > latest_epoch:
                latest_epoch = header.partition_leader_epoch
                self._note_epoch(header)
            if header.producer_id >= 0:
                producers.record(header, header.last_offset, _appended_at_ms(header, now_ms))
        self._end_offset = scan.next_offset
        if scan.fault is None:
            segment.checked_from(position)
        return scan

    def _cut(self, number: int, position: int) -> None:
        """End the log at `position` of segment `number`."""
        segments = self._segments
        self._cut_bytes = segments[number].size - position
        # The newest first: a crash on the way leaves a log that is cut again at the same place.
        for doomed in reversed(segments[number + 1 :]):
            self._cut_bytes += doomed.size
            self._discard(doomed)
        del segments[number + 1 :]
        segments[number].cut_file(position)

    def _check_reach(self, log_start_offset: int) -> None:
        end_offset, flushed = self._end_offset, self._checkpoint.recovery_point
        if flushed is not None and end_offset < flushed:
            raise LogDamaged(
                f"{self._directory}: the log ends at offset {end_offset}, but all up to {flushed} was flushed"
            )
        if end_offset < log_start_offset:
            raise LogDamaged(f"{self._directory}: the log ends at {end_offset}, before its start {log_start_offset}")

    def _clear_up(self) -> None:
        """Make removals durable before anything is appended (I2)."""
        has_lost_snapshots = self._snapshots.remove_beyond(self._end_offset)
        if has_lost_snapshots or self._cut_bytes or self._has_removed:
            self._disk.sync_directory(self._directory)
        self._snapshots.keep_only({segment.base_offset for segment in self._segments})

    def _producers_at(self, offset: int) -> ProducerStates:
        return replay_producers(self._snapshots, SegmentList(self._segments), offset, self._options, self._now_ms)

    def _note_epoch(self, header: BatchHeader) -> None:
        if not self._epochs or header.partition_leader_epoch > self._epochs[-1][0]:
            self._epochs.append((header.partition_leader_epoch, header.base_offset))

    def _discard(self, segment: Segment) -> None:
        for path in segment.rename(DELETED):
            self._disk.remove(path)
        self._has_removed = True
