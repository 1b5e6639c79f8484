"""How a segment that was found on disk becomes one that is appended to: after a clean stop, a crash or a truncation.

Rules: called by the recovery and by the log, before anything is appended. What index files hold is a help and never the
truth (SEG-2): a walk begins at a place that a batch in the log file confirms, else at the segment's beginning.
Proved by: tests/unit/log/test_segment.py, tests/unit/log/test_recovery.py
"""

from typing import Final

from martlet.log.batch_order import NO_LIMIT
from martlet.log.known_batches import KnownBatches
from martlet.log.offset_index import OffsetIndex
from martlet.log.segment import Segment
from martlet.log.segment_walks import end_before
from martlet.log.time_index import TimeIndex

_SMALL_BYTES: Final = 8192
"""The indexes of a segment of this size are not read but made again."""


def last_indexed(segment: Segment) -> tuple[int, int]:
    """Position and base offset of the last batch with an entry, or of the segment's start; reads ends of files."""
    if segment.size <= _SMALL_BYTES:
        return 0, segment.base_offset
    entry = segment.files.last_offset_entry()
    place = segment.find_place(entry[1]) if entry is not None and entry[1] >= 0 else None
    if entry is None or place is None or place.last_offset != segment.base_offset + entry[0]:
        return 0, segment.base_offset
    return place.position, place.base_offset


def resume(segment: Segment, position: int, first_offset: int) -> None:
    """Make this the segment to append to, as a clean stop left it; the indexes stay unread until needed.

    The arguments are what `last_indexed` said. A small segment's indexes are not read but made again.
    """
    segment.is_sealed = False
    segment.known = KnownBatches(segment.base_offset)
    segment.next_offset = NO_LIMIT
    latest = segment.files.last_time_entry() if position else None
    if latest is None:
        segment.files.start_indexes()
        _note_all_from(segment, 0, segment.base_offset)
        return
    segment.known.max_timestamp = latest.timestamp_ms
    segment.known.max_timestamp_offset = segment.base_offset + latest.relative_offset
    segment.known.is_max_proven = False
    _note_all_from(segment, position, first_offset)


def start_recovery(segment: Segment, trusted_offset: int) -> tuple[int, int]:
    """Forget what cannot be trusted after a crash; returns position and base offset to check batches from.

    Trusted are batches below `trusted_offset` and the index entries for them. The end of the time index may be
    missing, which cannot be seen from what is there, so checking begins at its last entry if that is earlier. The
    caller gives every batch it finds sound to `note_batch`.
    """
    segment.is_sealed = False
    segment.known = KnownBatches(segment.base_offset)
    segment.trust.note_damage(())
    segment.next_offset = NO_LIMIT
    if trusted_offset <= segment.base_offset:
        segment.files.start_indexes()
        segment.next_offset = segment.base_offset
        return 0, segment.base_offset
    index, times = segment.files.read_indexes(log_bytes=segment.size, check=True)
    last = times.last()
    index.truncate_offsets(min(trusted_offset - segment.base_offset, 0 if last is None else last.relative_offset + 1))
    position, first_offset = _continue_after(segment, index, times)
    segment.next_offset = first_offset
    return position, first_offset


def reopen_damaged(segment: Segment, next_offset: int) -> None:
    """Make this the segment to append to, the next batch at `next_offset`, whatever is damaged before that."""
    segment.is_sealed = False
    segment.next_offset = next_offset
    segment.survey_damage()


def cut_file(segment: Segment, position: int) -> None:
    """End the log file at `position`, durably."""
    segment.file.truncate(position)
    segment.file.sync()
    segment.size = position
    segment.trust.cut(position)


def truncate(segment: Segment, position: int) -> None:
    """Drop the batches from `position` on, durably, and go on appending there."""
    end_offset = end_before(segment, position)
    cut_file(segment, position)
    reopen(segment, position)
    segment.next_offset = end_offset
    segment.aborted.truncate(end_offset)
    segment.files.save_indexes()


def reopen(segment: Segment, position: int) -> None:
    """Make this a segment to append to, its last batch ending at `position`; reads from the last entry on."""
    segment.is_sealed = False
    segment.known = KnownBatches(segment.base_offset)
    segment.size, segment.next_offset = position, NO_LIMIT
    index, times = segment.index, segment.times
    index.truncate(position)
    _note_all_from(segment, *_continue_after(segment, index, times))


def begin_again(segment: Segment) -> tuple[int, int]:
    """Forget all that walks have found out; position and base offset to check batches from."""
    segment.known = KnownBatches(segment.base_offset)
    segment.trust.note_damage(())
    segment.files.start_indexes()
    return 0, segment.base_offset


def _continue_after(segment: Segment, index: OffsetIndex, times: TimeIndex) -> tuple[int, int]:
    """Make the last entry of `index` the place to go on from; position and base offset of its batch.

    Without a sound last entry the indexes begin again, and so does the walk over the segment.
    """
    if index.positions:
        place = segment.find_place(index.positions[-1])
        latest = times.truncate(index.offsets[-1] + 1)
        is_sound = place is not None and place.last_offset == segment.base_offset + index.offsets[-1]
        is_sound = is_sound and latest is not None and segment.is_true_time(*latest) and segment.files.offsets is index
        if place is not None and is_sound and latest is not None:
            segment.known.max_timestamp = latest.timestamp_ms
            segment.known.max_timestamp_offset = segment.base_offset + latest.relative_offset
            index.truncate(place.position)
            segment.known.unindexed_bytes = segment.index_interval_bytes + 1
            return place.position, place.base_offset
    return begin_again(segment)


def _note_all_from(segment: Segment, position: int, first_offset: int) -> None:
    scan = segment.scan(position, next_offset=first_offset)
    for place, header in scan:
        segment.note_batch(place, header.last_offset, header)
    if scan.fault is not None:
        segment.survey_all()
    if segment.size == 0:
        segment.next_offset = segment.base_offset
