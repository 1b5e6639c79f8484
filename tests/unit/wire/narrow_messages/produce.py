"""Produce, which the real code writes by hand, down to an instant in time that may be null."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class PartitionProduceResponse:
    """Keeps the offset and the instant."""

    base_offset: int = 0
    log_append_time_ms: int = -1


@dataclass(slots=True)
class TopicProduceResponse:
    """One topic."""

    name: str = ""
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)


@dataclass(slots=True)
class ProduceResponse:
    """The response."""

    responses: list[TopicProduceResponse] = field(default_factory=list)


@dataclass(slots=True)
class PartitionProduceData:
    """One partition's records."""

    index: int = 0
    records: bytes | None = None


@dataclass(slots=True)
class TopicProduceData:
    """One topic's partitions."""

    name: str = ""
    partition_data: list[PartitionProduceData] = field(default_factory=list)


@dataclass(slots=True)
class ProduceRequest:
    """The request."""

    acks: int = 0
    topic_data: list[TopicProduceData] = field(default_factory=list)
