"""ShareFetch (key 78): messages leased to a member of a share group, and what it says of those it has.

Versions 1–2, flexible. v2 adds the acquire mode and the renewal of leases. A topic may be listed several times in one
request: partitions to add and acknowledgements are not merged by every client.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class AcknowledgementBatch:
    """A range of offsets with one type for all, or one for each: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""

    first_offset: int = 0
    last_offset: int = 0
    acknowledge_types: list[int] = field(default_factory=list)


@message
class FetchPartition:
    """A partition to fetch from, with what is said of messages leased there."""

    partition_index: int = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)


@message
class FetchTopic:
    """One topic."""

    topic_id: bytes = bytes(16)
    partitions: list[FetchPartition] = field(default_factory=list)


@message
class ForgottenTopic:
    """Partitions that leave the session."""

    topic_id: bytes = bytes(16)
    partitions: list[int] = field(default_factory=list)


@message
class ShareFetchRequest:
    """One step of a session. An epoch of 0 opens it, -1 closes it.

    The acquire mode is 0 where whole batches may exceed `max_records`, 1 where nothing may.
    """

    group_id: str | None = None
    member_id: str | None = None
    share_session_epoch: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = (1 << 31) - 1
    max_records: int = 0
    batch_size: int = 0
    share_acquire_mode: int = 0  # v2+
    is_renew_ack: bool = False  # v2+
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)


@message
class LeaderIdAndEpoch:
    """Where the partition is led, when not here; -1 when that is not known or not asked."""

    leader_id: int = 0
    leader_epoch: int = 0


@message
class AcquiredRecords:
    """Neighbours leased to the member, all for the same number of times."""

    first_offset: int = 0
    last_offset: int = 0
    delivery_count: int = 0


@message
class PartitionData:
    """The answer for one partition; `records` may hold more than what was acquired, and is never null."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)
    records: bytes | None = b""
    acquired_records: list[AcquiredRecords] = field(default_factory=list)


@message
class ShareFetchableTopicResponse:
    """One topic of the answer."""

    topic_id: bytes = bytes(16)
    partitions: list[PartitionData] = field(default_factory=list)


@message
class NodeEndpoint:
    """Address of a leader that is named in the answer."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


@message
class ShareFetchResponse:
    """The partitions that have something to say, and how long a lease lasts."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0
    responses: list[ShareFetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
