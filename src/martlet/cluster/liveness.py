"""Which broker processes are alive, and from when on a missing one counts as gone.

Rules: pure; the clock's time comes in. Nothing here is stored: that a broker is *fenced* is a judgement of the
controller, and what it does about it compares the very keys that the judgement was made from.

How it works: a broker's registration (`broker/<id>`) stays for ever and names its latest process. That process also
keeps a key under its lease (`live/<id>`) with its incarnation. Both together say that it is *alive*. Registered without
a living process of that incarnation it is *missing*. A store that was away may come back with every lease gone at once,
and a new controller has not seen who is there; so a controller begins by waiting for the time of a whole lease, in
which every process that runs can show itself, and then fences a few per second at most (`FencingGuard`). Until then a
missing broker is *waited for*. What an earlier process of a broker led is over as soon as a later one is registered;
that needs no waiting.

Invariants:
CLS-17 a broker is alive only while its registration and its leased key name the same incarnation;
CLS-18 no broker is fenced in the controller's first lease period, and never more per second than allowed;
CLS-19 a broker that shows itself is not fenced from then on.

Proved by: tests/unit/cluster/test_liveness.py, tests/properties/test_controller.py
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from martlet.base.ids import BrokerId, Member
from martlet.base.invariant import invariant
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import CONTROLLER_KEY, broker_key, live_key
from martlet.cluster.records import BrokerRecord, LiveRecord, RoleRecord, encode_record
from martlet.cluster.store import CommitPlan

FENCINGS_PER_SECOND: Final = 2
_SECOND_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class BrokerStates:
    """The registered brokers, by what can be expected of them."""

    alive: Mapping[BrokerId, BrokerRecord] = field(default_factory=dict)
    """Processes that hold their lease, the leaving ones among them."""
    missing: Mapping[BrokerId, BrokerRecord] = field(default_factory=dict)
    """Registered, without a lease; may come back as the same process."""
    waited_for: Mapping[BrokerId, BrokerRecord] = field(default_factory=dict)
    """Those of the missing that do not count as gone yet: they keep what they have and get nothing new."""
    leaving: frozenset[BrokerId] = frozenset()
    """Alive, but about to stop: they should lead nothing."""
    full: frozenset[BrokerId] = frozenset()
    """Alive, but without space on their disks: they should lead nothing that others can lead."""
    draining: frozenset[BrokerId] = frozenset()
    """To be emptied: nothing new is placed on them; alive or not."""

    @property
    def staying(self) -> dict[BrokerId, BrokerRecord]:
        """Those alive that do not leave."""
        return {broker: record for broker, record in self.alive.items() if broker not in self.leaving}

    def holding_back(self, fenced: Collection[BrokerId]) -> "BrokerStates":
        """The states to decide on when, of the missing, only these count as gone."""
        waited_for = {broker: record for broker, record in self.missing.items() if broker not in fenced}
        return replace(self, waited_for=waited_for)

    @property
    def placeable(self) -> list[BrokerRecord]:
        """Where new replicas may go: alive, neither leaving nor draining; by id."""
        return [
            record
            for broker, record in sorted(self.alive.items())
            if broker not in self.leaving and broker not in self.draining
        ]


def read_states(image: MetadataImage) -> BrokerStates:
    """Who is alive, missing, leaving, draining, and without space."""
    alive: dict[BrokerId, BrokerRecord] = {}
    missing: dict[BrokerId, BrokerRecord] = {}
    leaving: set[BrokerId] = set()
    full: set[BrokerId] = set()
    draining: set[BrokerId] = set()
    for broker in image.brokers():
        process = image.live(broker.id)
        if process is not None and process.incarnation == broker.incarnation:
            alive[broker.id] = broker
            if process.leaving:
                leaving.add(broker.id)
            if process.full:
                full.add(broker.id)
        else:
            missing[broker.id] = broker
        if image.drain(broker.id) is not None:
            draining.add(broker.id)
    return BrokerStates(alive, missing, leaving=frozenset(leaving), full=frozenset(full), draining=frozenset(draining))


def plan_alive(
    broker: BrokerRecord, seen: LiveRecord | None, *, leaving: bool = False, full: bool = False
) -> CommitPlan:
    """Show the broker's process as alive, as leaving, or with a full disk; to be committed under the process's lease.

    `seen` is what `live/<id>` holds now. The registration is compared, so a process that has been replaced stays
    unseen (CLS-10).
    """
    invariant(seen is None or seen.incarnation <= broker.incarnation, "CLS-17: a later process is never overwritten")
    key = live_key(broker.id)
    compares = {broker_key(broker.id): broker.mod_revision, key: seen.mod_revision if seen is not None else 0}
    return CommitPlan(compares, {key: encode_record(LiveRecord(broker.id, broker.incarnation, leaving, full))})


def plan_controller_role(broker: BrokerRecord, image: MetadataImage) -> CommitPlan | None:
    """Take the controller's role, to be committed under the process's lease; None when another has it.

    The role only keeps two from doing the same work: every decision is safe with two controllers at once.
    """
    process = image.live(broker.id)
    is_alive = process is not None and process.incarnation == broker.incarnation
    if image.controller is not None or process is None or not is_alive or process.leaving:
        return None
    compares = {
        CONTROLLER_KEY: 0,
        broker_key(broker.id): broker.mod_revision,
        live_key(broker.id): process.mod_revision,
    }
    return CommitPlan(compares, {CONTROLLER_KEY: encode_record(RoleRecord(Member(broker.id, broker.incarnation)))})


class FencingGuard:
    """Who of the missing counts as gone; owned by the controller, one for the whole time of the process."""

    __slots__ = ("_fenced", "_fenced_at_ms", "_lease_ms", "_per_second", "_quiet_until_ms")

    def __init__(self, lease_ms: int, now_ms: int, per_second: int = FENCINGS_PER_SECOND) -> None:
        """`lease_ms` is the longest lease that a broker of this cluster may hold; `now_ms` is the role's beginning."""
        invariant(lease_ms > 0 and per_second > 0, "a guard has a time and a rate")
        self._lease_ms = lease_ms
        self._per_second = per_second
        self._fenced: set[BrokerId] = set()
        self._fenced_at_ms: list[int] = []
        self._quiet_until_ms = now_ms + lease_ms

    @property
    def fenced(self) -> frozenset[BrokerId]:
        """The brokers that counted as gone at the last check."""
        return frozenset(self._fenced)

    def began(self, now_ms: int) -> None:
        """The controller has just got its role, or has just reached the store again: what it knew may be old."""
        self._quiet_until_ms = max(self._quiet_until_ms, now_ms + self._lease_ms)
        self._fenced.clear()

    def check(self, missing: Collection[BrokerId], now_ms: int) -> frozenset[BrokerId]:
        """Note the brokers that are missing now; returns those that count as gone."""
        self._fenced.intersection_update(missing)
        if now_ms >= self._quiet_until_ms:
            self._fenced_at_ms = [at for at in self._fenced_at_ms if at > now_ms - _SECOND_MS]
            allowed = self._per_second - len(self._fenced_at_ms)
            for broker in sorted(set(missing) - self._fenced)[: max(0, allowed)]:
                self._fenced.add(broker)
                self._fenced_at_ms.append(now_ms)
        return self.fenced

    def next_check_at_ms(self, missing: Collection[BrokerId], now_ms: int) -> int | None:
        """When another check may fence a broker; None while none is waiting for it."""
        if not set(missing) - self._fenced:
            return None
        if now_ms < self._quiet_until_ms or len(self._fenced_at_ms) < self._per_second:
            return max(now_ms, self._quiet_until_ms)
        return self._fenced_at_ms[-self._per_second] + _SECOND_MS
