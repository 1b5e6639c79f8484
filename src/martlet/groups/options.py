"""The limits and times of the groups machine; the broker fills them from its settings."""

from dataclasses import dataclass


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
    group_id_bytes_max: int = 4_096
    topics_per_member_max: int = 10_000
