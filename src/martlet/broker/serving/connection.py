"""One client connection: bytes to frames, frames to handlers, replies back in order, and all the limits.

The rules of framing are in `wire.frames`; this is the asyncio shell around them. No request is ever copied
here: a frame is a view into the receive buffer, handled at once or held, with reading paused, until it may start.
When small answers leave is the outbox's to say.

Invariants: (K1) replies leave in request order; (K2) a request starts only when every earlier one is answered,
except that publishes may follow unanswered publishes, so that one flush serves many; (K3) while a frame is held
or the peer does not take its answers, nothing more is read, so a client's memory here is bounded by one receive
buffer and one write buffer.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol, cast

from martlet.base.addresses import Address
from martlet.base.clock import Clock
from martlet.base.errors import ProtocolViolation
from martlet.broker.ground.request import Link, Reply
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.serving.dispatch import Dispatcher
from martlet.broker.serving.memory_budget import MemoryBudget
from martlet.broker.serving.outbox import Outbox
from martlet.observe.metrics import DropReason
from martlet.wire.api_keys import ApiKey
from martlet.wire.frames import FrameReceiver
from martlet.wire.headers import read_request_header
from martlet.wire.primitives import Buffer

_PRODUCE: Final = int(ApiKey.PRODUCE)
_SLOWEST_BYTES_PER_MS: Final = 16
"""A request may take its receive timeout plus the time its bytes need at this rate (16 kB/s)."""


_JOIN_BYTES_MAX: Final = 16_384
_CLOSING_MS_MAX: Final = 5_000
"""Time a refused peer has to take the answers it is still owed."""
_QUIET_MS: Final = 10_000
"""A connection without requests for so long gives its receive buffer back."""


class ConnectionOwner(Protocol):
    """The listener, as far as a connection cares."""

    def opened(self, connection: "KafkaConnection", peer: Address) -> str | None:
        """Told of a new connection; answers with the reason when it must not be."""
        ...

    def closed(self, connection: "KafkaConnection") -> None: ...


class KafkaConnection(asyncio.BufferedProtocol):
    """Owned by the listener; lives on its event loop from accept to close."""

    def __init__(
        self,
        settings: BrokerSettings,
        dispatcher: Dispatcher,
        budget: MemoryBudget,
        clock: Clock,
        owner: "ConnectionOwner",
        outbox: Outbox,
    ) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._budget = budget
        self._clock = clock
        self._owner = owner
        self._outbox = outbox
        self._receiver = FrameReceiver(settings.request_bytes_max)
        self._frames: Iterator[memoryview] = iter(())
        self._held: memoryview | None = None
        self._line: deque[Reply] = deque()
        self._waiting: list[Buffer] = []
        """Answers, or their pieces, that are the transport's when the turn of the event loop ends."""
        self._waiting_bytes = 0
        self._line_is_produce = False
        self._pumping = False
        self._reading_paused = False
        self._writing_paused_at_ms: int | None = None
        self._unsent_bytes = 0
        self._closing_since_ms = 0
        self._closing = False
        self._draining = False
        self._transport: asyncio.Transport | None = None
        self._link = Link(Address("", 0), Address("", 0))
        self._frame_started_at_ms: int | None = None
        self.last_activity_at_ms = clock.monotonic_ms()

    # --- the event loop's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._settings.write_buffer_bytes_max // 4)
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        local = transport.get_extra_info("sockname") or ("unknown", 0)
        made_at_ms = self._clock.monotonic_ms()
        self._link = Link(Address(str(peer[0]), int(peer[1])), Address(str(local[0]), int(local[1])), made_at_ms)
        reason = self._owner.opened(self, self._link.peer)
        if reason is not None:
            self._dispatcher.report_refusal(self._link, reason)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        for reply in self._line:
            reply.abandon()
        self._line.clear()
        self._held = None
        self._frames = iter(())
        self._budget.forget(self)
        self._owner.closed(self)

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
        self._writing_paused_at_ms = self._clock.monotonic_ms()
        self._unsent_bytes = self._write_buffer_bytes()
        self._pause_reading()

    def resume_writing(self) -> None:
        self._writing_paused_at_ms = None
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
                    self._pause_reading()
                    return
                self._held = None
                self._start(frame)
        except ProtocolViolation as violation:
            self.refuse(str(violation))
        finally:
            self._pumping = False

    def _may_start(self, frame: memoryview) -> bool:
        if self._writing_paused_at_ms is not None or self._draining:
            return False
        if not self._line:
            return True
        if not self._line_is_produce or self._line[-1].holds_line:
            return False
        is_produce = len(frame) > 1 and frame[0] == 0 and frame[1] == _PRODUCE
        return is_produce and len(self._line) < self._settings.in_flight_requests_max

    def _start(self, frame: memoryview) -> None:
        header = read_request_header(frame)
        self.last_activity_at_ms = self._clock.monotonic_ms()
        reply = Reply(header, self)
        self._frame_started_at_ms = None
        self._line_is_produce = header.api_key == _PRODUCE
        self._line.append(reply)
        self._dispatcher.start(self._link, frame, reply)

    def _all_frames_started(self) -> None:
        pending = self._receiver.pending_bytes
        if not pending:
            self._frame_started_at_ms = None
        elif self._frame_started_at_ms is None:
            self._frame_started_at_ms = self._clock.monotonic_ms()
        if self._budget.admit(self, pending):
            self._resume_reading()
        else:
            self._pause_reading()

    # --- replies

    def reply_ready(self) -> None:
        """Write every reply whose turn has come."""
        transport = self._transport
        line = self._line
        if transport is None or self._closing:
            return
        was_waiting = bool(self._waiting)
        while line and line[0].ready:
            for chunk in line.popleft().chunks:
                self._waiting.append(chunk)
                self._waiting_bytes += len(chunk)
        # What is large leaves at once: the transport says when the peer does not take it, a list of ours would not.
        is_small = self._waiting_bytes <= _JOIN_BYTES_MAX
        if self._waiting and not (is_small and (was_waiting or not self._outbox.may_send(self))):
            self.send_waiting()
        if not line:
            if self._draining:
                self._close()
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
        else:
            self._transport.writelines(chunks)
        self._dispatcher.metrics.bytes_out += size

    def line_released(self) -> None:
        """The last request in the line lets others start."""
        self._pump()

    # --- flow control and endings

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None and not self._transport.is_closing():
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused and self._transport is not None and not self._transport.is_closing():
            self._reading_paused = False
            self._transport.resume_reading()

    def budget_available(self) -> None:
        """The memory budget has room again."""
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

    def drain(self) -> None:
        """Stop taking requests; close once those in the line are answered."""
        self._draining = True
        self._pause_reading()
        if not self._line:
            self._close()

    def check_deadlines(self, now_ms: int) -> None:
        """Called now and then by the listener: end connections that idle, drip or do not read."""
        settings = self._settings
        idle_ms = now_ms - self.last_activity_at_ms
        if self._closing:
            if now_ms - self._closing_since_ms > _CLOSING_MS_MAX:
                self.abort()
        elif self._writing_paused_at_ms is not None:
            self._check_stalled_writes(self._writing_paused_at_ms, now_ms)
        elif self._line or self._held is not None:
            return
        elif self._frame_started_at_ms is not None:
            allowed_ms = settings.receive_timeout_ms + self._receiver.pending_bytes // _SLOWEST_BYTES_PER_MS
            if now_ms - self._frame_started_at_ms > allowed_ms:
                self.refuse(f"a request was not complete after {allowed_ms} ms", DropReason.STALLED)
        elif idle_ms > settings.idle_timeout_ms:
            self._dispatcher.metrics.connections_dropped[DropReason.IDLE] += 1
            self.abort()
        elif idle_ms > _QUIET_MS:
            self._receiver.release()

    def _check_stalled_writes(self, paused_at_ms: int, now_ms: int) -> None:
        unsent = self._write_buffer_bytes()
        if unsent < self._unsent_bytes:
            # It reads slowly, but it reads.
            self._unsent_bytes = unsent
            self._writing_paused_at_ms = now_ms
        elif now_ms - paused_at_ms > self._settings.stalled_write_timeout_ms:
            timeout_ms = self._settings.stalled_write_timeout_ms
            self.refuse(f"it has read none of its answers for {timeout_ms} ms", DropReason.STALLED)
            self.abort()

    def _write_buffer_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0
