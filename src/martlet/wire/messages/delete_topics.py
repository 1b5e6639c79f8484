"""DeleteTopics (key 20).

Versions 1–6. v4 is the first flexible one; v5 adds error texts; v6 deletes by name or by id, in a new field.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class DeleteTopicState:
    """One topic to delete: a name, or None and an id."""

    name: str | None = None
    topic_id: bytes = bytes(16)


@message
class DeleteTopicsRequest:
    """The topics: `topic_names` until v5, `topics` in v6."""

    topics: list[DeleteTopicState] = field(default_factory=list)  # v6+
    timeout_ms: int = 60_000  # the schema has no default; this is that of CreateTopics
    topic_names: list[str] = field(default_factory=list)  # until v5


@message
class DeletableTopicResult:
    """What became of one topic; at v6 the name is None where an unknown id was given."""

    name: str | None = None
    topic_id: bytes = bytes(16)  # v6+
    error_code: int = 0
    error_message: str | None = None  # v5+


@message
class DeleteTopicsResponse:
    """The results, one per topic asked for."""

    throttle_time_ms: int = 0
    responses: list[DeletableTopicResult] = field(default_factory=list)
