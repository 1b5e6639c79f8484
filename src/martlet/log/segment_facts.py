"""What the sound batches of one segment say, and whether its neighbours and its helper files agree with that.

Rules: pure; `check` reads the files and words the findings.

How it works: a leader epoch is not covered by a batch's checksum and may only rise. Inside a segment the survey sees to
that; here it is asked from one segment to the next, and of the last batch of all. Of two that contradict each other the
one is at fault that also contradicts its other neighbour.

Proved by: tests/unit/log/test_check.py
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from martlet.log.aborted_index import decode_aborted
from martlet.log.batch_survey import Damage
from martlet.wire.batch import BatchHeader, TransactionMarker

_INDEX_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")


class Place(NamedTuple):
    """A batch and where it is."""

    path: str
    position: int
    header: BatchHeader

    @property
    def epoch(self) -> int:
        return self.header.partition_leader_epoch


@dataclass(slots=True)
class SegmentFacts:
    """Grows while the segment is surveyed."""

    path: str
    base_offset: int
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    """Greatest timestamp of the batch that ends at a relative offset and begins at a position."""
    latest: tuple[int, int] = (-1, 0)
    """The greatest timestamp and the relative offset of the first batch that has it."""
    damage: Sequence[Damage] = ()
    was_cut: bool = False
    """Whether the log was cut and the indexes perhaps not yet."""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Each epoch that is later than those before, with its first offset."""
    first: list[Place] = field(default_factory=list)
    """Up to two batches at the beginning."""
    last: list[Place] = field(default_factory=list)
    """Up to two batches at the end."""

    def take(self, position: int, header: BatchHeader) -> None:
        """The next sound batch."""
        relative, timestamp = header.last_offset - self.base_offset, header.max_timestamp
        self.places[relative, position] = timestamp
        if timestamp > self.latest[0]:
            self.latest = (timestamp, relative)
        if not self.epochs or header.partition_leader_epoch > self.epochs[-1][0]:
            self.epochs.append((header.partition_leader_epoch, header.base_offset))
        place = Place(self.path, position, header)
        if len(self.first) < 2:
            self.first.append(place)
        self.last = [*self.last[-1:], place]

    def faulty_indexes(self, index: bytes, times: bytes, *, is_sealed: bool, must_be_whole: bool) -> tuple[bool, bool]:
        """Whether the offset index and the time index disagree with the batches or with each other."""
        entries = list(_INDEX_ENTRY.iter_unpack(index[: len(index) // 8 * 8]))
        time_entries = list(_TIME_ENTRY.iter_unpack(times[: len(times) // 12 * 12]))
        known = {(timestamp, relative) for (relative, _), timestamp in self.places.items()}
        wrong_index = len(index) % 8 > 0 or any(
            entry not in self.places and not self.may_be_wrong(entry[0] + self.base_offset) for entry in entries
        )
        wrong_times = len(times) % 12 > 0 or any(
            entry not in known and not self.may_be_wrong(entry[1] + self.base_offset) for entry in time_entries
        )
        if must_be_whole:
            # Both get their entries together; sealing adds one more to the time index.
            ends_at = entries[-1][0] if entries else -1
            paired = known.intersection(time_entries[:-1] if is_sealed else time_entries)
            wrong_index = wrong_index or any(relative > ends_at for _, relative in paired)
            wrong_times = wrong_times or self._lacks_time(time_entries, None if is_sealed else ends_at)
        return wrong_index, wrong_times

    def _lacks_time(self, time_entries: list[tuple[int, int]], ends_at: int | None) -> bool:
        """Whether the greatest timestamp, of all batches or of those up to `ends_at`, has no entry."""
        if self.damage:
            return not time_entries and bool(self.places) and ends_at is None
        stamps = [
            timestamp for (relative, _), timestamp in self.places.items() if ends_at is None or relative <= ends_at
        ]
        return bool(stamps) and max(stamps) not in (timestamp for timestamp, _ in time_entries)

    def may_be_wrong(self, offset: int) -> bool:
        """Whether an entry of that offset says nothing about the index."""
        if self.was_cut and offset >= self.last[-1].header.next_offset:
            return True
        return any(damage.covers(offset) for damage in self.damage)


class AbortedFacts:
    """Which transactions the markers of a partition have aborted; fed with all its batches, segment by segment."""

    __slots__ = ("_open", "aborts", "expected")

    def __init__(self) -> None:
        self._open: set[int] = set()
        self.expected: set[tuple[int, int]] = set()
        """Producer and marker of the transactions with data that this segment's markers have aborted."""
        self.aborts: set[tuple[int, int]] = set()
        """Producer and offset of all abort markers of this segment."""

    def begin_segment(self) -> None:
        self.expected, self.aborts = set(), set()

    def take(self, header: BatchHeader, marker: TransactionMarker | None) -> None:
        """The next sound batch, with the marker it holds."""
        producer_id = header.producer_id
        if marker is not None:
            if not marker.is_commit:
                self.aborts.add((producer_id, header.last_offset))
                if producer_id in self._open:
                    self.expected.add((producer_id, header.last_offset))
            self._open.discard(producer_id)
        elif header.is_transactional and not header.is_control and header.record_count:
            self._open.add(producer_id)

    def fault(self, content: bytes, *, may_be_wrong: Callable[[int], bool], must_be_whole: bool) -> str | None:
        """Why the segment's index of aborted transactions cannot be right; `content` is empty for no file."""
        entries = decode_aborted(content) if content else []
        if entries is None:
            return "its checksum does not match" if must_be_whole else None
        found = {(entry.producer_id, entry.last_offset) for entry in entries}
        if must_be_whole and not self.expected <= found:
            return "it lacks aborted transactions"
        if any(not may_be_wrong(marker[1]) for marker in found - self.aborts):
            return "it does not agree with the messages"
        return None


def misplaced_epochs(segments: Sequence[SegmentFacts], latest_epoch: int | None) -> Iterator[tuple[Place, str]]:
    """The batches at the ends of segments whose leader epoch cannot be, and why; `latest_epoch` if it is known."""
    filled = [facts for facts in segments if facts.first]
    for facts, following in pairwise(filled):
        last, first = facts.last[-1], following.first[0]
        if last.epoch > first.epoch:
            before, after = facts.last[:-1], following.first[1:]
            is_last = not after or bool(before and before[0].epoch <= first.epoch) or after[0].epoch < last.epoch
            yield (last if is_last else first), f"leader epoch {last.epoch} comes before {first.epoch}"
    if filled and latest_epoch is not None:
        last, before = filled[-1].last[-1], filled[-1].last[:-1]
        if last.epoch > latest_epoch >= (before[0].epoch if before else 0):
            yield last, f"leader epoch {last.epoch} comes after {latest_epoch}, the latest that was noted"
