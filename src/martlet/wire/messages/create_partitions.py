"""CreatePartitions (key 37): grow topics.

Versions 0–3. v2 is the first flexible one; v3 may answer THROTTLING_QUOTA_EXCEEDED.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class CreatePartitionsAssignment:
    """The brokers that shall hold one new partition."""

    broker_ids: list[int] = field(default_factory=list)


@message
class CreatePartitionsTopic:
    """One topic and its wanted number of partitions; None for the assignments lets the broker place them."""

    name: str = ""
    count: int = 0
    assignments: list[CreatePartitionsAssignment] | None = None


@message
class CreatePartitionsRequest:
    """Topics to grow, or with `validate_only` to check."""

    topics: list[CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: int = 60_000  # the schema has no default; this is that of CreateTopics
    validate_only: bool = False


@message
class CreatePartitionsTopicResult:
    """What became of one topic."""

    name: str = ""
    error_code: int = 0
    error_message: str | None = None


@message
class CreatePartitionsResponse:
    """The results, one per topic asked for."""

    throttle_time_ms: int = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)
