"""DescribeQuorum (key 55): who leads the cluster's metadata and how far each node has followed them.

Versions 0–2. v1 adds when a node last fetched and when it was last caught up; v2 error messages, directory ids, and
where the nodes listen. The schema uses the names TopicData and PartitionData in both directions; of a partition asked
for only the index counts.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ReplicaState:
    """One node that follows the metadata; -1 where something is unknown."""

    replica_id: int = 0
    replica_directory_id: bytes = bytes(16)  # v2+
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1  # v1+
    last_caught_up_timestamp: int = -1  # v1+


@message
class PartitionData:
    """One partition: its leader, what is committed, and who follows."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None  # v2+
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: list[ReplicaState] = field(default_factory=list)
    observers: list[ReplicaState] = field(default_factory=list)


@message
class TopicData:
    """The partitions of one topic."""

    topic_name: str = ""
    partitions: list[PartitionData] = field(default_factory=list)


@message
class DescribeQuorumRequest:
    """The partitions asked for."""

    topics: list[TopicData] = field(default_factory=list)


@message
class Listener:
    """Where a node can be reached."""

    name: str = ""
    host: str = ""
    port: int = 0


@message
class Node:
    """One node with its listeners."""

    node_id: int = 0
    listeners: list[Listener] = field(default_factory=list)


@message
class DescribeQuorumResponse:
    """The partitions as far as they exist, and the nodes named in them."""

    error_code: int = 0
    error_message: str | None = None  # v2+
    topics: list[TopicData] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)  # v2+
