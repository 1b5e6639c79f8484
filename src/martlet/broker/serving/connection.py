"""One client connection: bytes to frames, frames to handlers, replies back in order, and all the limits.

The rules of framing are in `wire.frames`; this is the asyncio shell around them. No request is ever copied
here: a frame is a view into the receive buffer, handled at once or held, with reading paused, until it may start.
When small answers leave is decided by the outbox.

Invariants: SRV-1 replies leave in request order; SRV-2 a request starts only when every earlier one is answered,
except that publishes may follow unanswered publishes, so that one flush serves many; SRV-3 while a frame is held,
the peer does not take its answers or the connection is muted, nothing more is read, so a client's memory here is
bounded by one receive buffer and one write buffer; SRV-7 before a client is authenticated, its frames, its buffers and
its time are small.

Proved by: tests/unit/broker/serving/test_connection.py, tests/unit/broker/serving/test_connection_session.py
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final, Protocol, cast

from martlet.base.addresses import Address
from martlet.base.clock import Clock
from martlet.base.errors import ProtocolViolation
from martlet.base.principals import Principal
from martlet.broker.ground.listeners import ListenerOptions, ListenerProtocol
from martlet.broker.ground.request import Link, Reply
from martlet.broker.ground.session import Session, SessionState
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.serving.dispatch import Dispatcher, describe
from martlet.broker.serving.flow import Flow
from martlet.broker.serving.memory_budget import MemoryBudget
from martlet.broker.serving.outbox import Outbox
from martlet.observe.metrics import DropReason
from martlet.security.certificates import PrincipalFrom, name_in
from martlet.security.errors import AuthenticationRefused
from martlet.wire.api_keys import ApiKey
from martlet.wire.frames import FrameReceiver
from martlet.wire.headers import RequestHeader, read_request_header
from martlet.wire.primitives import Buffer

_PRODUCE: Final = int(ApiKey.PRODUCE)
_SLOWEST_BYTES_PER_MS: Final = 16
"""A request may take its receive timeout plus the time its bytes need at this rate (16 kB/s)."""
_JOIN_BYTES_MAX: Final = 16_384
_CLOSING_MS_MAX: Final = 5_000
"""Time a refused peer has to take the answers it is still owed."""
_QUIET_MS: Final = 10_000
"""A connection without requests for so long gives its receive buffer back."""
_AUTHENTICATED: Final = SessionState.AUTHENTICATED
_AUTHENTICATION_MS_MAX: Final = 10_000
"""Time a new client has to prove who it is."""
_UNKNOWN_BUFFER_BYTES: Final = 4_096
"""What the receive buffer of a client begins with that has not proven who it is."""
_TLS_WRITE_BYTES: Final = 65_536
_UNKNOWN_BYTES_MAX: Final = 65_536
"""The largest frame of such a client, and the answers that it may leave unread."""


class ConnectionOwner(Protocol):
    """The server, as its connections use it."""

    def opened(self, connection: "KafkaConnection", peer: Address) -> str | None:
        """Count a new connection; returns the reason when it must not be."""
        ...

    def closed(self, connection: "KafkaConnection") -> None: ...


class KafkaConnection(asyncio.BufferedProtocol):
    """Owned by the server; lives on its event loop from accept to close."""

    def __init__(
        self,
        settings: BrokerSettings,
        dispatcher: Dispatcher,
        budget: MemoryBudget,
        clock: Clock,
        owner: "ConnectionOwner",
        outbox: Outbox,
        listener: ListenerOptions,
    ) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._budget = budget
        self._clock = clock
        self._owner = owner
        self._outbox = outbox
        if listener.protocol.authenticates:
            self._session = Session(SessionState.UNAUTHENTICATED, self._authenticated)
            self._receiver = FrameReceiver(_UNKNOWN_BYTES_MAX, _UNKNOWN_BUFFER_BYTES)
        else:
            self._session = Session()
            self._receiver = FrameReceiver(settings.request_bytes_max)
        self._flow = Flow(clock)
        self._frames: Iterator[memoryview] = iter(())
        self._held: memoryview | None = None
        self._queue: deque[Reply] = deque()
        self._queue_is_produce = False
        self._waiting: list[Buffer] = []
        """Answers, or their pieces, that the transport gets when the turn of the event loop ends."""
        self._waiting_bytes = 0
        self._pumping = False
        self._closing_since_ms = 0
        self._closing = False
        self._draining = False
        self._transport: asyncio.Transport | None = None
        self._link = Link(Address("", 0), Address("", 0), listener=listener, session=self._session)
        self._frame_started_at_ms: int | None = None
        self.last_activity_at_ms = clock.monotonic_ms()

    # --- the event loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._flow.transport = cast(asyncio.Transport, transport)
        self._limit_writes()
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        local = transport.get_extra_info("sockname") or ("unknown", 0)
        self._link = replace(
            self._link,
            peer=Address(str(peer[0]), int(peer[1])),
            local=Address(str(local[0]), int(local[1])),
            made_at_ms=self._clock.monotonic_ms(),
        )
        reason = self._owner.opened(self, self._link.peer) or self._identify(transport)
        if reason is not None:
            self._dispatcher.report_refusal(self._link, reason)
            self.abort()

    def _identify(self, transport: asyncio.BaseTransport) -> str | None:
        """Take a client for whom its certificate names; a sentence when it names no user."""
        certificate = transport.get_extra_info("peercert")
        if not certificate or self._link.listener.protocol is not ListenerProtocol.TLS:
            return None
        try:
            name = name_in(certificate, PrincipalFrom(self._settings.tls_principal))
        except AuthenticationRefused as refusal:
            return str(refusal)
        self._session.identified(Principal("User", name))
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        for reply in self._queue:
            reply.abandon()
        self._queue.clear()
        self._held = None
        self._frames = iter(())
        self._flow.close()
        self._budget.forget(self)
        self._owner.closed(self)
        for callback in self._link.on_closed:
            callback()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        self._dispatcher.metrics.bytes_in += nbytes
        self._frames = self._receiver.received(nbytes)
        self._pump()

    def pause_writing(self) -> None:
        self._flow.writing_paused()

    def resume_writing(self) -> None:
        self._flow.writing_resumed()
        self._pump()

    # --- starting requests

    def _pump(self) -> None:
        """Start every request that may start; pause reading when one may not."""
        if self._pumping or self._closing:
            return
        self._pumping = True
        try:
            while not self._closing:
                frame = self._held if self._held is not None else next(self._frames, None)
                if frame is None:
                    self._all_frames_started()
                    return
                if not self._may_start(frame):
                    self._held = frame
                    self._flow.pause_reading()
                    return
                self._held = None
                self._start(frame)
        except ProtocolViolation as violation:
            self.refuse(str(violation))
        finally:
            self._pumping = False

    def _may_start(self, frame: memoryview) -> bool:
        if self._flow.is_blocked or self._draining:
            return False
        if not self._queue:
            return True
        if not self._queue_is_produce or self._queue[-1].holds_queue:
            return False
        is_produce = len(frame) > 1 and frame[0] == 0 and frame[1] == _PRODUCE
        return is_produce and len(self._queue) < self._settings.in_flight_requests_max

    def _start(self, frame: memoryview) -> None:
        header = read_request_header(frame)
        self.last_activity_at_ms = self._clock.monotonic_ms()
        session = self._session
        if session.state is not _AUTHENTICATED:
            if not session.admits(header.api_key):
                raise ProtocolViolation(f"{describe(header)} from a client that is {session.state.value}")
        elif session.expires_at_ms is not None and session.has_expired(self.last_activity_at_ms, header.api_key):
            self.refuse("its session is over", DropReason.AUTHENTICATION)
            return
        reply = Reply(header, self)
        self._frame_started_at_ms = None
        self._queue_is_produce = header.api_key == _PRODUCE
        self._queue.append(reply)
        self._dispatcher.start(self._link, frame, reply)

    def _all_frames_started(self) -> None:
        pending = self._receiver.pending_bytes
        if not pending:
            self._frame_started_at_ms = None
        elif self._frame_started_at_ms is None:
            self._frame_started_at_ms = self._clock.monotonic_ms()
        if self._budget.admit(self, pending):
            self._flow.resume_reading()
        else:
            self._flow.pause_reading()

    # --- replies

    def reply_ready(self) -> None:
        """Write every reply whose turn has come."""
        transport = self._transport
        queue = self._queue
        if transport is None or self._closing:
            return
        was_waiting = bool(self._waiting)
        while queue and queue[0].ready:
            reply = queue.popleft()
            for chunk in reply.chunks:
                self._waiting.append(chunk)
                self._waiting_bytes += len(chunk)
            if reply.throttle_ms:
                self._flow.mute(reply.throttle_ms, self._mute_ended)
        # What is large leaves at once: the transport says when the peer does not take it, a list of ours would not.
        is_small = self._waiting_bytes <= _JOIN_BYTES_MAX
        if self._waiting and not (is_small and (was_waiting or not self._outbox.may_send(self))):
            self.send_waiting()
        if not queue:
            if self._draining:
                self._close()
            elif self._session.state is SessionState.FAILED:
                self.refuse("it could not prove who it is", DropReason.AUTHENTICATION)
            elif not self._pumping:
                self._pump()
        elif self._held is not None and not self._pumping:
            self._pump()

    def send_waiting(self) -> None:
        """Give the transport the answers that wait; one that closes or is gone takes none, and must not hear of any."""
        chunks, size = self._waiting, self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        if not chunks or self._transport is None or self._transport.is_closing():
            return
        # Small answers go out as one piece; large ones are not copied together.
        if size <= _JOIN_BYTES_MAX:
            self._transport.write(b"".join(chunks))
        elif self._link.listener.protocol.encrypts:
            # TLS keeps a buffer as large as the largest write, for as long as the connection is open.
            for chunk in chunks:
                view = memoryview(chunk)
                for begin in range(0, len(view), _TLS_WRITE_BYTES):
                    self._transport.write(view[begin : begin + _TLS_WRITE_BYTES])
        else:
            self._transport.writelines(chunks)
        self._dispatcher.metrics.bytes_out += size

    def queue_released(self) -> None:
        """The last request in the queue lets others start."""
        self._pump()

    # --- flow control and endings

    def throttle_ms(self, header: RequestHeader) -> int:
        """How long this client has to wait after the answer that is being made."""
        return self._dispatcher.throttle(self._link, header)

    def _mute_ended(self) -> None:
        """Go on; the time in which nothing was read does not count against the client."""
        self.last_activity_at_ms = self._clock.monotonic_ms()
        self._frame_started_at_ms = None
        self._pump()

    def _authenticated(self) -> None:
        """The limits of an unknown client end; they are those of the settings from now on."""
        self._receiver.max_frame_bytes = self._settings.request_bytes_max
        self._limit_writes()

    def _limit_writes(self) -> None:
        high = self._settings.write_buffer_bytes_max // 4
        if self._session.state is not _AUTHENTICATED:
            high = min(high, _UNKNOWN_BYTES_MAX)
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=high)

    def budget_available(self) -> None:
        """The memory budget has space again."""
        self._pump()

    def refuse(self, reason: str, kind: DropReason = DropReason.PROTOCOL_VIOLATION) -> None:
        """End a connection whose peer broke the protocol or a limit, with one line in the log."""
        if not self._closing:
            self._dispatcher.report_refusal(self._link, reason)
            self.dismiss(kind)

    def dismiss(self, kind: DropReason) -> None:
        """End the connection.

        Answers to earlier requests still go out; `check_deadlines` cuts off a peer that does not take them.
        """
        if self._closing:
            return
        self._closing = True
        self._closing_since_ms = self._clock.monotonic_ms()
        self._dispatcher.metrics.connections_dropped[kind] += 1
        self._close()

    def _close(self) -> None:
        """Close once the transport has written what it has; answers that wait are its own before."""
        self.send_waiting()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection at once; unanswered requests stay unanswered."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def end_session_of(self, users: Collection[str]) -> None:
        """End the connection if its client has proven to be one of these users, who are not what they were."""
        exchange = self._session.exchange
        if exchange is not None and exchange.user in users:
            self.refuse("its user was changed or removed", DropReason.AUTHENTICATION)

    def drain(self) -> None:
        """Stop taking requests; close once those in the queue are answered."""
        self._draining = True
        self._flow.pause_reading()
        if not self._queue:
            self._close()

    def check_deadlines(self, now_ms: int) -> None:
        """Called regularly by the server: end connections that idle, drip, do not read or do not authenticate."""
        idle_ms = now_ms - self.last_activity_at_ms
        if self._closing:
            if now_ms - self._closing_since_ms > _CLOSING_MS_MAX:
                self.abort()
        elif self._flow.stalled_since_ms is not None:
            timeout_ms = self._settings.stalled_write_timeout_ms
            if self._flow.is_stalled(now_ms, timeout_ms):
                self.refuse(f"it has read none of its answers for {timeout_ms} ms", DropReason.STALLED)
                self.abort()
        elif self._is_unknown_for_too_long(now_ms):
            self.refuse(f"it was not authenticated after {_AUTHENTICATION_MS_MAX} ms", DropReason.STALLED)
        elif self._queue or self._held is not None or self._flow.is_blocked:
            return
        elif self._frame_started_at_ms is not None:
            self._check_slow_request(self._frame_started_at_ms, now_ms)
        elif idle_ms > self._settings.idle_timeout_ms:
            self._dispatcher.metrics.connections_dropped[DropReason.IDLE] += 1
            self.abort()
        elif idle_ms > _QUIET_MS:
            self._receiver.release()

    def _check_slow_request(self, started_at_ms: int, now_ms: int) -> None:
        allowed_ms = self._settings.receive_timeout_ms + self._receiver.pending_bytes // _SLOWEST_BYTES_PER_MS
        if now_ms - started_at_ms > allowed_ms:
            self.refuse(f"a request was not complete after {allowed_ms} ms", DropReason.STALLED)

    def _is_unknown_for_too_long(self, now_ms: int) -> bool:
        is_unknown = self._session.state is SessionState.UNAUTHENTICATED
        return is_unknown and now_ms - self._link.made_at_ms > _AUTHENTICATION_MS_MAX
