"""DescribeQueues (key 12114, our own): how the queues of a subscription stand, and where single messages are.

Version 0, flexible. Asked of the leaders of partitions. Changes nothing.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from martlet.wire.field_table import Field, Table
from martlet.wire.message import message


@message
class DescribedTopic:
    """Partitions of one topic."""

    topic_id: bytes = bytes(16)
    partitions: list[int] = dataclasses.field(default_factory=list)


@message
class DescribeQueuesRequest:
    """Which queues, and which messages of each."""

    subscription: str = ""
    topics: list[DescribedTopic] | None = None
    """None: all that the broker leads."""
    first: int = 0
    """From which offset on messages are shown."""
    limit: int = 0
    """How many messages are shown; 0: none."""
    only_that: bool = False
    """Show the one at `first`, whatever its state."""


@message
class DescribedMessage:
    """Where one message is."""

    offset: int = 0
    state: str = ""
    attempts: int = 0
    holder: str | None = None
    until_ms: int = 0
    """When its lease or its pause ends; 0 without one."""


@message
class DescribedQueue:
    """One subscription in one partition."""

    topic: str = ""
    topic_id: bytes = bytes(16)
    partition: int = 0
    error_code: int = 0
    error_message: str | None = None
    leader_epoch: int = 0
    start: int = 0
    end: int = 0
    low_mark: int = 0
    waiting: int = 0
    leased: int = 0
    closing: int = 0
    backing_off: int = 0
    copying: int = 0
    scheduled: int = 0
    """Delayed, and not due yet; not among the waiting."""
    parked: int = 0
    """Of the waiting: behind another message of their key."""
    stalled: str | None = None
    """Why nothing is delivered though messages are there."""
    messages: list[DescribedMessage] = dataclasses.field(default_factory=list)


@message
class DescribeQueuesResponse:
    """By topic and partition."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    queues: list[DescribedQueue] = dataclasses.field(default_factory=list)


_DESCRIBED_TOPIC: Final = Table(DescribedTopic, Field("topic_id", "16s"), Field("partitions", "i", is_array=True))
_DESCRIBED_MESSAGE: Final = Table(
    DescribedMessage,
    Field("offset", "q"),
    Field("state", "string"),
    Field("attempts", "h"),
    Field("holder", "string", is_nullable=True),
    Field("until_ms", "q"),
)
_DESCRIBED_QUEUE: Final = Table(
    DescribedQueue,
    Field("topic", "string"),
    Field("topic_id", "16s"),
    Field("partition", "i"),
    Field("error_code", "h"),
    Field("error_message", "string", is_nullable=True),
    Field("leader_epoch", "i"),
    Field("start", "q"),
    Field("end", "q"),
    Field("low_mark", "q"),
    Field("waiting", "q"),
    Field("leased", "q"),
    Field("closing", "q"),
    Field("backing_off", "q"),
    Field("copying", "q"),
    Field("scheduled", "q"),
    Field("parked", "q"),
    Field("stalled", "string", is_nullable=True),
    Field("messages", _DESCRIBED_MESSAGE, is_array=True),
)

TABLES: Final[Mapping[type[Any], Table]] = {
    DescribeQueuesRequest: Table(
        DescribeQueuesRequest,
        Field("subscription", "string"),
        Field("topics", _DESCRIBED_TOPIC, is_array=True, is_nullable=True),
        Field("first", "q"),
        Field("limit", "i"),
        Field("only_that", "?"),
    ),
    DescribeQueuesResponse: Table(
        DescribeQueuesResponse,
        Field("throttle_time_ms", "i"),
        Field("error_code", "h"),
        Field("error_message", "string", is_nullable=True),
        Field("queues", _DESCRIBED_QUEUE, is_array=True),
    ),
}
