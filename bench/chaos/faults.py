"""The faults of the chaos run: what can be done to a cluster, for how long, and how it is undone.

Rules: a fault that cannot be done now (its victim is down already, the store is away) is not done: `begin` returns None
and another one is tried. A disk is wiped only when every replica of every partition is in sync, and no second one until
that is so again: that is as much as the promise covers with `min.insync.replicas=2`. Everything else may overlap.

A broker that ended by itself is started again, as a service manager would; whether it was allowed to end is judged by
who reads `exits`.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from tests.cluster.links import CLIENTS, STORE, Cut
from tests.cluster.running_cluster import RunningCluster

Undo: TypeAlias = Callable[[], None]

_RESTART_SECONDS: Final = 0.5
_DELAYS_SECONDS: Final = (0.02, 0.4)
_STRANGE_CHANGES: Final = 20
_DAMAGED_SHARE: Final = 0.3
"""Of the disks that are lost, this share is only damaged."""
_CHECKED_FROM: Final = 21
"""The byte of a batch from which on its checksum holds."""
_ORDER_SECONDS_MAX: Final = 15.0


class Kind(Enum):
    """Counted apart; the network has shapes of its own."""

    KILL = "kill -9 and restart"
    STOP = "clean stop and restart"
    PAUSE = "SIGSTOP beyond the lease"
    NETWORK = "network cut"
    STORE_KILL = "etcd killed"
    STORE_PAUSE = "etcd paused"
    STORE_COMPACT = "etcd compacted"
    WIPE = "disk wiped or damaged"
    MOVE = "partitions moved or leaders elected"


@dataclass
class Fault:
    """One that is in force."""

    kind: Kind
    shape: str
    undo: Undo
    ends_at: float
    links: bool = False
    """It has cut links, and no other fault may heal them."""
    store: bool = False
    brokers: frozenset[int] = frozenset()
    """Down or paused by it."""


@dataclass
class Exit:
    """A broker that ended by itself."""

    broker: int
    last_words: str
    store_was_away: bool


@dataclass
class Faults:
    """All faults of a run. One thread calls it."""

    cluster: RunningCluster
    chance: random.Random
    is_all_in_sync: Callable[[], bool]
    order: Callable[[], threading.Thread]
    """Have the operator order something; the thread ends when it is ordered."""
    active: list[Fault] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    _orders: list[threading.Thread] = field(default_factory=list)
    _store_away_at: float = float("-inf")
    _restarts: dict[int, float] = field(default_factory=dict)

    def begin(self, kind: Kind) -> Fault | None:
        """Do it if it can be done now."""
        begin = {
            Kind.KILL: self._kill,
            Kind.STOP: self._stop,
            Kind.PAUSE: self._pause,
            Kind.NETWORK: self._network,
            Kind.STORE_KILL: self._store_kill,
            Kind.STORE_PAUSE: self._store_pause,
            Kind.STORE_COMPACT: self._store_compact,
            Kind.WIPE: self._wipe,
            Kind.MOVE: self._move,
        }[kind]
        fault = begin()
        if fault is not None:
            self.active.append(fault)
        return fault

    def end_due(self) -> None:
        """Undo what is over, and start again what ended by itself."""
        now = time.monotonic()
        for fault in [fault for fault in self.active if fault.ends_at <= now]:
            self._end(fault)
        self._supervise()

    def end_all(self) -> None:
        for fault in tuple(self.active):
            self._end(fault)
        self.cluster.heal(deliver=self.chance.random() < 0.5)
        for order in self._orders:
            order.join(_ORDER_SECONDS_MAX)
        self._orders.clear()
        self._supervise()

    def _end(self, fault: Fault) -> None:
        self.active.remove(fault)
        if fault.store or fault.links:
            self._store_away_at = time.monotonic()
        fault.undo()

    def _supervise(self) -> None:
        down = {number for fault in self.active for number in fault.brokers}
        now = time.monotonic()
        for number, broker in self.cluster.brokers.items():
            if number in down or broker.is_running:
                continue
            if number not in self._restarts:
                self._restarts[number] = now + _RESTART_SECONDS
                grace = 4 * self.cluster.lease_seconds
                away = any(fault.store or fault.links for fault in self.active) or now - self._store_away_at < grace
                self.exits.append(Exit(number, broker.tail(3), away))
            elif now >= self._restarts[number]:
                del self._restarts[number]
                self.cluster.kill(number)  # it has ended; this lets go of it
                self.cluster.start(number, wait=False)

    def _victims(self) -> list[int]:
        """Brokers that nothing is done to yet; none, one, two or all of them."""
        touched = {number for fault in self.active for number in fault.brokers}
        free = [
            number for number, broker in self.cluster.brokers.items() if number not in touched and broker.is_running
        ]
        count = self.chance.choices((1, 2, 3), (75, 15, 10))[0]
        return self.chance.sample(free, min(count, len(free)))

    def _lasting(self, low: float, high: float) -> float:
        """A moment N leases from now."""
        return time.monotonic() + self.chance.uniform(low, high) * self.cluster.lease_seconds

    def _kill(self) -> Fault | None:
        victims = self._victims()
        if not victims:
            return None
        for number in victims:
            self.cluster.kill(number)
        return Fault(
            Kind.KILL,
            f"{len(victims)} at once",
            self._starting(victims),
            self._lasting(0.0, 1.8),
            brokers=frozenset(victims),
        )

    def _starting(self, numbers: Sequence[int]) -> Undo:
        def start() -> None:
            for number in numbers:
                self.cluster.start(number, wait=False)

        return start

    def _stop(self) -> Fault | None:
        victims = self._victims()[:1]
        if not victims:
            return None
        (number,) = victims
        self.cluster.brokers[number].ask_to_stop()

        def restart() -> None:
            self.cluster.stop(number)
            self.cluster.start(number, wait=False)

        return Fault(Kind.STOP, "one", restart, self._lasting(0.3, 1.5), brokers=frozenset(victims))

    def _pause(self) -> Fault | None:
        victims = self._victims()
        if not victims:
            return None
        for number in victims:
            self.cluster.pause(number)

        def resume() -> None:
            for number in victims:
                self.cluster.resume(number)

        shape = f"{len(victims)} at once"
        return Fault(Kind.PAUSE, shape, resume, self._lasting(1.2, 2.5), brokers=frozenset(victims))

    def _wipe(self) -> Fault | None:
        if self.active or not self.is_all_in_sync():
            return None
        number = self.chance.choice(list(self.cluster.brokers))
        self.cluster.wipe(number)
        return Fault(Kind.WIPE, "one", self._starting([number]), self._lasting(0.0, 1.5), brokers=frozenset({number}))

    def _move(self) -> Fault | None:
        self._orders.append(self.order())
        return Fault(Kind.MOVE, "one order", _nothing, time.monotonic())

    def _store_kill(self) -> Fault | None:
        if any(fault.store for fault in self.active):
            return None
        self.cluster.etcd.kill()
        return Fault(Kind.STORE_KILL, "one", self.cluster.etcd.start, self._lasting(0.0, 1.8), store=True)

    def _store_pause(self) -> Fault | None:
        if any(fault.store for fault in self.active):
            return None
        self.cluster.etcd.pause()
        return Fault(Kind.STORE_PAUSE, "one", self.cluster.etcd.resume, self._lasting(0.2, 2.0), store=True)

    def _store_compact(self) -> Fault | None:
        """Forget the history at once, or under a broker that cannot follow it meanwhile."""
        if any(fault.store for fault in self.active):
            return None
        etcd = self.cluster.etcd
        if any(fault.links for fault in self.active) or self.chance.random() < 0.4:
            etcd.put_as_a_stranger(_STRANGE_CHANGES)
            etcd.compact(etcd.revision())
            return Fault(Kind.STORE_COMPACT, "under all", _nothing, time.monotonic())
        number = self.chance.choice(list(self.cluster.brokers))
        self.cluster.links.cut(number, STORE, self.chance.choice(list(Cut)))

        def compact_and_heal() -> None:
            etcd.put_as_a_stranger(_STRANGE_CHANGES)
            etcd.compact(etcd.revision())
            self.cluster.links.heal(number, STORE, deliver=self.chance.random() < 0.5)

        ends_at = self._lasting(0.2, 1.5)
        return Fault(Kind.STORE_COMPACT, "under one cut off", compact_and_heal, ends_at, links=True, store=True)

    def _network(self) -> Fault | None:
        if any(fault.links for fault in self.active):
            return None
        shapes = (
            self._cut_link,
            self._cut_one_way,
            self._cut_off,
            self._cut_from_store,
            self._cut_all_from_store,
            self._cut_from_clients,
            self._cut_pair,
            self._slow_down,
        )
        shape = self.chance.choice(shapes)()

        def heal() -> None:
            self.cluster.heal(deliver=self.chance.random() < 0.7)

        return Fault(Kind.NETWORK, shape, heal, self._lasting(0.1, 2.5), links=True)

    def _cut_link(self) -> str:
        source, target = self._two()
        how = self.chance.choice(list(Cut))
        self.cluster.links.cut(source, target, how)
        return f"one link, {how.value}"

    def _cut_one_way(self) -> str:
        source, target = self._two()
        self.cluster.cut_one_way(source, target)
        return "a pair, one way"

    def _cut_pair(self) -> str:
        one, other = self._two()
        how = self.chance.choice((Cut.CLOSED, Cut.SILENT))
        self.cluster.links.cut(one, other, how)
        self.cluster.links.cut(other, one, how)
        return f"a pair, {how.value}"

    def _cut_off(self) -> str:
        how = self.chance.choice((Cut.CLOSED, Cut.SILENT))
        store = self.chance.random() < 0.5
        self.cluster.isolate(self._one(), how, store=store)
        return f"a broker from the others{' and the store' if store else ''}, {how.value}"

    def _cut_from_store(self) -> str:
        how = self.chance.choice(list(Cut))
        self.cluster.links.cut(self._one(), STORE, how)
        return f"a broker from the store, {how.value}"

    def _cut_all_from_store(self) -> str:
        how = self.chance.choice(list(Cut))
        for number in self.cluster.brokers:
            self.cluster.links.cut(number, STORE, how)
        return f"all brokers from the store, {how.value}"

    def _cut_from_clients(self) -> str:
        how = self.chance.choice(list(Cut))
        self.cluster.links.cut(CLIENTS, self._one(), how)
        return f"clients from a broker, {how.value}"

    def _slow_down(self) -> str:
        number, seconds = self._one(), self.chance.uniform(*_DELAYS_SECONDS)
        for other in (CLIENTS, *self.cluster.brokers):
            if other != number:
                self.cluster.links.delay(other, number, seconds)
                if other != CLIENTS:
                    self.cluster.links.delay(number, other, seconds)
        self.cluster.links.delay(number, STORE, seconds)
        return "all links of a broker slow"

    def _one(self) -> int:
        return self.chance.choice(list(self.cluster.brokers))

    def _two(self) -> list[int]:
        return self.chance.sample(list(self.cluster.brokers), 2)


def _nothing() -> None:
    """Nothing is left to undo."""
