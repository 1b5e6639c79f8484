"""One partition that is copied from its leader, as the fetchers see it: what they need of it, and what holds it back.

Rules: no task and no clock; `now` is the event loop's time in seconds.

A partition is left out of a request while it pauses after trouble, while under the flush mode `commit` something of it
is not on the device (its next fetch tells the leader what is), and while its copying is throttled.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, TopicId, TopicPartition
from martlet.base.randomness import Randomness
from martlet.log.partition_log import PartitionLog
from martlet.log.replicated_batches import ReplicatedBatches
from martlet.replication.follower import FetchPosition, FollowerLog, FollowerReplica

if TYPE_CHECKING:
    from martlet.broker.following.request import RequestedPartition

PAUSE_SECONDS: Final = 0.02
"""The pause after a first failure; it doubles with each one that follows."""
PAUSE_SECONDS_MAX: Final = 1.0
LONG_AGO: Final = -1e9

PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Answers of a leader that is not as far with the metadata as we are, or further: no news unless they stay."""


class WritableLog(FollowerLog, Protocol):
    """The partition's log, as far as a follower reads and writes it; `FollowedLog` is the real one."""

    @property
    def needs_flush(self) -> bool: ...

    def when_flushed(self, callback: Callable[[], None]) -> bool: ...

    def append(self, batches: ReplicatedBatches, *, now_ms: int) -> None: ...

    def commit(self, leader_high_watermark: int) -> None: ...

    def truncate_to(self, offset: int, now_ms: int) -> None: ...

    def start_at(self, offset: int, now_ms: int) -> None: ...

    def advance_log_start(self, offset: int) -> None: ...


class FollowingPartition(Protocol):
    """A partition, as far as fetchers use it."""

    @property
    def name(self) -> TopicPartition: ...

    @property
    def topic_id(self) -> TopicId: ...

    @property
    def log(self) -> PartitionLog: ...

    @property
    def follower(self) -> FollowerReplica | None: ...

    @property
    def leader_broker(self) -> BrokerId | None: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def offline(self) -> bool: ...

    @property
    def followed_log(self) -> WritableLog: ...


def backoff_seconds(failures: int, randomness: Randomness) -> float:
    """The pause after this number of failures in a row; with chance in it, so that brokers do not act in step."""
    whole = min(PAUSE_SECONDS * (1 << min(failures - 1, 16)), PAUSE_SECONDS_MAX)
    return whole * (0.5 + randomness.fraction() / 2)


class Followed:
    """Owned by the fetcher of the partition's leader, from one change of its role to the next."""

    __slots__ = (
        "awaits_flush",
        "copied_at",
        "failures",
        "flush_awaited_since",
        "is_busy",
        "log",
        "partition",
        "pauses_until",
        "requested",
        "role",
        "trouble",
    )

    def __init__(self, partition: FollowingPartition) -> None:
        self.partition = partition
        self.role = partition.follower
        """The role it has been followed in; another epoch brings another one."""
        self.log = partition.followed_log
        self.failures = 0
        """Failures in a row."""
        self.trouble: ErrorCode | None = None
        """What the last of them was."""
        self.pauses_until = 0.0
        self.awaits_flush = False
        self.flush_awaited_since = 0.0
        self.is_busy = False
        """Whether the busy connection fetches it."""
        self.copied_at = LONG_AGO
        """When data came last."""
        self.requested: RequestedPartition | None = None
        """What the last request said of it, while nothing that goes into that has changed."""

    @property
    def lag_messages(self) -> int:
        """How many committed messages this replica lacks, as far as its leader has named them."""
        follower = self.partition.follower
        return 0 if follower is None else follower.lag(self.log)

    def is_followed_from(self, leader: BrokerId) -> bool:
        """Whether the partition still is to be fetched from there."""
        partition = self.partition
        return partition.follower is not None and partition.leader_broker == leader and not partition.offline

    def position(self) -> FetchPosition | None:
        """What to ask the leader for; None when the partition does not follow any more."""
        follower = self.partition.follower
        return None if follower is None else follower.next_fetch(self.log)

    def went_well(self) -> None:
        self.failures = 0
        self.trouble = None

    def failed(self, error: ApiError, now: float, randomness: Randomness) -> None:
        """Pause, longer with each failure in a row."""
        self.failures = self.failures + 1 if error.code is self.trouble else 1
        self.trouble = error.code
        self.pauses_until = now + backoff_seconds(self.failures, randomness)

    @property
    def is_worth_a_warning(self) -> bool:
        """Whether to tell of the last failure: at first, then about once a minute; of passing ones if they stay."""
        first = 10 if self.trouble in PASSING else 1
        return self.failures == first or self.failures % 60 == 0
