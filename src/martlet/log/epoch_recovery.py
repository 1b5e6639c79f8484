"""The leader epochs of a log being opened, from the file that remembers them and the batches that prove them.

Rules: batches that were checked count more than the file, the file more than nothing. Entries without records can only
come from the file, so they are kept wherever the batches allow them.

How it works: the file is complete for everything below the recovery point. Above it stands what the checked batches
say. What the file says beyond that may speak of batches that are lost. When the file is missing, damaged, or begins
after the log does, the headers of the batches in question are read.
Proved by: tests/unit/log/test_recovery.py, tests/properties/test_log_model.py
"""

from martlet.base.disk import Disk
from martlet.log.checkpoints import BrokenCheckpoint, decode_epochs
from martlet.log.epoch_cache import EpochCache
from martlet.log.file_names import EPOCH_CHECKPOINT
from martlet.log.rebuilt_files import read_rebuilt
from martlet.log.segment_list import SegmentList
from martlet.log.segment_walks import sound_batches

Entries = list[tuple[int, int]]


def recover_epochs(
    disk: Disk,
    directory: str,
    segments: SegmentList,
    found: Entries,
    *,
    checked: tuple[int, int],
    log_start_offset: int,
) -> EpochCache:
    """The epochs of a log of which the batches from one offset to another were checked and have those `found`."""
    first_offset, end_offset = checked
    on_disk = read_epochs(disk, directory)
    known = [entry for entry in on_disk if entry[1] <= first_offset]
    if known and found and known[-1][0] > found[0][0]:
        # The file contradicts the log: it is damaged.
        known = []
    known_from = known[0][1] if known else first_offset
    if known_from > log_start_offset:
        # Nothing is known of the beginning: the file is missing, or deleted records are back because where the log
        # starts was not yet on disk.
        known = _walk_epochs(segments, log_start_offset, known_from) + known
    epochs = EpochCache()
    for epoch, start_offset in sorted(known + found + _silent(on_disk, found, end_offset)):
        if epoch > epochs.latest_epoch:
            epochs.assign(epoch, start_offset)
    epochs.truncate_from_start(log_start_offset)
    epochs.changes, epochs.saved_changes = 0, 0 if [*map(tuple, epochs.entries)] == on_disk else -1
    return epochs


def _silent(on_disk: Entries, found: Entries, end_offset: int) -> Entries:
    """Entries of leaders that wrote nothing: where they begin, a later one wrote the next record, or none has yet."""
    latest = found[-1][0] if found else -1
    return [
        (epoch, start)
        for epoch, start in on_disk
        if (start == end_offset and epoch > latest) or any(later > epoch and begin == start for later, begin in found)
    ]


def read_epochs(disk: Disk, directory: str) -> Entries:
    """What the file remembers; nothing when it is missing or damaged."""
    try:
        return decode_epochs(read_rebuilt(disk, f"{directory}/{EPOCH_CHECKPOINT}") or b"")
    except BrokenCheckpoint:
        return []


def _walk_epochs(segments: SegmentList, start_offset: int, end_offset: int) -> Entries:
    """The epochs of the batches from `start_offset` to `end_offset`, from the batches themselves."""
    epochs: Entries = []
    for segment in segments.from_offset(start_offset):
        for _, header in sound_batches(segment, start_offset):
            if header.base_offset >= end_offset:
                return epochs
            if header.partition_leader_epoch > (epochs[-1][0] if epochs else -1):
                epochs.append((header.partition_leader_epoch, header.base_offset))
    return epochs
