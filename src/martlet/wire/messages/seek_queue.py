"""SeekQueue (key 12115, our own): a queue goes on at another offset; leases and counts are forgotten.

Version 0, flexible. Asked of the leader of the partition; answered when it is committed.
"""

from collections.abc import Mapping
from typing import Any, Final

from martlet.wire.field_table import Field, Table
from martlet.wire.message import message


@message
class SeekQueueRequest:
    """Which queue, and where to."""

    subscription: str = ""
    topic_id: bytes = bytes(16)
    partition: int = 0
    offset: int = 0


@message
class SeekQueueResponse:
    """Whether it is done."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None


TABLES: Final[Mapping[type[Any], Table]] = {
    SeekQueueRequest: Table(
        SeekQueueRequest,
        Field("subscription", "string"),
        Field("topic_id", "16s"),
        Field("partition", "i"),
        Field("offset", "q"),
    ),
    SeekQueueResponse: Table(
        SeekQueueResponse,
        Field("throttle_time_ms", "i"),
        Field("error_code", "h"),
        Field("error_message", "string", is_nullable=True),
    ),
}
