"""What can be set for one partition's log; the values of a topic's configuration that storage cares about.

Only values live here. Names, texts and checks of the settings are `martlet.configs.effective`; a changed
configuration reaches a log through `PartitionLog.update_options`.
"""

from dataclasses import dataclass
from typing import Final

_DAY_MS: Final = 86_400_000
FOREVER_MS: Final = (1 << 63) - 1

UNLIMITED: Final = -1
"""A retention that deletes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """One log's settings, with Kafka's defaults."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    """A segment is sealed up to this much earlier than after `segment_ms`."""
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = UNLIMITED
    max_message_bytes: int = 1_048_588
    delete: bool = True
    compact: bool = False
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER_MS
    min_cleanable_dirty_ratio: float = 0.5
    log_append_time: bool = False
    timestamp_before_max_ms: int = FOREVER_MS
    timestamp_after_max_ms: int = 3_600_000
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = _DAY_MS
    compression: int | None = None
    """The codec that every batch shall have; None leaves each as its producer made it."""
    compression_level: int | None = None
    """How hard that codec tries; None for what it does by itself."""

    @property
    def bounds_past_timestamps(self) -> bool:
        """Whether records may be too old, which only reading each of them tells."""
        return not self.log_append_time and self.timestamp_before_max_ms < FOREVER_MS
