"""Which brokers went without a word a moment ago, so that clients are not told of the loss and the new leader at once.

librdkafka, told in one answer that a broker is gone and that another leads its partition, first takes the new leader,
then dissolves the old broker and with it what it has just learned, and asks again a second later. A dead broker that
is still listed while its partitions find their leaders costs no client anything: it was listed for the whole time of
its lease before. It is never named as a leader. A broker that left cleanly led nothing when it went, and is not
listed on.

Proved by: tests/unit/broker/test_departures.py, tests/sim/test_replication.py; measured by `./dev bench failover`
"""

from typing import Final

from martlet.base.clock import Clock
from martlet.base.ids import BrokerId
from martlet.cluster.image import ImageDelta

LISTED_ON_MS: Final = 3_000
"""Clients without a leader ask every second; one of those answers may be lost."""


class Departures:
    """Follows the metadata image of one broker."""

    __slots__ = ("_clock", "_gone_at_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone_at_ms: dict[BrokerId, int] = {}

    def follow(self, delta: ImageDelta) -> None:
        """A step of the image."""
        for before, after in delta.live:
            if after is not None:
                self._gone_at_ms.pop(after.broker, None)
            elif before is not None and not before.leaving:
                self._gone_at_ms[before.broker] = self._clock.monotonic_ms()

    def recent(self) -> frozenset[BrokerId]:
        """Who went so lately that clients are still told of it."""
        since_ms = self._clock.monotonic_ms() - LISTED_ON_MS
        return frozenset(broker for broker, gone_ms in self._gone_at_ms.items() if gone_ms > since_ms)
