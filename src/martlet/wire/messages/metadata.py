"""Metadata (key 3): brokers, topics, partitions and who leads them.

Versions 0–13. v1 adds controller, racks and internal topics, and turns "all topics" from the empty array into null;
v2 cluster id; v3 throttling; v4 the wish to create topics; v5 offline replicas; v7 leader epochs; v8 authorized
operations (those of the cluster are gone in v11); v10 topic ids in both directions; v12 asking by id, and null names;
v13 an error for the whole response.
"""

from dataclasses import field

from martlet.wire.message import message
from martlet.wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED


@message
class MetadataRequestTopic:
    """One topic asked for, by name or (v12+) by id."""

    topic_id: bytes = bytes(16)  # v10+
    name: str | None = None


@message
class MetadataRequest:
    """The topics wanted: None is all of them from v1 on, the empty list is all of them in v0 and none later."""

    topics: list[MetadataRequestTopic] | None = field(default_factory=list)
    allow_auto_topic_creation: bool = True  # v4+
    include_topic_authorized_operations: bool = False  # v8+
    include_cluster_authorized_operations: bool = False  # v8–v10


@message
class MetadataResponsePartition:
    """Who leads one partition and who holds copies."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1  # v7+
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    offline_replicas: list[int] = field(default_factory=list)  # v5+


@message
class MetadataResponseBroker:
    """Where one broker listens."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None  # v1+


@message
class MetadataResponseTopic:
    """One topic; at v12+ the name is None where an unknown id was asked for."""

    error_code: int = 0
    name: str | None = None
    topic_id: bytes = bytes(16)  # v10+
    is_internal: bool = False  # v1+
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = OPERATIONS_NOT_REQUESTED  # v8+


@message
class MetadataResponse:
    """The cluster as this broker sees it."""

    throttle_time_ms: int = 0  # v3+
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: str | None = None  # v2+
    controller_id: int = -1  # v1+
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    error_code: int = 0  # v13+
    cluster_authorized_operations: int = OPERATIONS_NOT_REQUESTED  # v8–v10
