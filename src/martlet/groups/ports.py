"""What the groups machine and the broker share: the caller, options, a view of the topics, the words of listings.

Only shapes live here. The broker fills them from its settings and its image of the cluster.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from martlet.base.ids import TopicId
from martlet.groups.share.options import ShareOptions

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
TYPES = frozenset((CLASSIC, CONSUMER, SHARE))

EMPTY = "Empty"
STABLE = "Stable"
DEAD = "Dead"
STATES = frozenset(("empty", "stable", "dead", "preparingrebalance", "completingrebalance", "assigning", "reconciling"))
"""What filters by state can find, in small letters."""


class Caller(NamedTuple):
    """The client behind a request and the version of the API it used."""

    client_id: str
    client_host: str
    """As shown by tools: a slash and the address, like "/127.0.0.1"."""
    version: int


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
    """A regular expression is matched again against the topics at least this often."""
    consumer_times_of: Callable[[str], ConsumerTimes | None] = lambda group_id: None
    """What a group sets itself; None is nothing. Asked with every heartbeat, since it may change."""
    group_id_bytes_max: int = 4_096
    topics_per_member_max: int = 10_000
    share: ShareOptions = field(default_factory=ShareOptions)

    def consumer_times(self, group_id: str) -> ConsumerTimes:
        """The times in force for a KIP-848 group."""
        return self.consumer_times_of(group_id) or ConsumerTimes(
            self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms, 0
        )


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic; `racks` holds, for each partition, the racks its replicas stand in (empty: none known)."""

    id: TopicId
    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()


class TopicsView(Protocol):
    """The topics that exist now."""

    def topic(self, name: str) -> TopicView | None: ...

    def topic_by_id(self, topic_id: TopicId) -> TopicView | None: ...

    def names(self) -> Iterable[str]:
        """Names of all topics a client may subscribe to (internal ones excluded)."""
        ...
