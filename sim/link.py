"""Links between simulated machines and the byte pipes that run over them: delay, bandwidth, cuts, slow drips.

A `Link` is one direction between two machines, so a one-way cut is one link that is down. A `Pipe` is one direction of
one connection. Bytes of a pipe arrive in the order in which they were sent, whole or not at all, as TCP
guarantees; what is sent while the link is down stays on the way and arrives some time after it is up again, as a
retransmission would. Different pipes overtake each other freely.

Invariants: (SIM-9) a pipe delivers what was put into it, in order, without gap or repeat, or breaks off; (SIM-10) a
sender learns nothing about a cut but by silence and, after `GIVE_UP_NS`, by a timeout.
"""

import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from martlet.base.randomness import Randomness
from sim.scheduler import NS_PER_MS, NS_PER_SECOND, Alarm, SimScheduler

GIVE_UP_NS: Final = 120 * NS_PER_SECOND
"""How long a kernel goes on sending the same bytes again before it breaks the connection (Linux: 15 minutes)."""

_RARELY: Final = 100
_SPLIT_ONE_IN: Final = 4
_RESEND_NS_MAX: Final = 3 * NS_PER_SECOND


@dataclass(slots=True)
class LinkQuality:
    """How good a link is; the fields may be changed while it is in use."""

    latency_ns_min: int = 100_000
    latency_ns_max: int = 2_000_000
    bytes_per_second: int = 125_000_000
    segment_bytes_max: int = 65_536
    drip_bytes: int | None = None
    """Slow drip: pieces of at most this size, one per `drip_interval_ns`."""
    drip_interval_ns: int = NS_PER_MS


LOOPBACK: Final = LinkQuality(latency_ns_min=10_000, latency_ns_max=60_000, bytes_per_second=1_000_000_000)


class Link:
    """One direction between two machines."""

    def __init__(self, scheduler: SimScheduler, randomness: Randomness, quality: LinkQuality) -> None:
        self.quality = quality
        self.is_up = True
        self._scheduler = scheduler
        self._randomness = randomness
        self._waiting: list[Callable[[], None]] = []

    def delay_ns(self, size: int) -> int:
        """How long something of that size takes this time; now and then much longer than usual."""
        quality = self.quality
        spread = quality.latency_ns_max - quality.latency_ns_min
        delay = quality.latency_ns_min + self._randomness.below(spread + 1)
        if not self._randomness.below(_RARELY):
            delay *= 10
        return delay + size * NS_PER_SECOND // quality.bytes_per_second

    def pieces(self, data: bytes) -> list[bytes]:
        """How the data is cut up on the way: readers must not depend on where."""
        quality = self.quality
        limit = quality.drip_bytes or quality.segment_bytes_max
        if quality.drip_bytes is None and len(data) > 1 and not self._randomness.below(_SPLIT_ONE_IN):
            cut = 1 + self._randomness.below(len(data) - 1)
            return [*self._whole(data[:cut], limit), *self._whole(data[cut:], limit)]
        return self._whole(data, limit)

    @staticmethod
    def _whole(data: bytes, limit: int) -> list[bytes]:
        return [data[start : start + limit] for start in range(0, len(data), limit)]

    def carry(self, callback: Callable[[], None], size: int = 64) -> None:
        """Bring a small packet over: after a delay, or some time after the link is up again."""
        self._scheduler.alarm_in(self.delay_ns(size), lambda: self.when_up(callback))

    def when_up(self, callback: Callable[[], None]) -> None:
        """Call now, or some time after the link is up again."""
        if self.is_up:
            callback()
        else:
            self._waiting.append(callback)

    def cut(self) -> None:
        self.is_up = False

    def heal(self) -> None:
        if self.is_up:
            return
        self.is_up = True
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            delay_ns = self._randomness.below(_RESEND_NS_MAX)
            self._scheduler.alarm_in(delay_ns, lambda callback=callback: self.when_up(callback))  # type: ignore[misc]

    def draw(self, limit: int) -> int:
        return self._randomness.below(limit)


class Signal(Enum):
    """What a pipe carries besides bytes; nothing comes after it."""

    END = "end"
    RESET = "reset"


class PipeReader(Protocol):
    """The end that a pipe delivers to."""

    def arrived(self, piece: "bytes | Signal") -> None: ...


class Pipe:
    """One direction of a connection: from the sender's kernel to the receiver's."""

    def __init__(self, scheduler: SimScheduler, name: str, link: Link, back: Link, window_bytes: int) -> None:
        self.name = name
        self.reader: PipeReader | None = None
        self.on_room: Callable[[], None] = lambda: None
        self.on_given_up: Callable[[], None] = lambda: None
        self._scheduler = scheduler
        self._link = link
        self._back = back
        self._window_bytes = window_bytes
        self._used_bytes = 0
        self._wire: deque[tuple[int, bytes | Signal]] = deque()
        self._last_arrival_ns = 0
        self._alarm: Alarm | None = None
        self._patience: Alarm | None = None
        self._is_stalled = False
        self._is_broken = False
        self._wants_space = False

    @property
    def free_bytes(self) -> int:
        """How many bytes the sender's kernel takes at the moment."""
        return 0 if self._is_broken else max(0, self._window_bytes - self._used_bytes)

    def send(self, data: bytes) -> None:
        """Put bytes on the way; the sender has asked for `free_bytes`."""
        self._used_bytes += len(data)
        drips = self._link.quality.drip_bytes is not None
        for piece in self._link.pieces(data):
            self._put(piece, self._link.quality.drip_interval_ns if drips else 0)

    def signal(self, signal: Signal) -> None:
        """Say that nothing more comes, after all bytes sent before."""
        self._put(signal, 0)

    def ask_for_room(self) -> None:
        """Have `on_room` called when there is some."""
        self._wants_space = True

    def taken(self, count: int) -> None:
        """The receiving process has read so much; the sender's kernel learns of it over the link back."""
        if self._wants_space or not self._back.is_up:
            self._back.carry(lambda: self._acknowledged(count))
        else:
            self._used_bytes -= count

    def lose_tail(self) -> None:
        """The sending machine has lost power: what is not far on its way never arrives, nor does an end."""
        keep = self._link.draw(len(self._wire) + 1) if self._wire else 0
        while len(self._wire) > keep:
            self._wire.pop()

    def break_off(self) -> None:
        """Deliver nothing more."""
        self._is_broken = True
        self._wire.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    def _put(self, piece: bytes | Signal, gap_ns: int) -> None:
        if self._is_broken:
            return
        size = len(piece) if isinstance(piece, bytes) else 64
        earliest = self._scheduler.now_ns + self._link.delay_ns(size)
        self._last_arrival_ns = max(earliest, self._last_arrival_ns + gap_ns)
        self._wire.append((self._last_arrival_ns, piece))
        if len(self._wire) == 1 and not self._is_stalled:
            self._wait_for_next()

    def _wait_for_next(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._wire:
            self._alarm = self._scheduler.alarm_at(self._wire[0][0], self._next_arrives)

    def _next_arrives(self) -> None:
        if not self._wire or self._is_broken:
            return
        if not self._link.is_up:
            self._is_stalled = True
            self._patience = self._scheduler.alarm_in(GIVE_UP_NS, self._give_up)
            self._link.when_up(self._goes_on)
            return
        _, piece = self._wire.popleft()
        self._wait_for_next()
        what = f"{len(piece)} {zlib.crc32(piece)}" if isinstance(piece, bytes) else piece.value
        self._scheduler.note(self.name, what)
        if self.reader is not None:
            self.reader.arrived(piece)

    def _goes_on(self) -> None:
        self._is_stalled = False
        if self._patience is not None:
            self._patience.cancel()
        self._next_arrives()

    def _give_up(self) -> None:
        if self._is_stalled and not self._is_broken:
            self.on_given_up()

    def _acknowledged(self, count: int) -> None:
        self._used_bytes -= count
        # Not for every few bytes, or pieces would get smaller and smaller; kernels avoid that too.
        if self._wants_space and 2 * self.free_bytes >= self._window_bytes:
            self._wants_space = False
            self.on_room()
