"""One replica fetch: which partitions it names from where, and its bytes.

How it works: the partitions stand in the order in which the leader will fill its answer. One that has got data goes
behind the others, so that a busy one cannot use up every answer. Neighbours of the same topic share its
entry; a topic may be named several times. Nothing changes between two idle rounds, so an ask and its bytes are
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


class Asked(NamedTuple):
    """A partition of a request, and what was said about it."""

    followed: Followed
    position: FetchPosition
    wanted: FetchPartition


@dataclass(slots=True)
class Ask:
    """What one request asks for; never changed once made."""

    asked: dict[tuple[bytes, int], Asked]
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


def compose_ask(partitions: Iterable[Followed], bytes_max: int) -> Ask:
    """An ask for these partitions in this order."""
    asked: dict[tuple[bytes, int], Asked] = {}
    topics: list[FetchTopic] = []
    named: list[FetchPartition] = []
    recovering: list[Followed] = []
    topic_id: bytes | None = None
    for followed in partitions:
        question = followed.question or _question(followed, bytes_max)
        if question is None:
            continue
        partition = followed.partition
        if partition.topic_id != topic_id:
            topic_id, named = partition.topic_id, []
            topics.append(FetchTopic(None, topic_id, named))
        asked[topic_id, question.wanted.partition] = question
        named.append(question.wanted)
        if followed.failures:
            recovering.append(followed)
    return Ask(asked, topics, bytes_max, recovering)


def _question(followed: Followed, bytes_max: int) -> Asked | None:
    """What is asked about one partition; kept with it, because most partitions stay as they are between two rounds."""
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
    followed.question = question = Asked(followed, position, wanted)
    return question
