"""ListPartitionReassignments (key 46): the moves of partitions under way.

Version 0, flexible.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ListPartitionReassignmentsTopics:
    """Partitions of one topic."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)


@message
class ListPartitionReassignmentsRequest:
    """Whose moves to list; None stands for all there are."""

    timeout_ms: int = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None


@message
class OngoingPartitionReassignment:
    """One partition that moves: all its replicas, those that come and those that will go."""

    partition_index: int = 0
    replicas: list[int] = field(default_factory=list)
    adding_replicas: list[int] = field(default_factory=list)
    removing_replicas: list[int] = field(default_factory=list)


@message
class OngoingTopicReassignment:
    """The moving partitions of one topic."""

    name: str = ""
    partitions: list[OngoingPartitionReassignment] = field(default_factory=list)


@message
class ListPartitionReassignmentsResponse:
    """The moves; what does not move is not there."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    topics: list[OngoingTopicReassignment] = field(default_factory=list)
