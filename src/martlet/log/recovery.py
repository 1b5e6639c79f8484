"""Opening a log: which segments there are, how far they can be trusted, and what follows from their batches.

Rules: runs once per log before anybody uses it. After a clean stop it reads a few small files and the end of the last
segment, however much the log holds. After a crash it also reads everything past the recovery point.

How it works. Below the recovery point everything was synced and has been acknowledged; past it, pages may be missing,
zero or torn, and whole files may be gone. So the batches past it are checked one by one, and at the first that does not
hold the log is cut, later segments included. A fault below it is damage to acknowledged data: the log does not open.
The same goes for any fault after a clean stop. When the recovery point itself cannot be read, only the very end of the
log may be cut.

Invariants: (1) nothing below the recovery point is ever cut; (2) what is cut, and snapshots of it, are gone durably
before the log is used; (3) producer state and epochs are those of the batches that are left.
Proved by: tests/unit/log/test_recovery.py, tests/properties/test_log_model.py
"""

from itertools import pairwise
from typing import Final, NamedTuple

from martlet.base.disk import Disk
from martlet.base.errors import StorageFailure
from martlet.base.ids import TopicPartition
from martlet.log.batch_scan import BatchScan
from martlet.log.checkpoints import BrokenCheckpoint, decode_epochs, decode_offsets
from martlet.log.compaction_swap import finish_swaps
from martlet.log.epoch_cache import EpochCache
from martlet.log.file_names import DELETED, EPOCH_CHECKPOINT, LOG, SNAPSHOT, parse_offset_file
from martlet.log.options import LogOptions
from martlet.log.producer_snapshot import ProducerSnapshots
from martlet.log.producer_state import ProducerStates
from martlet.log.segment import Segment
from martlet.log.segment_list import SegmentList

_NEVER: Final = 1 << 63


class LogCheckpoint(NamedTuple):
    """What the log directory's checkpoints say of a log; `recovery_point` None means that it is not known."""

    recovery_point: int | None = 0
    log_start_offset: int = 0
    cleaned_offset: int = 0
    is_clean: bool = False


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
    is_new: bool


class _Examined(NamedTuple):
    """The result of checking batches: where the log ends and which epochs the checked batches have."""

    end_offset: int
    first_offset: int
    epochs: list[tuple[int, int]]
    sealed: list[Segment]
    cut_bytes: int


def apply_floor(checkpoint: LogCheckpoint, content: bytes, partition: TopicPartition) -> LogCheckpoint:
    """What holds after a truncation that the checkpoints may not know of; the floor's file says how deep it went."""
    try:
        floor = decode_offsets(content)[partition]
    except (BrokenCheckpoint, KeyError):
        return checkpoint._replace(recovery_point=None, cleaned_offset=0)
    recovery_point = None if checkpoint.recovery_point is None else min(checkpoint.recovery_point, floor)
    return checkpoint._replace(
        recovery_point=recovery_point,
        log_start_offset=min(checkpoint.log_start_offset, floor),
        cleaned_offset=min(checkpoint.cleaned_offset, floor),
    )


def load_log(disk: Disk, directory: str, options: LogOptions, checkpoint: LogCheckpoint, now_ms: int) -> LoadedLog:
    """Everything of a partition's directory; raises StorageFailure when acknowledged data is damaged or missing."""
    finish_swaps(disk, directory)
    segments, snapshot_offsets, has_removed = _take_stock(disk, directory, options, checkpoint.log_start_offset)
    snapshots = ProducerSnapshots(disk, directory, snapshot_offsets)
    is_new = not segments
    if is_new:
        segments = [_first_segment(disk, directory, options, checkpoint)]
    examined = _examine(disk, directory, segments, checkpoint)
    if snapshots.remove_beyond(examined.end_offset) or examined.cut_bytes or has_removed:
        disk.sync_directory(directory)
    snapshots.keep_only({segment.base_offset for segment in segments})
    known = SegmentList(segments)
    log_start_offset = max(checkpoint.log_start_offset, segments[0].base_offset)
    if log_start_offset > examined.end_offset:
        raise StorageFailure(f"{directory}: ends at {examined.end_offset}, before its start {log_start_offset}")
    epochs = _load_epochs(disk, directory, known, examined, log_start_offset)
    flushed_offset = examined.end_offset
    if not checkpoint.is_clean:
        flushed_offset = min(examined.end_offset, max(log_start_offset, checkpoint.recovery_point or 0))
    return LoadedLog(
        segments=known,
        epochs=epochs,
        producers=replay_producers(snapshots, known, examined.end_offset, options, now_ms),
        snapshots=snapshots,
        log_start_offset=log_start_offset,
        end_offset=examined.end_offset,
        flushed_offset=flushed_offset,
        newly_sealed=examined.sealed,
        cut_bytes=examined.cut_bytes,
        is_new=is_new,
    )


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
            if header.producer_id >= 0 and header.base_offset >= offset:
                # When a batch came is only known if it says so; now is on the safe side of expiring its producer.
                appended_at_ms = header.max_timestamp if header.uses_log_append_time else now_ms
                producers.record(header, header.last_offset, appended_at_ms)
    return producers


def _take_stock(
    disk: Disk, directory: str, options: LogOptions, log_start_offset: int
) -> tuple[list[Segment], list[int], bool]:
    """Segments and snapshots in the directory; removes what was deleted before, and tells whether there was any."""
    segments, snapshots, has_removed = [], [], False
    for name, is_directory, size in disk.list_directory(directory):
        parsed = None if is_directory else parse_offset_file(name)
        if parsed is None:
            continue
        offset, suffix = parsed
        if suffix.endswith(DELETED):
            disk.remove(f"{directory}/{name}")
            has_removed = True
        elif suffix == LOG:
            interval = options.index_interval_bytes
            segments.append(Segment(disk, directory, offset, size=size, index_interval_bytes=interval))
        elif suffix == SNAPSHOT:
            snapshots.append(offset)
    while len(segments) > 1 and segments[1].base_offset <= log_start_offset:
        # Deleted, but the removal did not survive a crash.
        for path in segments.pop(0).rename(DELETED):
            disk.remove(path)
        has_removed = True
    for segment, following in pairwise(segments):
        segment.is_sealed = True
        segment.next_offset = following.base_offset
    if segments:
        segments[-1].next_offset = _NEVER
    return segments, snapshots, has_removed


def _first_segment(disk: Disk, directory: str, options: LogOptions, checkpoint: LogCheckpoint) -> Segment:
    start = checkpoint.log_start_offset
    if checkpoint.recovery_point is not None and checkpoint.recovery_point > start:
        raise StorageFailure(f"{directory}: no segments, though offsets up to {checkpoint.recovery_point} were flushed")
    return Segment.create(disk, directory, start, index_interval_bytes=options.index_interval_bytes)


def _examine(disk: Disk, directory: str, segments: list[Segment], checkpoint: LogCheckpoint) -> _Examined:
    """Check the batches that may have suffered; shortens `segments` when the log must be cut."""
    trusted = _NEVER if checkpoint.is_clean else checkpoint.recovery_point or 0
    number = len(segments) - 1
    # A segment that ends at the recovery point was perhaps sealed after it: its batches are safe, its indexes may lack
    # their ends.
    while number > 0 and segments[number].base_offset >= trusted:
        number -= 1
    last = segments[-1]
    position, first_offset = last.last_indexed() if checkpoint.is_clean else segments[number].start_before(trusted)
    end_offset, cut_bytes = first_offset, 0
    epochs: list[tuple[int, int]] = []
    sealed: list[Segment] = []
    while number < len(segments):
        segment = segments[number]
        scan = segment.scan(position, next_offset=end_offset, check_crc=True)
        _gather_epochs(scan, epochs)
        end_offset = scan.next_offset
        is_last = number == len(segments) - 1
        fault = scan.fault
        if fault is None and not is_last and segments[number + 1].base_offset != end_offset:
            fault = f"the next segment begins at {segments[number + 1].base_offset}"
        if fault is not None:
            if end_offset < trusted or (checkpoint.recovery_point is None and not is_last):
                raise segment.damage(scan.position, end_offset, fault)
            cut_bytes = _cut(disk, segments, number, scan)
        else:
            if checkpoint.is_clean:
                segment.resume()
                break
            segment.reopen(segment.size, trust_times=False)
            if not is_last:
                segment.seal(end_offset)
                sealed.append(segment)
            segment.persist_indexes()
        number, position = number + 1, 0
    if checkpoint.recovery_point is not None and end_offset < checkpoint.recovery_point:
        raise StorageFailure(
            f"{directory}: the log ends at offset {end_offset}, but all up to {checkpoint.recovery_point} was flushed"
        )
    return _Examined(end_offset, first_offset, epochs, sealed, cut_bytes)


def _gather_epochs(scan: BatchScan, epochs: list[tuple[int, int]]) -> None:
    latest = epochs[-1][0] if epochs else -1
    for _, header in scan:
        if header.partition_leader_epoch > latest:
            latest = header.partition_leader_epoch
            epochs.append((latest, header.base_offset))


def _cut(disk: Disk, segments: list[Segment], number: int, scan: BatchScan) -> int:
    """End the log where `scan` stopped, in segment `number`; returns how many bytes that takes away."""
    cut_bytes = segments[number].size - scan.position
    # The newest first: a crash on the way leaves a log that is cut again at the same place.
    for doomed in reversed(segments[number + 1 :]):
        cut_bytes += doomed.size
        for path in doomed.rename(DELETED):
            disk.remove(path)
    del segments[number + 1 :]
    segments[number].truncate(scan.position, trust_times=False)
    return cut_bytes


def _load_epochs(
    disk: Disk, directory: str, segments: SegmentList, examined: _Examined, log_start_offset: int
) -> EpochCache:
    on_disk = _read_epochs(disk, f"{directory}/{EPOCH_CHECKPOINT}") or []
    known = [entry for entry in on_disk if entry[1] <= examined.first_offset]
    if known and examined.epochs and known[-1][0] > examined.epochs[0][0]:
        # The file contradicts the log: it is damaged.
        known = []
    known_from = known[0][1] if known else examined.first_offset
    if known_from > log_start_offset:
        # Nothing is known of the beginning: the file is missing, or deleted records are back because where the log
        # starts was not yet on disk.
        known = _walk_epochs(segments, log_start_offset, known_from) + known
    # A leader that wrote nothing is in no batch, only in the file: where a later one, or nobody, wrote the next record.
    latest = examined.epochs[-1][0] if examined.epochs else -1
    silent = [
        (epoch, start)
        for epoch, start in on_disk
        if (start == examined.end_offset and epoch > latest)
        or any(later > epoch and begin == start for later, begin in examined.epochs)
    ]
    epochs = EpochCache()
    for epoch, start_offset in sorted(known + examined.epochs + silent):
        if epoch > epochs.latest_epoch:
            epochs.assign(epoch, start_offset)
    epochs.truncate_from_start(log_start_offset)
    epochs.changes, epochs.saved_changes = 0, 0 if [*map(tuple, epochs.entries)] == on_disk else -1
    return epochs


def _read_epochs(disk: Disk, path: str) -> list[tuple[int, int]] | None:
    content = disk.read_file(path)
    if content is None:
        return None
    try:
        return decode_epochs(content)
    except BrokenCheckpoint:
        return None


def _walk_epochs(segments: SegmentList, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """The epochs of the batches from `start_offset` to `end_offset`, from the batches themselves."""
    epochs: list[tuple[int, int]] = []
    for segment in segments.from_offset(start_offset):
        position = segment.position_of(start_offset)
        for _, header in segment.scan(position, next_offset=segment.base_offset, check_crc=False):
            if header.base_offset >= end_offset:
                return epochs
            if header.partition_leader_epoch > (epochs[-1][0] if epochs else -1):
                epochs.append((header.partition_leader_epoch, header.base_offset))
    return epochs
