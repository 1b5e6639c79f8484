"""When a connection reads from its socket, and whether its peer takes the answers; nothing here knows requests.

A connection is blocked while its peer takes no answers, and while it is muted because its client is to wait (KIP-219).
A blocked connection starts no request and reads nothing, but its answers still leave.
"""

import asyncio
from collections.abc import Callable

from martlet.base.clock import Clock


class Flow:
    """Owned by one connection; without effect on a transport that it does not have yet, or that closes."""

    __slots__ = (
        "_clock",
        "_is_reading_paused",
        "_mute",
        "_unsent_bytes",
        "is_blocked",
        "stalled_since_ms",
        "transport",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_reading_paused = False
        self._unsent_bytes = 0
        self._mute: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.is_blocked = False
        self.stalled_since_ms: int | None = None
        """Since when the peer has taken nothing, although answers wait for it."""

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        if not self._is_reading_paused and self.transport is not None and not self.transport.is_closing():
            self._is_reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless the connection is blocked."""
        if self.is_blocked or not self._is_reading_paused:
            return
        if self.transport is not None and not self.transport.is_closing():
            self._is_reading_paused = False
            self.transport.resume_reading()

    def writing_paused(self) -> None:
        """The peer does not take its answers."""
        self.stalled_since_ms = self._clock.monotonic_ms()
        self._unsent_bytes = self._write_buffer_bytes()
        self.is_blocked = True
        self.pause_reading()

    def writing_resumed(self) -> None:
        """The peer has taken most of its answers."""
        self.stalled_since_ms = None
        self.is_blocked = self._mute is not None

    def is_stalled(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether the peer has taken not one byte for that long; a peer that reads slowly is not stalled."""
        if self.stalled_since_ms is None:
            return False
        unsent = self._write_buffer_bytes()
        if unsent < self._unsent_bytes:
            self._unsent_bytes = unsent
            self.stalled_since_ms = now_ms
        return now_ms - self.stalled_since_ms > timeout_ms

    def mute(self, wait_ms: int, on_end: Callable[[], None]) -> None:
        """Block for that long from now, or as long as an earlier mute lasts; then call `on_end`."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + wait_ms / 1000
        if self._mute is not None:
            if self._mute.when() >= ends_at:
                return
            self._mute.cancel()
        self._mute = loop.call_at(ends_at, self._end_mute, on_end)
        self.is_blocked = True
        self.pause_reading()

    def close(self) -> None:
        """The connection is gone."""
        self.transport = None
        if self._mute is not None:
            self._mute.cancel()

    def _end_mute(self, on_end: Callable[[], None]) -> None:
        self._mute = None
        self.is_blocked = self.stalled_since_ms is not None
        on_end()

    def _write_buffer_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.transport is not None else 0
