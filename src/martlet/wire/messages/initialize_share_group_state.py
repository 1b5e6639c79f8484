"""InitializeShareGroupState (key 83): where a share group is to begin in partitions that the asked broker leads.

Version 0, flexible. Brokers ask it of each other.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class PartitionData:
    """Where to begin."""

    partition: int = 0
    state_epoch: int = 0
    start_offset: int = 0


@message
class InitializeStateData:
    """One topic."""

    topic_id: bytes = bytes(16)
    partitions: list[PartitionData] = field(default_factory=list)


@message
class InitializeShareGroupStateRequest:
    """The group and its partitions."""

    group_id: str = ""
    topics: list[InitializeStateData] = field(default_factory=list)


@message
class PartitionResult:
    """The answer for one partition."""

    partition: int = 0
    error_code: int = 0
    error_message: str | None = None


@message
class InitializeStateResult:
    """One topic of the answer."""

    topic_id: bytes = bytes(16)
    partitions: list[PartitionResult] = field(default_factory=list)


@message
class InitializeShareGroupStateResponse:
    """The answers, one per partition."""

    results: list[InitializeStateResult] = field(default_factory=list)
