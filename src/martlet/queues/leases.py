"""Leases: who holds messages until when. One lease stands for all that a holder was handed within 50 ms.

Rules: a deadline is rounded up, so a lease never ends early; the number of leases is bounded by holders and lease time,
not by messages. A message knows its lease by a slot; a slot is used again only when no message names it any more.

Proved by: tests/unit/queues/test_leases.py, tests/properties/test_queue_engine.py
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

DEADLINE_STEP_MS: Final = 50
_NOWHERE: Final = (1 << 63) - 1


@dataclass(slots=True, eq=False)
class Lease:
    """What one holder was handed, until one instant."""

    slot: int
    serial: int
    holder: str
    deadline_ms: int
    left: int = 0
    """Messages that name it: leased, or closing with the right to come back."""
    first: int = _NOWHERE
    last: int = -1
    """All its messages in the window are within these."""
    strays: set[int] = field(default_factory=set)
    """Its messages outside of the window."""
    is_over: bool = False

    def add(self, first: int, last: int) -> None:
        self.left += last - first + 1
        self.first = min(self.first, first)
        self.last = max(self.last, last)

    def add_stray(self, offset: int) -> None:
        self.left += 1
        self.strays.add(offset)


class LeaseBook:
    """All leases of one subscription and partition."""

    __slots__ = ("_by_holder", "_deadlines", "_free", "_newest", "_serial", "_slots")

    def __init__(self) -> None:
        self._slots: list[Lease | None] = []
        self._free: list[int] = []
        self._by_holder: dict[str, dict[int, Lease]] = {}
        self._newest: dict[str, Lease] = {}
        self._deadlines: list[tuple[int, int, int]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._slots) - len(self._free)

    def __getitem__(self, slot: int) -> Lease:
        lease = self._slots[slot]
        if lease is None:
            raise KeyError(slot)
        return lease

    def open(self, holder: str, deadline_ms: int) -> Lease:
        """The lease of this holder that ends at this instant, rounded up; drop it if nothing is added."""
        deadline_ms = -(-deadline_ms // DEADLINE_STEP_MS) * DEADLINE_STEP_MS
        lease = self._newest.get(holder)
        if lease is not None and lease.deadline_ms == deadline_ms and not lease.is_over:
            return lease
        slot = self._free.pop() if self._free else len(self._slots)
        self._serial += 1
        lease = Lease(slot, self._serial, holder, deadline_ms)
        if slot == len(self._slots):
            self._slots.append(lease)
        else:
            self._slots[slot] = lease
        self._by_holder.setdefault(holder, {})[slot] = lease
        self._newest[holder] = lease
        heappush(self._deadlines, (deadline_ms, lease.serial, slot))
        return lease

    def leave(self, lease: Lease, count: int = 1) -> None:
        """This many messages no longer name this lease; without any it ends."""
        lease.left -= count
        if lease.left <= 0:
            self.drop_unused(lease)

    def leave_stray(self, lease: Lease, offset: int) -> None:
        lease.strays.discard(offset)
        self.leave(lease)

    def drop_unused(self, lease: Lease) -> None:
        if lease.left > 0 or self._slots[lease.slot] is not lease:
            return
        self._slots[lease.slot] = None
        self._free.append(lease.slot)
        of_holder = self._by_holder[lease.holder]
        del of_holder[lease.slot]
        if not of_holder:
            del self._by_holder[lease.holder]
        if self._newest.get(lease.holder) is lease:
            del self._newest[lease.holder]

    def of(self, holder: str) -> Collection[Lease]:
        """The leases of a holder, the oldest first."""
        return tuple(self._by_holder.get(holder, {}).values())

    def holders(self) -> dict[str, int]:
        """Every holder and how many messages it has."""
        return {holder: sum(lease.left for lease in leases.values()) for holder, leases in self._by_holder.items()}

    def next_deadline_ms(self) -> int | None:
        """When the next lease ends."""
        deadlines = self._deadlines
        while deadlines:
            deadline_ms, serial, slot = deadlines[0]
            lease = self._slots[slot]
            if lease is not None and lease.serial == serial:
                return deadline_ms
            heappop(deadlines)
        return None

    def pop_ended(self, now_ms: int) -> Lease | None:
        """Take out a lease whose time is over; None when there is none."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        _, _, slot = heappop(self._deadlines)
        lease = self[slot]
        lease.is_over = True
        return lease
