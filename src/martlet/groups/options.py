"""The limits and times of the groups machine; the broker fills them from its settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class ConsumerTimes(NamedTuple):
    """The times of one KIP-848 group, which it may set itself; 0 is no interval."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsOptions:
    """Names follow Kafka's settings, with dots as underscores."""

    group_max_size: int = 5_000
    """Members of one classic group."""
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    member_metadata_bytes_max: int = 1_048_576
    """Bytes of protocol metadata, and of one assignment, that one classic member may bring."""
    offset_metadata_max: int = 4_096
    """Characters of the text a client may store with an offset."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    consumer_max_size: int = 5_000
    """Members of one KIP-848 group."""
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""
    consumer_regex_refresh_ms: int = 600_000
    """A regular expression is matched anew against the topics at least this often."""
    consumer_times_of: Callable[[str], ConsumerTimes | None] = lambda group_id: None
    """What a group sets itself; None is nothing. Asked with every heartbeat, since it may change."""
    group_id_bytes_max: int = 4_096
    topics_per_member_max: int = 10_000

    def consumer_times(self, group_id: str) -> ConsumerTimes:
        """The times in force for a KIP-848 group."""
        return self.consumer_times_of(group_id) or ConsumerTimes(
            self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms, 0
        )
