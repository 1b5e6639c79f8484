"""What a handler is given and how it answers: a request's context and its place in the connection's response queue.

Replies of one connection leave in the order of its requests, whatever order they become ready in (SRV-1).
`Reply` is a place in the queue; the connection owns the queue.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from martlet.base.addresses import Address
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.principals import Principal
from martlet.broker.ground.listeners import DEFAULT_LISTENER, ListenerOptions
from martlet.broker.ground.session import Session
from martlet.observe.metrics import DropReason
from martlet.wire.headers import RequestHeader, response_prefix
from martlet.wire.primitives import Buffer

_LISTENER: Final = ListenerOptions(DEFAULT_LISTENER, Address("", 0))


@dataclass(frozen=True, slots=True)
class Link:
    """A connection as its requests know it."""

    peer: Address
    local: Address
    """The address by which the client came."""
    made_at_ms: int = 0
    """When it came, by the clock that never goes back."""
    listener: ListenerOptions = _LISTENER
    session: Session = field(default_factory=Session)
    on_closed: list[Callable[[], None]] = field(default_factory=list, compare=False)
    """Called when the connection is gone, after its open requests were abandoned."""

    @property
    def principal(self) -> Principal:
        """Who the client is."""
        return self.session.principal

    @property
    def own_address(self) -> Address:
        """Where this client finds this broker."""
        return self.listener.advertised or self.local


class RequestContext(NamedTuple):
    """What a handler may know besides the request itself."""

    link: Link
    version: int
    client_id: str | None


class ResponseQueue(Protocol):
    """The connection, as its replies use it."""

    def reply_ready(self) -> None: ...

    def queue_released(self) -> None: ...

    def throttle_ms(self, header: RequestHeader) -> int: ...

    def refuse(self, reason: str, kind: DropReason = ...) -> None: ...


class Reply:
    """One request's place in its connection's response queue; completed exactly once."""

    __slots__ = ("_queue", "abandoned", "chunks", "header", "holds_queue", "on_abandoned", "ready", "throttle_ms")

    def __init__(self, header: RequestHeader, queue: ResponseQueue) -> None:
        self.header = header
        self.ready = False
        self.holds_queue = False
        """Set while no later request may start, although publishes otherwise may follow publishes."""
        self.chunks: Sequence[Buffer] = ()
        self.abandoned = False
        self.on_abandoned: Callable[[], None] | None = None
        """Called when the connection is gone before the reply is ready."""
        self.throttle_ms = 0
        """For so long no request of this client starts after this reply (KIP-219)."""
        self._queue = queue

    def throttle(self) -> int:
        """What `throttle_time_ms` of the answer says; called once, when the answer is made."""
        self.throttle_ms = self._queue.throttle_ms(self.header)
        return self.throttle_ms

    def send(self, chunks: Sequence[Buffer]) -> None:
        """Give the body of the response; an empty sequence answers with an empty body."""
        if self.ready or self.abandoned:
            return
        size = sum(map(len, chunks))
        header = self.header
        prefix = response_prefix(header.correlation_id, header.api_key, header.api_version, size)
        self.chunks = (prefix, *chunks)
        self.ready = True
        self._queue.reply_ready()

    def send_nothing(self) -> None:
        """Leave the queue without a response, as a publish with acks=0 does."""
        if self.ready or self.abandoned:
            return
        self.ready = True
        self._queue.reply_ready()

    def release_queue(self) -> None:
        """Let later requests start although this one is not answered yet."""
        self.holds_queue = False
        if not self.abandoned:
            self._queue.queue_released()

    def abandon(self) -> None:
        """The connection is gone: nothing takes this reply any more."""
        self.abandoned = True
        if not self.ready and self.on_abandoned is not None:
            self.on_abandoned()

    def refuse(self, reason: str, kind: DropReason) -> None:
        """Close the connection instead of answering, where the answer has no place for the error."""
        if not self.abandoned:
            self._queue.refuse(reason, kind)


async def outcome_of(change: Awaitable[object]) -> tuple[ErrorCode, str | None]:
    """Error code and message of one change among several that succeed or fail on their own."""
    try:
        await change
    except ApiError as error:
        return error.code, error.detail
    return ErrorCode.NONE, None
