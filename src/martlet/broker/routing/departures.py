"""What went lately and clients still ask for: brokers that died a moment ago, names of topics that were deleted.

librdkafka, when one answer says both that a broker is gone and that another leads its partition, loses what it has just
learned and asks again a second later. So a dead broker is still listed while its partitions find their leaders, but
never named as a leader; not one that left cleanly, and not to a connection made later (kafka-python ends a call with
an error when the broker that it tries by chance refuses).

A deleted topic that a client names could be created again by that very question. A client that checks whether it is
gone must hear so, so the first question creates nothing, nor do those that follow it closely (decision 0022).

Proved by: tests/unit/broker/routing/test_departures.py, tests/broker/test_admin_apis.py, tests/sim/test_replication.py;
measured by `./dev bench failover`
"""

from typing import Final

from martlet.base.clock import Clock
from martlet.base.ids import BrokerId
from martlet.cluster.image import ImageDelta

LISTED_ON_MS: Final = 3_000
"""Clients without a leader ask every second; one of those answers may be lost."""
GONE_MS: Final = 250
"""So long a deleted topic stays away after the first question for it; clients ask again after 100 ms."""
TOPICS_MAX: Final = 1_000
"""Names remembered; the oldest is forgotten first."""


class Departures:
    """Follows the metadata image of one broker."""

    __slots__ = ("_clock", "_gone_at_ms", "_topics")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gone_at_ms: dict[BrokerId, int] = {}
        self._topics: dict[str, int | None] = {}
        """Deleted ones, and when a client first asked for them again."""

    def follow(self, delta: ImageDelta) -> None:
        """A step of the image."""
        for before, after in delta.live:
            if after is not None:
                self._gone_at_ms.pop(after.broker, None)
            elif before is not None and not before.leaving:
                self._gone_at_ms[before.broker] = self._clock.monotonic_ms()
        for topic in delta.topics_deleted:
            self._topics[topic.name] = None
        for topic in delta.topics_created:
            self._topics.pop(topic.name, None)
        while len(self._topics) > TOPICS_MAX:
            del self._topics[next(iter(self._topics))]

    def recent(self, known_since_ms: int) -> frozenset[BrokerId]:
        """Who went so lately that a client, connected since then, still hears of it."""
        since_ms = max(known_since_ms, self._clock.monotonic_ms() - LISTED_ON_MS)
        return frozenset(broker for broker, gone_ms in self._gone_at_ms.items() if gone_ms > since_ms)

    def lets_return(self, name: str) -> bool:
        """Whether a client that asks for this name, which no topic has, may have one made."""
        if name not in self._topics:
            return True
        now_ms, asked_ms = self._clock.monotonic_ms(), self._topics[name]
        if asked_ms is None:
            self._topics[name] = now_ms
            return False
        return now_ms - asked_ms >= GONE_MS
