"""AlterShareGroupOffsets (key 91): move an empty share group to other offsets. Version 0, flexible."""

from dataclasses import field

from martlet.wire.message import message


@message
class AlterShareGroupOffsetsRequestPartition:
    """Where to go on."""

    partition_index: int = 0
    start_offset: int = 0


@message
class AlterShareGroupOffsetsRequestTopic:
    """One topic."""

    topic_name: str = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(default_factory=list)


@message
class AlterShareGroupOffsetsRequest:
    """The group and its partitions."""

    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(default_factory=list)


@message
class AlterShareGroupOffsetsResponsePartition:
    """The answer for one partition."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None


@message
class AlterShareGroupOffsetsResponseTopic:
    """One topic of the answer."""

    topic_name: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(default_factory=list)


@message
class AlterShareGroupOffsetsResponse:
    """The answers, one per partition, or one for all."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(default_factory=list)
