"""When the last segment of a log is sealed and the next one begins: by size, by reach of its offsets, by age.

Rules: the log asks before it writes a batch; housekeeping asks about segments that nothing is written to any more. What
may fail for want of space comes before anything that changes the log (LOG-3).
Proved by: tests/unit/log/test_partition_log.py, tests/properties/test_log_model.py
"""

from typing import Final
from zlib import crc32

from martlet.log.durability import Durability
from martlet.log.log_parts import LogParts
from martlet.log.options import LogOptions
from martlet.log.segment import NO_TIMESTAMP, POSITION_MAX, RELATIVE_OFFSET_MAX, Segment
from martlet.log.segment_walks import first_timestamp

_UNKNOWN: Final = -(1 << 63)
_NEVER: Final = 1 << 63


class Roller:
    """Owned by one log, which keeps `options` up to date with `use`."""

    __slots__ = ("_active_since_ms", "_durability", "_options", "_parts", "after_ms")

    def __init__(self, parts: LogParts, durability: Durability, options: LogOptions, now_ms: int) -> None:
        self._parts = parts
        self._durability = durability
        self._options = options
        self._active_since_ms = now_ms
        self.after_ms = _UNKNOWN
        """A batch with a later timestamp needs `active_for`, as does one that is too large or too far."""

    def use(self, options: LogOptions) -> None:
        """Judge by these from now on; the index interval counts from the next segment on."""
        self._options = options
        self.after_ms = _UNKNOWN

    def began_again(self, now_ms: int) -> None:
        """The last segment is another one, or has become shorter."""
        self.after_ms = _UNKNOWN
        self._active_since_ms = now_ms

    def active_for(self, size: int, last_offset: int, timestamp_ms: int, now_ms: int) -> Segment:
        """The segment to append a batch to: a new one when the batch is too large, too far or too late for the last."""
        segments = self._parts.segments
        active = segments.active
        if active.trust.ends_damaged(active.size):
            self.roll(now_ms)  # nothing is written behind bytes that a later start could take for anything
        elif active.size:
            first_ms = first_timestamp(active)
            self.after_ms = _NEVER if first_ms == NO_TIMESTAMP else first_ms + self._age_ms(active)
            if (
                active.size + size > min(self._options.segment_bytes, POSITION_MAX)
                or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
                or timestamp_ms > self.after_ms
            ):
                self.roll(now_ms)
        return segments.active

    def roll(self, now_ms: int) -> None:
        """Seal the last segment and begin a new one; nothing happens while the last one has held nothing yet."""
        parts = self._parts
        active = parts.segments.active
        if active.size == 0 and not active.trust.damage:
            return
        end_offset = active.next_offset
        following = self.create_segment(end_offset)
        active.seal(end_offset)
        active.files.save_indexes()
        parts.snapshots.write(end_offset, parts.producers)
        self._durability.sealed(active)
        parts.segments.add(following)
        parts.segments.used(active)
        self._durability.rolled()
        self.began_again(now_ms)

    def maybe_roll(self, now_ms: int) -> bool:
        """Roll a segment that has grown old without new batches to notice it; whether it did."""
        active, options = self._parts.segments.active, self._options
        if active.size == 0:
            return False
        roll_ms = self._age_ms(active)
        if options.compact:
            roll_ms = min(roll_ms, options.max_compaction_lag_ms)
        since_ms = first_timestamp(active)
        if not 0 <= since_ms <= now_ms:
            since_ms = self._active_since_ms
        if now_ms - since_ms <= roll_ms:
            return False
        self.roll(now_ms)
        return True

    def create_segment(self, base_offset: int) -> Segment:
        """A new, empty segment that is not in the log yet."""
        parts = self._parts
        self._durability.names_changed()
        interval, gaps = self._options.index_interval_bytes, parts.gaps.known
        segment = Segment.create(parts.disk, parts.directory, base_offset, index_interval_bytes=interval, gaps=gaps)
        segment.epochs = parts.epochs
        return segment

    def _age_ms(self, segment: Segment) -> int:
        """The age at which a segment is sealed: drawn from its name, so that it is the same each time."""
        options = self._options
        jitter_ms = min(options.segment_jitter_ms, options.segment_ms)
        if not jitter_ms:
            return options.segment_ms
        return options.segment_ms - crc32(f"{self._parts.partition}/{segment.base_offset}".encode()) % jitter_ms
