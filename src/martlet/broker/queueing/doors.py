"""How the doors (Kafka's share protocol, Martlet's own calls) use the queues that this broker serves.

A queue is one subscription in one partition. It is served by the broker that leads the partition and its state log,
once the state is loaded. A door finds it, hands messages out to *holders*, and says what holders said of them. Holders
are names: a door that ties them to connections releases them itself.

Rules: a request is applied whole or refused whole, at once; what is awaited is only that it is committed. Nothing read
here changes a queue. A queue object is good for one leadership: find it again for each request.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from martlet.base.ids import TopicId
from martlet.queues.engine import Delivery, Settlement
from martlet.queues.inspection import Depth, MessageStatus


@dataclass(frozen=True, slots=True)
class Wish:
    """How much a holder takes at once."""

    messages_max: int
    bytes_max: int
    """The first message is handed out whatever its size."""
    lease_ms: int | None = None
    """None: as the subscription says."""
    is_whole_batches: bool = False
    """Take whole batches where one is wholly available, rather than cut one: Kafka's batch-optimised mode."""


class Handout(NamedTuple):
    """What was leased, and the bytes of it."""

    deliveries: tuple[Delivery, ...]
    """Ascending and disjoint runs of offsets, each with its attempt."""
    batches: tuple[bytes, ...]
    """Record batches that hold these records and no others, in the order of their offsets."""
    until_ms: int
    """When the lease ends, on the clock of the queues."""

    @property
    def message_count(self) -> int:
        return sum(delivery.last - delivery.first + 1 for delivery in self.deliveries)


NOTHING = Handout((), (), 0)


class PartitionQueue(Protocol):
    """One subscription in one partition, as long as this broker serves it; `ApiError` for every refusal."""

    @property
    def leader_epoch(self) -> int:
        """Of the partition."""
        ...

    @property
    def lease_epoch(self) -> int:
        """In every lease token; rises with either leadership, so whenever leases may have been forgotten."""
        ...

    @property
    def has_deliverable(self) -> bool:
        """Whether a `hand_out` now would give something."""
        ...

    async def hand_out(self, holder: str, wish: Wish) -> Handout:
        """Lease messages to a holder and read them; NOTHING when there are none now.

        What was leased and did not fit, or cannot be read, is given back and does not count as an attempt. Offsets
        without a record are finished by the way.
        """
        ...

    def settle(
        self,
        holder: str | None,
        settlements: Sequence[Settlement],
        *,
        attempt: int | None = None,
        lease_ms: int | None = None,
        delay_ms: int | None = None,
        reason: str = "",
    ) -> Awaitable[None]:
        """Apply what a holder says, or refuse it by an ApiError at once; what is returned ends when it is committed.

        Settlements ascend and are disjoint. Without a holder they count for whatever holder has the messages; with an
        attempt only for that attempt. `lease_ms` is for renewals, `delay_ms` for releases, `reason` for rejections
        (it goes with the dead letter). Awaiting raises when the change could not be stored: the holder has them again.
        """
        ...

    def release_holder(self, holder: str, *, was_delivered: bool = True) -> Awaitable[None]:
        """All that a holder has comes back at once; as a failed attempt if it was delivered."""
        ...

    def add_waiter(self, callback: Callable[[], None]) -> None:
        """Call back, in the same pass, whenever something may have become deliverable, until it is removed.

        Also called when the queue is not served any more: `find` it again and see why.
        """
        ...

    def remove_waiter(self, callback: Callable[[], None]) -> None: ...

    def token(self, offset: int, attempt: int, holder: str) -> str:
        """The lease token of a message, for holders that are no connection."""
        ...

    # --- looking

    def depth(self) -> Depth:
        """How many messages are where."""
        ...

    @property
    def start(self) -> int:
        """Everything before is finished (Kafka's share-partition start offset)."""
        ...

    @property
    def end(self) -> int:
        """Where what can be delivered ends."""
        ...

    @property
    def low_mark(self) -> int:
        """From where on the log is needed."""
        ...

    def why_nothing(self) -> str | None:
        """Why nothing is delivered though messages are there, for people."""
        ...

    def status(self, offset: int) -> MessageStatus: ...

    def peek(self, first: int, limit: int) -> list[tuple[int, MessageStatus]]:
        """Messages that are not finished, from an offset on, with where they are."""
        ...

    # --- changing by hand

    async def cancel(self, offset: int) -> None:
        """Never deliver this message, delayed or waiting; ends when that is committed.

        INVALID_RECORD_STATE when it was handed out or is finished.
        """
        ...

    def seek(self, offset: int) -> Awaitable[None]:
        """Go on at another offset: leases, counts and strays are forgotten."""
        ...


class QueueDoors(Protocol):
    """The queues that this broker serves."""

    def now_ms(self) -> int:
        """The clock of the queues: milliseconds since 1970 at the start of the broker, and never set afterwards."""
        ...

    def find(self, topic_id: TopicId, partition: int, subscription: str) -> PartitionQueue:
        """The queue, if it is served here.

        NOT_LEADER_OR_FOLLOWER where another broker leads, COORDINATOR_LOAD_IN_PROGRESS while the pair is not led by one
        broker or the state is being loaded, UNKNOWN_TOPIC_ID, GROUP_ID_NOT_FOUND without such a subscription of
        the topic.
        """
        ...

    async def ensure(self, subscription: str, topics: Iterable[TopicId]) -> None:
        """Have a subscription of this name cover the topics, made with defaults where there is none.

        For share groups; idempotent and cheap when there is nothing to do. Afterwards `find` answers at each leader, at
        first with COORDINATOR_LOAD_IN_PROGRESS.
        """
        ...

    def served(self) -> Iterable[tuple[TopicId, int, str, PartitionQueue]]:
        """All queues of this broker, for listings and metrics."""
        ...
