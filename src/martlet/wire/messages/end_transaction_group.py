"""EndTransactionGroup (key 12101, our own): one step of a group of transactions is decided, all or nothing.

Version 0, flexible. Asked of the coordinator of the transactional id `txg:<group>` (decision 0032). Sequence -1 without
winners gives up what is open and decides nothing.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from martlet.wire.field_table import Field, Table
from martlet.wire.message import message


@message
class Winner:
    """A child that is to be committed, at the pair with which it has written."""

    transactional_id: str = ""
    producer_id: int = -1
    producer_epoch: int = -1


@message
class EndTransactionGroupRequest:
    """By which run, which step, and who wins; every other open child of the step is aborted."""

    group: str = ""
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    winners: list[Winner] = dataclasses.field(default_factory=list)
    note: bytes = b""
    """Kept with the decision, for the run that asks again."""


@message
class EndTransactionGroupResponse:
    """What is decided now, and whether it was before."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    already_done: bool = False
    last_sequence: int = -1
    decided_by: bytes = b""
    note: bytes = b""


_WINNER: Final = Table(
    Winner, Field("transactional_id", "string"), Field("producer_id", "q"), Field("producer_epoch", "h")
)

TABLES: Final[Mapping[type[Any], Table]] = {
    EndTransactionGroupRequest: Table(
        EndTransactionGroupRequest,
        Field("group", "string"),
        Field("producer_id", "q"),
        Field("producer_epoch", "h"),
        Field("sequence", "q"),
        Field("winners", _WINNER, is_array=True),
        Field("note", "bytes"),
    ),
    EndTransactionGroupResponse: Table(
        EndTransactionGroupResponse,
        Field("throttle_time_ms", "i"),
        Field("error_code", "h"),
        Field("error_message", "string", is_nullable=True),
        Field("already_done", "?"),
        Field("last_sequence", "q"),
        Field("decided_by", "bytes"),
        Field("note", "bytes"),
    ),
}
