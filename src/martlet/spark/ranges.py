"""Offset ranges: what one task reads. Large ranges are split where that was asked for.

Rules: pure but for the base class that Spark demands of what it sends to tasks.

Invariants:
SPK-17 Splitting loses and repeats nothing: the pieces of a range follow one another from its start to its end.
SPK-18 No piece is empty.

Proved by: tests/unit/spark/test_ranges.py
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from martlet.base.ids import TopicPartition


class OffsetRange(InputPartition):
    """The messages of one partition from `start` to before `end`; Spark pickles it and hands it to a task."""

    def __init__(self, partition: TopicPartition, start: int, end: int) -> None:
        super().__init__((partition.topic, partition.partition, start, end))
        self.partition = partition
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetRange) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"OffsetRange({self.partition}, {self.start}..{self.end})"


def split_ranges(
    ranges: Iterable[OffsetRange], *, pieces_min: int | None = None, piece_max: int | None = None
) -> list[OffsetRange]:
    """At least `pieces_min` pieces, as far as there are messages, and none of more than `piece_max` messages.

    Ranges are cut in proportion to their size, so small ones stay whole.
    """
    whole = [wanted for wanted in ranges if len(wanted)]
    counts = [1 if piece_max is None else -(-len(wanted) // piece_max) for wanted in whole]
    if pieces_min is not None and sum(counts) < pieces_min:
        counts = _at_least(counts, [len(wanted) for wanted in whole], pieces_min)
    pieces: list[OffsetRange] = []
    for wanted, count in zip(whole, counts, strict=True):
        pieces += _cut(wanted, count)
    return pieces


def _at_least(counts: Sequence[int], sizes: Sequence[int], pieces_min: int) -> list[int]:
    """Cut further whichever range has the largest pieces, until there are enough or every piece is one message."""
    grown = list(counts)
    for _ in range(min(pieces_min, sum(sizes)) - sum(grown)):
        largest = max(range(len(grown)), key=lambda row: (sizes[row] / grown[row], -row))
        grown[largest] += 1
    return grown


def _cut(wanted: OffsetRange, count: int) -> list[OffsetRange]:
    size = len(wanted)
    bounds = [wanted.start + size * cut // count for cut in range(count + 1)]
    return [OffsetRange(wanted.partition, start, end) for start, end in pairwise(bounds)]
