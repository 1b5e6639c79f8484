"""What can be set for share groups and their membership; names follow Kafka's settings, with dots as underscores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class ShareTimes(NamedTuple):
    """The times of one share group, which it may set itself."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions:
    """Of all share groups of a broker."""

    max_size: int = 200
    """Members of one group."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    times_of: Callable[[str], ShareTimes | None] = lambda group_id: None
    """What a group sets itself; None is nothing. Asked with every heartbeat, since it may change."""
    group_id_bytes_max: int = 4_096
    topics_per_member_max: int = 10_000
    member_metadata_bytes_max: int = 1_048_576
    """Characters of the ids and topic names that one member may bring."""

    def times(self, group_id: str) -> ShareTimes:
        """The times in force for a group."""
        return self.times_of(group_id) or ShareTimes(self.session_timeout_ms, self.heartbeat_interval_ms)
