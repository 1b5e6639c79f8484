"""SettleMessages (key 12111, our own): what became of messages: done, to be tried again, rejected, needed for longer.

Version 0, flexible. From any connection. Each settlement stands for itself and is answered when it is committed.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from martlet.wire.field_table import Field, Table
from martlet.wire.message import message

CANCEL: Final = 5


@message
class Settled:
    """One verdict on neighbours."""

    first: int = 0
    last: int = 0
    verdict: int = 1
    """1 accept, 2 release, 3 reject, 4 renew the lease, 5 cancel what no holder has."""
    holder: str | None = None
    """None: whatever holder has them."""
    attempt: int = -1
    """-1: whatever attempt it is."""
    delay_ms: int = -1
    """Of a release; -1: as the subscription says."""
    lease_ms: int = -1
    """Of a renewal; -1: as the subscription says."""
    reason: str | None = None
    """Of a rejection."""


@message
class SettledPartition:
    """Of one partition."""

    topic_id: bytes = bytes(16)
    partition: int = 0
    lease_epoch: int = -1
    """In which they were handed out; -1: whichever."""
    settlements: list[Settled] = dataclasses.field(default_factory=list)


@message
class SettleMessagesRequest:
    """For one subscription."""

    subscription: str = ""
    partitions: list[SettledPartition] = dataclasses.field(default_factory=list)


@message
class SettledResult:
    """Of one settlement, in the order of the request."""

    error_code: int = 0
    error_message: str | None = None


@message
class SettledPartitionResult:
    """Of one partition."""

    topic_id: bytes = bytes(16)
    partition: int = 0
    results: list[SettledResult] = dataclasses.field(default_factory=list)


@message
class SettleMessagesResponse:
    """In the order of the request."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    partitions: list[SettledPartitionResult] = dataclasses.field(default_factory=list)


_SETTLED: Final = Table(
    Settled,
    Field("first", "q"),
    Field("last", "q"),
    Field("verdict", "h"),
    Field("holder", "string", is_nullable=True),
    Field("attempt", "h"),
    Field("delay_ms", "q"),
    Field("lease_ms", "q"),
    Field("reason", "string", is_nullable=True),
)
_SETTLED_PARTITION: Final = Table(
    SettledPartition,
    Field("topic_id", "16s"),
    Field("partition", "i"),
    Field("lease_epoch", "i"),
    Field("settlements", _SETTLED, is_array=True),
)
_SETTLED_RESULT: Final = Table(
    SettledResult, Field("error_code", "h"), Field("error_message", "string", is_nullable=True)
)
_SETTLED_PARTITION_RESULT: Final = Table(
    SettledPartitionResult,
    Field("topic_id", "16s"),
    Field("partition", "i"),
    Field("results", _SETTLED_RESULT, is_array=True),
)

TABLES: Final[Mapping[type[Any], Table]] = {
    SettleMessagesRequest: Table(
        SettleMessagesRequest, Field("subscription", "string"), Field("partitions", _SETTLED_PARTITION, is_array=True)
    ),
    SettleMessagesResponse: Table(
        SettleMessagesResponse,
        Field("throttle_time_ms", "i"),
        Field("error_code", "h"),
        Field("error_message", "string", is_nullable=True),
        Field("partitions", _SETTLED_PARTITION_RESULT, is_array=True),
    ),
}
