"""The segments of one log in order of their offsets, the last one being appended to.

Rules: order and lookup only. Sealed segments hold their file and indexes open while they are among the few read last.

Invariants: SEGL-1 base offsets strictly increase; SEGL-2 there is at least one segment; SEGL-3 all but the last are
sealed, and each ends where the next begins.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from martlet.base.invariant import invariant
from martlet.log.batch_order import KnownGaps
from martlet.log.log_slice import LogSlice
from martlet.log.segment import Segment
from martlet.log.segment_walks import find_damage_at, next_unchecked

_OPEN_SEALED_MAX: Final = 4


class SegmentList:
    """A sorted list of segments with the last at hand."""

    __slots__ = ("_bases", "_recently_read", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        self._recently_read: list[Segment] = []
        self._set(segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    def sealed(self) -> list[Segment]:
        return self._segments[:-1]

    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def next_unchecked(self, max_bytes: int) -> LogSlice | None:
        """What another process wrote and has yet to be checked, about `max_bytes` of it; None when all is checked."""
        for segment in self._segments:
            piece = next_unchecked(segment, max_bytes)
            if piece is not None:
                if segment.is_sealed:
                    self.used(segment)
                return piece
        return None

    def find_damage_at(self, piece: LogSlice) -> None:
        """Reading this piece has failed: find out what of its segment is damaged, if it is not known yet."""
        for segment in self._segments:
            if piece.file is not None and segment.path == piece.file.path:
                find_damage_at(segment, piece.position)

    def start_again(self, segment: Segment) -> None:
        """Hold this segment and no other."""
        self._set([segment])

    def gaps_are(self, gaps: KnownGaps) -> None:
        """Walks over batches allow these gaps from now on."""
        for segment in self._segments:
            segment.gaps = gaps

    def distrust_sealed(self) -> None:
        """Have all sealed segments checked again."""
        for segment in self._segments[:-1]:
            segment.trust.distrust(segment.size)

    def number_at(self, offset: int) -> int:
        """Number of the segment whose range holds `offset`; the first one for all that lies before."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds `offset` and all after it."""
        return self._segments[self.number_at(offset) :]

    def add(self, segment: Segment) -> None:
        """Begin a new active segment."""
        self._set([*self._segments, segment])

    def remove_first(self) -> Segment:
        gone = self._segments[0]
        self._set(self._segments[1:])
        return gone

    def remove_last(self) -> Segment:
        """Take the active segment away; the one before it becomes the last and is reopened by the caller."""
        gone = self._segments[-1]
        self._set(self._segments[:-1])
        return gone

    def replace(self, sources: list[Segment], replacement: Segment) -> None:
        """Put one segment in place of neighbours that begin where it begins."""
        number = self._segments.index(sources[0])
        invariant(self._segments[number : number + len(sources)] == sources, "the replaced segments are neighbours")
        self._set([*self._segments[:number], replacement, *self._segments[number + len(sources) :]])

    def hold(self, segments: list[Segment]) -> bool:
        """Whether all of these are still in the log."""
        return set(self._segments).issuperset(segments)

    def used(self, segment: Segment) -> None:
        """Note a read from a sealed segment; lets go of the one not read for longest when too many are open."""
        recent = self._recently_read
        if recent and recent[-1] is segment:
            return
        if segment in recent:
            recent.remove(segment)
        recent.append(segment)
        if len(recent) > _OPEN_SEALED_MAX:
            recent.pop(0).release()

    def _set(self, segments: list[Segment]) -> None:
        invariant(segments, "a log has a segment")
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self._recently_read = [segment for segment in self._recently_read if segment in segments]
