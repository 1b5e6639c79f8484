"""One replica fetch: which partitions it names from where, and its bytes.

How it works: the partitions stand in the order in which the leader will fill its answer. One that has got data goes
behind the others, so that a busy one cannot use up every answer. Neighbours of the same topic share its
entry; a topic may be named several times. Nothing changes between two idle rounds, so a request and its bytes are
used again until something did.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from martlet.base.ids import Member
from martlet.broker.following.partition import Followed
from martlet.replication.follower import FetchPosition
from martlet.wire.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState, encode_fetch_request

PARTITION_BYTES_MAX: Final = 1 << 20
OLDEST_VERSION: Final = 15
"""The first version that says which process asks; older ones cannot be trusted to tell a restart."""


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """Who fetches, and the word by which brokers of this cluster know one another."""

    me: Member
    secret: str = field(repr=False)


class RequestedPartition(NamedTuple):
    """A partition of a request, and what was said about it."""

    followed: Followed
    position: FetchPosition
    wanted: FetchPartition


@dataclass(slots=True)
class ReplicaRequest:
    """One fetch request to a leader; never changed once made."""

    partitions: dict[tuple[bytes, int], RequestedPartition]
    """By topic id and number."""
    topics: list[FetchTopic]
    bytes_max: int
    recovering: list[Followed]
    """Those that had failed before; an answer without an error shows that they have not this time."""
    _encoded: tuple[int, int, bytes] | None = field(default=None, repr=False)

    def body(self, version: int, identity: ReplicaIdentity, wait_ms: int) -> bytes:
        """The request's body, the same bytes again where nothing differs."""
        if self._encoded is not None and self._encoded[:2] == (version, wait_ms):
            return self._encoded[2]
        request = FetchRequest(
            replica_state=ReplicaState(*identity.me),
            cluster_id=identity.secret,
            max_wait_ms=wait_ms,
            max_bytes=self.bytes_max,
            topics=self.topics,
        )
        encoded = encode_fetch_request(version, request)
        self._encoded = (version, wait_ms, encoded)
        return encoded


def build_request(partitions: Iterable[Followed], bytes_max: int) -> ReplicaRequest:
    """A request for these partitions in this order."""
    partitions_by_id: dict[tuple[bytes, int], RequestedPartition] = {}
    topics: list[FetchTopic] = []
    named: list[FetchPartition] = []
    recovering: list[Followed] = []
    topic_id: bytes | None = None
    for followed in partitions:
        requested = followed.requested or _requested_partition(followed, bytes_max)
        if requested is None:
            continue
        partition = followed.partition
        if partition.topic_id != topic_id:
            topic_id, named = partition.topic_id, []
            topics.append(FetchTopic(None, topic_id, named))
        partitions_by_id[topic_id, requested.wanted.partition] = requested
        named.append(requested.wanted)
        if followed.failures:
            recovering.append(followed)
    return ReplicaRequest(partitions_by_id, topics, bytes_max, recovering)


def _requested_partition(followed: Followed, bytes_max: int) -> RequestedPartition | None:
    """What the request says of one partition; kept with it, because most do not change between two rounds."""
    position = followed.position()
    if position is None:
        return None
    partition = followed.partition
    wanted = FetchPartition(
        partition.name.partition,
        position.current_leader_epoch,
        position.fetch_offset,
        position.last_fetched_epoch,
        position.log_start_offset,
        min(PARTITION_BYTES_MAX, bytes_max),
        high_watermark=partition.high_watermark,
    )
    followed.requested = requested = RequestedPartition(followed, position, wanted)
    return requested
