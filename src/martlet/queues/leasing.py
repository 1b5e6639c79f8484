"""Which messages a lease gets: the oldest first, or in the order that levels, keys and ends demand.

Rules: what is leased together is limited by the attempt of each (`RetryPolicy.group_sizes`): a suspect begins a lease
of its own, and at its last attempt it is alone. Whatever is leased here waits, in the window or as a stray.

Proved by: tests/unit/queues/test_engine.py, tests/unit/queues/test_frontier.py, tests/properties/test_queue_engine.py
"""

from collections.abc import Sequence
from typing import NamedTuple

from martlet.queues.cells import LEASED
from martlet.queues.delivery_order import DeliveryOrder
from martlet.queues.leases import Lease
from martlet.queues.ledger import Ledger


class Delivery(NamedTuple):
    """Neighbours handed to a holder, all for the `count`-th time."""

    first: int
    last: int
    attempts: int


class Grant:
    """One lease while it is filled."""

    __slots__ = ("_group_sizes", "_ledger", "deliveries", "lease", "most", "taken")

    def __init__(self, ledger: Ledger, lease: Lease, limit: int, group_sizes: Sequence[int]) -> None:
        self.lease = lease
        self.most = limit
        """How many may be leased together, as far as is known."""
        self.taken = 0
        self.deliveries: list[Delivery] = []
        self._ledger = ledger
        self._group_sizes = group_sizes

    def takes(self, attempt: int) -> bool:
        """Whether one that is leased for this time fits in; if not, nothing more does."""
        together = min(self.most, self._group_sizes[attempt])
        self.most = max(self.taken, together)
        return self.taken < self.most

    # --- the oldest first

    def fill_in_order(self, fresh_max: int) -> None:
        """Strays, then what waits in the window, then so many that were never leased."""
        strays, window = self._ledger.strays, self._ledger.window
        while self.taken < self.most and (stray := strays.first_waiting()) is not None:
            if not self.takes(stray.attempts + 1):
                return
            self._take_stray(stray.offset)
        while self.taken < self.most and (first := window.next_waiting()) is not None:
            count = window.attempts(first) + 1
            if not self.takes(count):
                return
            run = window.run_at(first, self.most - self.taken)
            window.lease(first, run.last, count, self.lease.slot)
            self._took(first, run.last, count)
        length = min(self.most - self.taken, fresh_max)
        if length > 0:
            first = window.open(length, LEASED, 1, self.lease.slot)
            self._took(first, first + length - 1, 1)

    def _take_stray(self, offset: int) -> None:
        stray = self._ledger.strays[offset]
        stray.attempts += 1
        stray.slot = self.lease.slot
        self._ledger.strays.set_cell(stray, LEASED)
        self.lease.add_stray(offset)
        self.deliveries.append(Delivery(offset, offset, stray.attempts))
        self.taken += 1

    def _took(self, first: int, last: int, count: int) -> None:
        self.lease.add(first, last)
        self.deliveries.append(Delivery(first, last, count))
        self.taken += last - first + 1

    # --- in the order of delivery

    def fill_by(self, order: DeliveryOrder, now_ms: int) -> None:
        """What the order hands out."""
        strays, window = self._ledger.strays, self._ledger.window
        while self.taken < self.most and (offset := order.next(now_ms)) is not None:
            stray = strays.get(offset)
            count = 1 + (window.attempts(offset) if stray is None else stray.attempts)
            if not self.takes(count):
                order.column.undo()
                break
            if stray is not None:
                self._take_stray(offset)
                continue
            window.lease(offset, offset, count, self.lease.slot)
            self._took(offset, offset, count)
        self._unite()

    def _unite(self) -> None:
        """Sort what was leased, and make one of neighbours of one attempt."""
        found: list[Delivery] = []
        for delivery in sorted(self.deliveries):
            if found and found[-1].last + 1 == delivery.first and found[-1].attempts == delivery.attempts:
                found[-1] = Delivery(found[-1].first, delivery.last, delivery.attempts)
            else:
                found.append(delivery)
        self.deliveries = found
