"""How long a holder may rely on its lease: the rule of self-fencing, as arithmetic. Pure; the holder's clock comes in.

A lease in the store says when others may take over; it does not stop the one who held it. That is this module's part:
the holder of a lease acts on it only until a deadline by its own clock, which is earlier than any moment at which the
store can have let the lease run out.

How it works: the store counts the lease's time from when a grant or renewal reached it, which is never before it was
sent. So the deadline is the time just before sending, plus the lease's time, minus a margin for clocks that run at
slightly different speeds. A renewal counts only when its answer has come; when answers overtake each other, the
latest sending counts. After the deadline the holder waits; if a renewal is answered well after all, the store never
let the lease run out, no other can have taken over, and the holder goes on.

The clock must go on while the machine sleeps and never jump: `Clock.monotonic_ms`, which is CLOCK_BOOTTIME.

Invariants:
CLS-15 the deadline never goes back, and a lease that the store has called lost never comes back;
CLS-16 safety never rests on this alone: every change of the cluster's state is a compare-and-swap besides.

Proved by: tests/unit/cluster/test_leases.py
"""

from typing import Final

from martlet.base.invariant import invariant

MARGIN_FRACTION: Final = 5
"""The margin is a fifth of the lease's time …"""

MARGIN_MS_MAX: Final = 1_000
"""… but a second at most: clocks do not drift apart by more while a lease runs."""

RENEWALS_PER_LEASE: Final = 3
"""How often a holder tries to renew in the time of a lease."""


class LeaseTerm:
    """The time in which one holder may act on one lease; made when the grant was answered."""

    __slots__ = ("_deadline_ms", "_is_lost", "_renew_every_ms", "_span_ms")

    def __init__(self, ttl_ms: int, sent_at_ms: int) -> None:
        """`sent_at_ms` is the time just before the grant was sent."""
        margin_ms = min(ttl_ms // MARGIN_FRACTION, MARGIN_MS_MAX)
        self._span_ms = ttl_ms - margin_ms
        invariant(self._span_ms > 0, "a lease is longer than its margin")
        self._renew_every_ms = max(1, ttl_ms // RENEWALS_PER_LEASE)
        self._deadline_ms = sent_at_ms + self._span_ms
        self._is_lost = False

    @property
    def deadline_ms(self) -> int:
        """From here on the holder must not act on the lease."""
        return self._deadline_ms

    @property
    def renew_at_ms(self) -> int:
        """When to send the next renewal if the last one was answered."""
        return self._deadline_ms - self._span_ms + self._renew_every_ms

    def is_held(self, now_ms: int) -> bool:
        """Whether the holder may act now."""
        return not self._is_lost and now_ms < self._deadline_ms

    def renewed(self, sent_at_ms: int) -> None:
        """A renewal sent at that time was answered well; also after the deadline, for the lease was alive then."""
        self._deadline_ms = max(self._deadline_ms, sent_at_ms + self._span_ms)

    def lost(self) -> None:
        """The store said that the lease is gone."""
        self._is_lost = True
