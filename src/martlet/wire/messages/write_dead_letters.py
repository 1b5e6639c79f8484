"""WriteDeadLetters (key 12116, our own): a broker publishes copies of messages to a partition that another one leads.

Version 0, flexible. Answered when they are committed. For brokers only.
"""

from collections.abc import Mapping
from typing import Any, Final

from martlet.wire.field_table import Field, Table
from martlet.wire.message import message


@message
class WriteDeadLettersRequest:
    """One batch for one partition."""

    topic: str = ""
    partition: int = -1
    records: bytes = b""


@message
class WriteDeadLettersResponse:
    """Whether they are committed."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None


TABLES: Final[Mapping[type[Any], Table]] = {
    WriteDeadLettersRequest: Table(
        WriteDeadLettersRequest, Field("topic", "string"), Field("partition", "i"), Field("records", "bytes")
    ),
    WriteDeadLettersResponse: Table(
        WriteDeadLettersResponse,
        Field("throttle_time_ms", "i"),
        Field("error_code", "h"),
        Field("error_message", "string", is_nullable=True),
    ),
}
