"""ShareAcknowledge (key 79): what a member of a share group says of the messages it has, without fetching more.

Versions 1–2, flexible. v2 adds the renewal of leases. It takes part in the session of ShareFetch and its epochs.
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
class AcknowledgePartition:
    """One partition."""

    partition_index: int = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)


@message
class AcknowledgeTopic:
    """One topic."""

    topic_id: bytes = bytes(16)
    partitions: list[AcknowledgePartition] = field(default_factory=list)


@message
class ShareAcknowledgeRequest:
    """One step of a session; an epoch of -1 closes it, and 0 is refused."""

    group_id: str | None = None
    member_id: str | None = None
    share_session_epoch: int = 0
    is_renew_ack: bool = False  # v2+
    topics: list[AcknowledgeTopic] = field(default_factory=list)


@message
class LeaderIdAndEpoch:
    """Where the partition is led, when not here; -1 when that is not known or not asked."""

    leader_id: int = 0
    leader_epoch: int = 0


@message
class PartitionData:
    """The answer for one partition: all of its acknowledgements were applied, or none."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)


@message
class ShareAcknowledgeTopicResponse:
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
class ShareAcknowledgeResponse:
    """The answers, one per partition, and how long a renewed lease lasts."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int = 0  # v2+
    responses: list[ShareAcknowledgeTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
