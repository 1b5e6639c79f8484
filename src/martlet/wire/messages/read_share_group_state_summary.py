"""ReadShareGroupStateSummary (key 87): where a share group stands in partitions that the asked broker leads.

Versions 0-1, flexible; v1 counts what is finished behind the start. Brokers ask it of each other.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class PartitionData:
    """One partition."""

    partition: int = 0
    leader_epoch: int = 0


@message
class ReadStateSummaryData:
    """One topic."""

    topic_id: bytes = bytes(16)
    partitions: list[PartitionData] = field(default_factory=list)


@message
class ReadShareGroupStateSummaryRequest:
    """The group and its partitions."""

    group_id: str = ""
    topics: list[ReadStateSummaryData] = field(default_factory=list)


@message
class PartitionResult:
    """Everything before the start offset is finished; -1 where nothing is known."""

    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = 0
    delivery_complete_count: int = -1  # v1+


@message
class ReadStateSummaryResult:
    """One topic of the answer."""

    topic_id: bytes = bytes(16)
    partitions: list[PartitionResult] = field(default_factory=list)


@message
class ReadShareGroupStateSummaryResponse:
    """The answers, one per partition."""

    results: list[ReadStateSummaryResult] = field(default_factory=list)
