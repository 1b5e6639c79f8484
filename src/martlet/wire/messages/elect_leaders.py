"""ElectLeaders (key 43): give partitions another leader.

Versions 0–2. v1 adds the election type (0 preferred, 1 unclean) and the top-level error; v2 is the first flexible one.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)


@message
class ElectLeadersRequest:
    """The partitions to elect leaders of; None stands for all there are."""

    election_type: int = 0  # v1+
    topic_partitions: list[TopicPartitions] | None = None
    timeout_ms: int = 60_000


@message
class PartitionResult:
    """What became of one partition."""

    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = None


@message
class ReplicaElectionResult:
    """The results of one topic."""

    topic: str = ""
    partition_result: list[PartitionResult] = field(default_factory=list)


@message
class ElectLeadersResponse:
    """The results, one per partition asked for."""

    throttle_time_ms: int = 0
    error_code: int = 0  # v1+
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)
