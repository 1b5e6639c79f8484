"""DeleteShareGroupOffsets (key 92): forget where an empty share group stands in some topics. Version 0, flexible."""

from dataclasses import field

from martlet.wire.message import message


@message
class DeleteShareGroupOffsetsRequestTopic:
    """One topic, with all its partitions."""

    topic_name: str = ""


@message
class DeleteShareGroupOffsetsRequest:
    """The group and the topics."""

    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(default_factory=list)


@message
class DeleteShareGroupOffsetsResponseTopic:
    """The answer for one topic."""

    topic_name: str = ""
    topic_id: bytes = bytes(16)
    error_code: int = 0
    error_message: str | None = None


@message
class DeleteShareGroupOffsetsResponse:
    """The answers, one per topic, or one for all."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(default_factory=list)
