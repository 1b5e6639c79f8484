"""Walks over all of a segment that take their time: all sound batches, the end before a place, what has to be checked.

Rules: damage that a walk meets is noted in the segment, and stepped over.
Proved by: tests/unit/log/test_segment.py, tests/unit/log/test_unchecked_bytes.py
"""

from collections.abc import Iterator

from martlet.base.errors import LogDamaged
from martlet.log.batch_order import EPOCH_MAX
from martlet.log.batch_scan import BatchScan
from martlet.log.log_slice import LogSlice
from martlet.log.segment import NO_TIMESTAMP, Segment
from martlet.wire.batch import BatchHeader


def sound_batches(segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """The batches from the one with `offset` on, without those that are damaged."""
    position, due = _start_at(segment, offset) if offset > segment.base_offset else (0, segment.base_offset)
    while position < segment.size:
        damage = segment.trust.next_damage(position, due)
        end = segment.size if damage is None else damage.position
        scan = BatchScan(segment.file, position, end, segment.order(due, segment.next_offset), check_crc=False)
        yield from scan
        if scan.fault is not None:
            if scan.next_offset >= segment.next_offset:
                return
            segment.note_fault(scan.position)
            position, due = _start_at(segment, scan.next_offset)
        elif damage is None:
            return
        else:
            position, due = damage.end, damage.next_offset


def end_before(segment: Segment, position: int) -> int:
    """The offset after the last batch before `position`, where a batch begins or the file ends."""
    at = segment.index.position_up_to(position - 1) if position else 0
    due = segment.place_at(at).base_offset if at else segment.base_offset
    while at < position:
        damage = segment.trust.next_damage(at, due)
        if damage is not None and damage.position == at:
            at, due = damage.end, damage.next_offset
            continue
        place = segment.place_at(at)
        at, due = at + place.size, place.last_offset + 1
    return due


def next_unchecked(segment: Segment, max_bytes: int) -> LogSlice | None:
    """The first batches that have not been checked, about `max_bytes` of them; None when all have been.

    Raises LogDamaged, once, when there are none where they should be.
    """
    unchecked = segment.trust.unchecked
    if _ends_too_early(segment):
        segment.survey_damage()
        raise segment.trust.error_at(segment.size, segment.next_offset, "the file ends too early")
    if unchecked is None or unchecked.checked >= min(unchecked.end, segment.size):
        return None
    start = unchecked.checked
    try:
        stop = segment.cut_before(start + max_bytes, start=start, at_least_one=True)
    except LogDamaged:
        segment.survey_damage()
        raise
    epoch_max = EPOCH_MAX if segment.epochs is None else segment.epochs.epoch_max
    return LogSlice(segment.file, start, stop - start, True, unchecked, segment.gaps, epoch_max)


def first_timestamp(segment: Segment) -> int:
    """The greatest timestamp of the first batch, -1 while empty or when that batch is damaged."""
    if segment.known.first_timestamp is None and segment.size:
        is_sound = segment.find_place(0) is not None
        segment.known.first_timestamp = segment.header_at(0).max_timestamp if is_sound else NO_TIMESTAMP
    return NO_TIMESTAMP if segment.known.first_timestamp is None else segment.known.first_timestamp


def find_damage_at(segment: Segment, position: int) -> None:
    """Find out how far the damage at `position` reaches, which a reader has met."""
    is_known = any(damage.position <= position < damage.end for damage in segment.trust.damage)
    if not is_known or not segment.trust.is_surveyed:
        segment.survey_damage()


def _start_at(segment: Segment, offset: int) -> tuple[int, int]:
    """Where the sound batches from `offset` on begin, and the offset that is due there."""
    try:
        place = segment.find(offset)
    except LogDamaged:
        damage = segment.trust.damage_of(offset)
        if damage is None:
            raise
        return damage.end, damage.next_offset
    return (segment.size, segment.next_offset) if place is None else (place.position, place.base_offset)


def _ends_too_early(segment: Segment) -> bool:
    """Whether all of a sealed segment has been checked, and it does not reach to the next one."""
    if not segment.is_sealed or segment.trust.damage:
        return False
    unchecked = segment.trust.unchecked
    if unchecked is None:
        return segment.size == 0 and segment.gaps.end_of(segment.base_offset) < segment.next_offset
    is_checked = unchecked.checked >= unchecked.end == segment.size
    return is_checked and segment.gaps.end_of(unchecked.next_offset) < segment.next_offset
