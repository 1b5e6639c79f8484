"""What is known of the batches of a segment without reading: the latest ones, the times, and when an entry is due.

Rules: only what walks over the file or appends have found out; a segment that starts over takes a new one of these.
"""

from typing import Final

from martlet.log.batch_order import NO_LIMIT

UNKNOWN_TIME: Final = -(1 << 63)


class KnownBatches:
    """Owned by one segment, which fills it in."""

    __slots__ = (
        "first_timestamp",
        "is_max_proven",
        "max_timestamp",
        "max_timestamp_offset",
        "recent_base",
        "recent_offsets",
        "recent_positions",
        "unindexed_bytes",
    )

    def __init__(self, base_offset: int) -> None:
        self.recent_offsets: list[int] = []
        """Last offsets of the latest batches, all from `recent_base` on."""
        self.recent_positions: list[int] = []
        self.recent_base = NO_LIMIT
        self.unindexed_bytes = 0
        """Of the batches since the one with the last index entry."""
        self.first_timestamp: int | None = None
        self.max_timestamp = UNKNOWN_TIME
        self.max_timestamp_offset = base_offset
        self.is_max_proven = True
        """Whether the greatest timestamp is that of a batch which has been read."""

    def forget_recent(self) -> None:
        """The latest batches are not at hand any more."""
        self.recent_offsets, self.recent_positions, self.recent_base = [], [], NO_LIMIT
