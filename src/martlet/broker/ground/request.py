"""What a handler is given and how it answers: the context of a request and its place in the line of replies.

Invariant: (R1) replies of one connection leave in the order of its requests, whatever order they become ready
in. `Reply` is that place in line; the connection owns the line.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from martlet.base.addresses import Address
from martlet.base.errors import ApiError, ErrorCode
from martlet.observe.metrics import DropReason
from martlet.wire.headers import RequestHeader, response_prefix
from martlet.wire.primitives import Buffer


@dataclass(frozen=True, slots=True)
class Link:
    """The two ends of a connection."""

    peer: Address
    local: Address
    """The address the client connected to: what it is told to use when no other is advertised."""
    made_at_ms: int = 0
    """When it came about, by the clock that never goes back."""


class RequestContext(NamedTuple):
    """What a handler may know besides the request itself."""

    link: Link
    version: int
    client_id: str | None


class ReplyLine(Protocol):
    """The connection, as far as a reply cares."""

    def reply_ready(self) -> None: ...

    def line_released(self) -> None: ...

    def refuse(self, reason: str, kind: DropReason = ...) -> None: ...


class Reply:
    """One request's place in its connection's line of replies; completed exactly once."""

    __slots__ = ("_line", "abandoned", "chunks", "header", "holds_line", "on_abandoned", "ready")

    def __init__(self, header: RequestHeader, line: ReplyLine) -> None:
        self.header = header
        self.ready = False
        self.holds_line = False
        """Set while no later request may start, although publishes otherwise may follow publishes."""
        self.chunks: Sequence[Buffer] = ()
        self.abandoned = False
        self.on_abandoned: Callable[[], None] | None = None
        """Set by parked work that wants to know when the connection is gone."""
        self._line = line

    def send(self, chunks: Sequence[Buffer]) -> None:
        """Give the body of the response; an empty sequence answers with an empty body."""
        if self.ready or self.abandoned:
            return
        size = sum(map(len, chunks))
        header = self.header
        prefix = response_prefix(header.correlation_id, header.api_key, header.api_version, size)
        self.chunks = (prefix, *chunks)
        self.ready = True
        self._line.reply_ready()

    def send_nothing(self) -> None:
        """Leave the line without a response, as a publish with acks=0 does."""
        if self.ready or self.abandoned:
            return
        self.ready = True
        self._line.reply_ready()

    def release_line(self) -> None:
        """Let later requests start although this one is not answered yet."""
        self.holds_line = False
        if not self.abandoned:
            self._line.line_released()

    def abandon(self) -> None:
        """The connection is gone: nobody waits for this reply any more."""
        self.abandoned = True
        if not self.ready and self.on_abandoned is not None:
            self.on_abandoned()

    def refuse(self, reason: str, kind: DropReason) -> None:
        """Close the connection instead of answering: the only way some requests can be told of a failure."""
        if not self.abandoned:
            self._line.refuse(reason, kind)


async def outcome_of(change: Awaitable[object]) -> tuple[ErrorCode, str | None]:
    """Error code and message of one change among several that succeed or fail on their own."""
    try:
        await change
    except ApiError as error:
        return error.code, error.detail
    return ErrorCode.NONE, None
