"""ReceiveMessages (key 12110, our own): messages of a subscription are leased to a holder.

Version 0, flexible. Asked of the leaders of partitions; waits until there is something, at most `wait_ms`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from martlet.wire.field_table import Field, Table
from martlet.wire.message import message


@message
class QueuePartitions:
    """Partitions of one topic that the asked broker leads."""

    topic_id: bytes = bytes(16)
    partitions: list[int] = dataclasses.field(default_factory=list)


@message
class ReceiveMessagesRequest:
    """For whom, how much, how long."""

    subscription: str = ""
    holder: str = ""
    """Named again when messages are settled; one for each worker."""
    messages_max: int = 1
    bytes_max: int = 1 << 20
    wait_ms: int = 0
    lease_ms: int = -1
    """-1: as the subscription says."""
    topics: list[QueuePartitions] | None = None
    """None: all that the broker serves."""


@message
class LeasedRun:
    """Neighbours, all for the same attempt."""

    first: int = 0
    last: int = 0
    attempts: int = 0


@message
class ReceivedPartition:
    """What was leased of one partition, or why nothing can be."""

    topic: str = ""
    topic_id: bytes = bytes(16)
    partition: int = 0
    lease_epoch: int = 0
    error_code: int = 0
    error_message: str | None = None
    runs: list[LeasedRun] = dataclasses.field(default_factory=list)
    records: bytes = b""
    """Whole batches that hold these records and no others."""
    until_ms: int = 0
    """When the leases end."""


@message
class ReceiveMessagesResponse:
    """Partitions without messages and without an error are left out."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    partitions: list[ReceivedPartition] = dataclasses.field(default_factory=list)


_QUEUE_PARTITIONS: Final = Table(QueuePartitions, Field("topic_id", "16s"), Field("partitions", "i", is_array=True))
_LEASED_RUN: Final = Table(LeasedRun, Field("first", "q"), Field("last", "q"), Field("attempts", "h"))
_RECEIVED_PARTITION: Final = Table(
    ReceivedPartition,
    Field("topic", "string"),
    Field("topic_id", "16s"),
    Field("partition", "i"),
    Field("lease_epoch", "i"),
    Field("error_code", "h"),
    Field("error_message", "string", is_nullable=True),
    Field("runs", _LEASED_RUN, is_array=True),
    Field("records", "bytes"),
    Field("until_ms", "q"),
)

TABLES: Final[Mapping[type[Any], Table]] = {
    ReceiveMessagesRequest: Table(
        ReceiveMessagesRequest,
        Field("subscription", "string"),
        Field("holder", "string"),
        Field("messages_max", "i"),
        Field("bytes_max", "i"),
        Field("wait_ms", "i"),
        Field("lease_ms", "q"),
        Field("topics", _QUEUE_PARTITIONS, is_array=True, is_nullable=True),
    ),
    ReceiveMessagesResponse: Table(
        ReceiveMessagesResponse,
        Field("throttle_time_ms", "i"),
        Field("error_code", "h"),
        Field("error_message", "string", is_nullable=True),
        Field("partitions", _RECEIVED_PARTITION, is_array=True),
    ),
}
