"""Producer state and aborted transactions from the batches themselves: after a start, a truncation or damage.

Rules: reads only. What comes out is what appending the same batches one by one has made (PROD-1), except that time is
only known of batches that say when they came. Of a transaction whose marker is damaged the index of aborted
transactions says how it ended, if that was not by a commit.
Proved by: tests/unit/log/test_open_transactions.py, tests/unit/log/test_aborted_transactions.py
"""

from operator import attrgetter
from typing import Final

from martlet.log.aborted_index import AbortedTransaction
from martlet.log.options import FOREVER_MS
from martlet.log.producer_snapshot import ProducerSnapshots
from martlet.log.producer_state import ProducerStates
from martlet.log.segment import Segment
from martlet.log.segment_list import SegmentList
from martlet.log.segment_walks import sound_batches
from martlet.wire.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TransactionMarker,
    crc_matches,
    read_marker,
)

_MARKER_BYTES_MAX: Final = 1024
"""Of a control batch; those of today have some 80."""
_first_offset = attrgetter("first_offset")


class NotedAborts:
    """What a segment's index says, for a walk over its batches that cannot read every marker."""

    __slots__ = ("_left",)

    def __init__(self, segment: Segment, from_offset: int) -> None:
        entries = [] if segment.aborted.is_damaged else segment.aborted.since(from_offset)
        self._left = entries[::-1]

    def before(self, offset: int, producers: ProducerStates) -> list[AbortedTransaction]:
        """The walk goes on at `offset`: those that ended in what it has not seen, now ended in `producers` too."""
        found = []
        while self._left and self._left[-1].last_offset < offset:
            found.append(self._left.pop())
            producers.record_lost_abort(found[-1])
        return found

    def met(self, marker_offset: int) -> None:
        """The walk has read that marker."""
        if self._left and self._left[-1].last_offset == marker_offset:
            self._left.pop()


class ProducerReplay:
    """Owned by one log; reads its snapshots and segments."""

    __slots__ = ("_segments", "_snapshots")

    def __init__(self, snapshots: ProducerSnapshots, segments: SegmentList) -> None:
        self._snapshots = snapshots
        self._segments = segments

    def producers_at(self, end_offset: int, now_ms: int, *, expiration_ms: int = FOREVER_MS) -> ProducerStates:
        """Producer state at `end_offset`: the newest snapshot before it and the batches since."""
        offset, producers = self._snapshots.load_latest(up_to_offset=end_offset) or (0, ProducerStates())
        producers.expire(now_ms, expiration_ms)
        if offset >= end_offset:
            return producers
        for segment in self._segments.from_offset(offset):
            noted = NotedAborts(segment, offset)
            for position, header in sound_batches(segment, offset):
                if header.base_offset >= end_offset:
                    break
                if header.producer_id >= 0 and header.base_offset >= offset and _is_sound(segment, position, header):
                    noted.before(header.base_offset, producers)
                    marker = marker_at(segment, position, header)
                    producers.record(header, header.last_offset, appended_at_ms(header, now_ms), marker)
                    noted.met(header.last_offset)
            noted.before(end_offset, producers)
            if segment.next_offset >= end_offset:
                break
        return producers

    def mend_aborted(self, segment: Segment) -> None:
        """Make the segment's index of aborted transactions again if its file is damaged."""
        if not segment.aborted.is_damaged:
            return
        producers = self.producers_at(segment.base_offset, 0)
        segment.aborted.clear()
        for position, header in sound_batches(segment, segment.base_offset):
            if header.producer_id >= 0 and _is_sound(segment, position, header):
                aborted = producers.record(header, header.last_offset, 0, marker_at(segment, position, header))
                if aborted is not None:
                    segment.aborted.add(aborted)
        segment.files.save_indexes()

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Those with data below `to_offset` and a marker at `from_offset` or later, by first offset."""
        found: dict[int, AbortedTransaction] = {}
        for segment in self._segments.from_offset(from_offset):
            self.mend_aborted(segment)
            for aborted in segment.aborted.since(from_offset):
                if aborted.first_offset < to_offset:
                    found[aborted.last_offset] = aborted
                if aborted.last_stable_offset >= to_offset:
                    return sorted(found.values(), key=_first_offset)
        return sorted(found.values(), key=_first_offset)


def _is_sound(segment: Segment, position: int, header: BatchHeader) -> bool:
    """Whether a batch is not of a transaction, or matches its checksum: a wrong one would hold readers back."""
    if not header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
        return True
    content = segment.file.pread(header.size, position)
    return len(content) == header.size and crc_matches(content, 0, header)


def marker_at(segment: Segment, position: int, header: BatchHeader) -> TransactionMarker | None:
    """The marker in the batch of this header, if it is a control batch."""
    if not header.attributes & CONTROL_BIT:
        return None
    return read_marker(segment.file.pread(min(header.size, _MARKER_BYTES_MAX), position))


def appended_at_ms(header: BatchHeader, now_ms: int) -> int:
    """When a batch came, as far as it says so; now is on the safe side of expiring its producer."""
    return header.max_timestamp if header.uses_log_append_time else now_ms
