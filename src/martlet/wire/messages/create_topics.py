"""CreateTopics (key 19).

Versions 2–7. v4 allows -1 for the broker's default of partitions and replicas; v5 (the first flexible one) returns what
was created; v6 may answer THROTTLING_QUOTA_EXCEEDED; v7 returns the topic id.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class CreatableReplicaAssignment:
    """The brokers that shall hold one partition, the preferred leader first."""

    partition_index: int = 0
    broker_ids: list[int] = field(default_factory=list)


@message
class CreatableTopicConfig:
    """One configuration value of the new topic."""

    name: str = ""
    value: str | None = None


@message
class CreatableTopic:
    """A topic to create; partitions and replicas are -1 when assignments are given or the defaults are wanted."""

    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


@message
class CreateTopicsRequest:
    """Topics to create, or with `validate_only` to check."""

    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: int = 60_000
    validate_only: bool = False


@message
class CreatableTopicConfigs:
    """One configuration value in effect; `config_source` as in DescribeConfigs."""

    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False


@message
class CreatableTopicResult:
    """What became of one topic."""

    name: str = ""
    topic_id: bytes = bytes(16)  # v7+
    error_code: int = 0
    error_message: str | None = None
    topic_config_error_code: int = 0  # v5+
    num_partitions: int = -1  # v5+
    replication_factor: int = -1  # v5+
    configs: list[CreatableTopicConfigs] | None = field(default_factory=list)  # v5+


@message
class CreateTopicsResponse:
    """The results, one per topic asked for."""

    throttle_time_ms: int = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)
