"""AlterPartitionReassignments (key 45): move partitions to other brokers, or cancel their moves.

Versions 0–1, both flexible. v1 says whether the number of replicas may change.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ReassignablePartition:
    """Where one partition is to lie, preferred leader first; None cancels its move."""

    partition_index: int = 0
    replicas: list[int] | None = None


@message
class ReassignableTopic:
    """Partitions of one topic."""

    name: str = ""
    partitions: list[ReassignablePartition] = field(default_factory=list)


@message
class AlterPartitionReassignmentsRequest:
    """The wished moves."""

    timeout_ms: int = 60_000
    allow_replication_factor_change: bool = True  # v1+
    topics: list[ReassignableTopic] = field(default_factory=list)


@message
class ReassignablePartitionResponse:
    """What became of one wish."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None


@message
class ReassignableTopicResponse:
    """The results of one topic."""

    name: str = ""
    partitions: list[ReassignablePartitionResponse] = field(default_factory=list)


@message
class AlterPartitionReassignmentsResponse:
    """The results, one per partition named."""

    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True  # v1+
    error_code: int = 0
    error_message: str | None = None
    responses: list[ReassignableTopicResponse] = field(default_factory=list)
