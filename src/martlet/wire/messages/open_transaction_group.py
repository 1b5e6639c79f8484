"""OpenTransactionGroup (key 12100, our own): a run of a program takes over the group of transactions that it writes by.

Version 0, flexible. Asked of the coordinator of the transactional id `txg:<group>` (decision 0032).
"""

from collections.abc import Mapping
from typing import Any, Final

from martlet.wire.field_table import Field, Table
from martlet.wire.message import message


@message
class OpenTransactionGroupRequest:
    """Which run takes over, and how far it is by its own books."""

    group: str = ""
    run_id: bytes = bytes(16)
    place: str = ""
    """Where the run keeps its books, such as the address of a checkpoint."""
    next_sequence: int = 0
    start_over: bool = False
    """Go on at `next_sequence`, whatever the group has decided."""
    take_over: bool = False
    """Although the runs before kept their books in another place."""


@message
class OpenTransactionGroupResponse:
    """The pair by which this run ends its steps, and the last step decided."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    last_sequence: int = -1
    decided_by: bytes = b""
    note: bytes = b""


TABLES: Final[Mapping[type[Any], Table]] = {
    OpenTransactionGroupRequest: Table(
        OpenTransactionGroupRequest,
        Field("group", "string"),
        Field("run_id", "16s"),
        Field("place", "string"),
        Field("next_sequence", "q"),
        Field("start_over", "?"),
        Field("take_over", "?"),
    ),
    OpenTransactionGroupResponse: Table(
        OpenTransactionGroupResponse,
        Field("throttle_time_ms", "i"),
        Field("error_code", "h"),
        Field("error_message", "string", is_nullable=True),
        Field("producer_id", "q"),
        Field("producer_epoch", "h"),
        Field("last_sequence", "q"),
        Field("decided_by", "bytes"),
        Field("note", "bytes"),
    ),
}
