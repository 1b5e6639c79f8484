"""Filters that narrow what is read: on topic, partition, offset and timestamp.

Rules: a filter is taken only if narrowing does all of its work; a filter that merely helps is used and left to Spark.

How it works: conditions on topic, partition and offset choose ranges exactly. `timestamp >= t` moves a range's start
to its first message of that time or later: those before are all older. Messages need not be in order of time, so
later ones may be older too, and no range ends early because of a time; Spark looks at each message again.

Proved by: tests/unit/spark/test_push_down.py, tests/spark/test_batch_reading.py
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from martlet.client.cluster import Cluster
from martlet.client.offsets import list_offsets
from martlet.spark.ranges import OffsetRange

_NEVER_NULL = frozenset({"topic", "partition", "offset"})


@dataclass(slots=True)
class Narrowing:
    """What the filters taken so far leave to be read."""

    topics: set[str] | None = None
    partitions: set[int] | None = None
    offset_min: int = 0
    offset_end: int | None = None
    partition_min: int = 0
    partition_end: int | None = None
    not_before_ms: int | None = None
    nothing: bool = field(default=False)

    def take(self, offered: Filter) -> bool:
        """Use a filter as far as it goes; True when nothing of it is left for Spark to check."""
        attribute: tuple[str, ...] = getattr(offered, "attribute", ())
        if len(attribute) != 1:
            return False
        column = attribute[0]
        if isinstance(offered, IsNotNull):
            return column in _NEVER_NULL
        if column == "timestamp":
            self._take_instant(offered)
            return False
        if isinstance(offered, EqualTo | In):
            return self._take_values(column, {offered.value} if isinstance(offered, EqualTo) else {*offered.value})
        return column in ("offset", "partition") and self._take_bound(column, offered)

    def _take_values(self, column: str, values: set[object]) -> bool:
        if column == "topic":
            topics = {value for value in values if isinstance(value, str)}
            self.topics = topics if self.topics is None else self.topics & topics
            return True
        numbers = {value for value in values if isinstance(value, int)}
        if column == "partition":
            self.partitions = numbers if self.partitions is None else self.partitions & numbers
            return True
        if column == "offset" and len(numbers) <= 1:
            only = min(numbers, default=None)
            self.nothing = self.nothing or only is None
            self._at_least("offset", only or 0)
            self._before("offset", (only or 0) + 1)
            return True
        return False

    def _take_bound(self, column: str, offered: Filter) -> bool:
        value = getattr(offered, "value", None)
        if not isinstance(value, int):
            return False
        if isinstance(offered, GreaterThan | GreaterThanOrEqual):
            self._at_least(column, value + isinstance(offered, GreaterThan))
            return True
        if isinstance(offered, LessThan | LessThanOrEqual):
            self._before(column, value + isinstance(offered, LessThanOrEqual))
            return True
        return False

    def _at_least(self, column: str, bound: int) -> None:
        if column == "offset":
            self.offset_min = max(self.offset_min, bound)
        else:
            self.partition_min = max(self.partition_min, bound)

    def _before(self, column: str, bound: int) -> None:
        if column == "offset":
            self.offset_end = bound if self.offset_end is None else min(self.offset_end, bound)
        else:
            self.partition_end = bound if self.partition_end is None else min(self.partition_end, bound)

    def _take_instant(self, offered: Filter) -> None:
        value = getattr(offered, "value", None)
        if isinstance(offered, GreaterThan | GreaterThanOrEqual | EqualTo) and isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.astimezone(UTC)
            instant_ms = max(0, int(aware.timestamp() * 1000))
            self.not_before_ms = max(self.not_before_ms or 0, instant_ms)

    def applied_to(self, wanted: OffsetRange) -> OffsetRange | None:
        """The part of a range that can hold messages which pass; None when there is none."""
        partition = wanted.partition
        if self.nothing or (self.topics is not None and partition.topic not in self.topics):
            return None
        if self.partitions is not None and partition.partition not in self.partitions:
            return None
        if partition.partition < self.partition_min:
            return None
        if self.partition_end is not None and partition.partition >= self.partition_end:
            return None
        end = wanted.end if self.offset_end is None else min(wanted.end, self.offset_end)
        narrowed = OffsetRange(partition, max(wanted.start, self.offset_min), end)
        return narrowed if len(narrowed) else None


async def narrow(cluster: Cluster, ranges: Sequence[OffsetRange], narrowing: Narrowing) -> list[OffsetRange]:
    """The ranges, as far as the filters leave them."""
    left = [narrowed for wanted in ranges if (narrowed := narrowing.applied_to(wanted)) is not None]
    if narrowing.not_before_ms is None or not left:
        return left
    found = await list_offsets(cluster, {wanted.partition: narrowing.not_before_ms for wanted in left})
    moved = []
    for wanted in left:
        first = found[wanted.partition].offset
        # No message that young: none of this partition passes.
        start = wanted.end if first < 0 else max(wanted.start, first)
        moved.append(OffsetRange(wanted.partition, start, wanted.end))
    return [wanted for wanted in moved if len(wanted)]
