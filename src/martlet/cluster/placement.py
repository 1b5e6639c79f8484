"""Which brokers hold a new partition, unless they are named: spread over racks, even over brokers.

Pure arithmetic over ids; which brokers are asked at all is in `topic_placement.py`, moving what exists in
`replica_balance.py`.

How `place_partitions` works: for each partition first the racks are chosen, as many different ones as there are, those
with the least replicas per broker first; then in each rack the broker that holds the least of this topic, and among
equals the one that shares the fewest partitions with those already chosen, then the one that holds the least of all. At
last the leaders are chosen from each partition's replicas and evened out. Counting per topic comes first because
a topic's load is its own: all partitions of a new topic on a broker that has just been added would be no balance.

Invariants:
CLS-28 a partition's replicas are as evenly spread over racks as the racks' sizes allow;
CLS-29 within a rack, and over racks of equal size, the brokers' shares of a topic differ by one replica at most;
CLS-30 no other choice of leaders among the replicas would be more even.

Proved by: tests/unit/cluster/test_placement.py, tests/properties/test_placement.py
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from martlet.base.ids import BrokerId
from martlet.base.invariant import invariant
from martlet.cluster.records import BrokerRecord

Replicas: TypeAlias = tuple[BrokerId, ...]

NO_LOAD: Final[Mapping[BrokerId, int]] = {}


class Site(NamedTuple):
    """A broker as a place for replicas; brokers without a rack count as one rack."""

    broker: BrokerId
    rack: str | None = None


def sites_of(brokers: Iterable[BrokerRecord]) -> list[Site]:
    """These brokers as places, by id."""
    return sorted((Site(broker.id, broker.rack) for broker in brokers), key=lambda site: site.broker)


def place_partitions(
    sites: Sequence[Site],
    *,
    count: int,
    replication_factor: int,
    existing: Sequence[Sequence[BrokerId]] = (),
    cluster_load: Mapping[BrokerId, int] = NO_LOAD,
    start: int = 0,
) -> list[Replicas]:
    """The replicas of `count` new partitions of one topic, preferred leader first.

    `existing` are the replicas of the partitions that the topic has already, `cluster_load` how many replicas each
    broker holds in all, and `start` is any number: where to begin among equals.
    """
    invariant(0 < replication_factor <= len(sites), "there are enough brokers for the replicas")
    table = _Table(sites, cluster_load, start % len(sites))
    for replicas in existing:
        table.count(replicas)
    chosen: list[Replicas] = []
    for _ in range(count):
        replicas = table.choose(replication_factor)
        table.count(replicas)
        chosen.append(replicas)
        table.turn += 1
    leaders = Counter(replicas[0] for replicas in existing)
    return spread_leaders(chosen, leaders, [site.broker for site in sites])


@dataclass(slots=True)
class _Table:
    """Who holds how much of the topic while its partitions are being placed."""

    sites: Sequence[Site]
    cluster_load: Mapping[BrokerId, int]
    turn: int
    held: Counter[BrokerId] = field(default_factory=Counter)
    together: Counter[tuple[BrokerId, BrokerId]] = field(default_factory=Counter)

    def count(self, replicas: Sequence[BrokerId]) -> None:
        self.held.update(replicas)
        self.together.update((one, other) for one in replicas for other in replicas if one != other)

    def choose(self, replication_factor: int) -> Replicas:
        racks: dict[str | None, list[Site]] = {}
        for site in self.sites:
            racks.setdefault(site.rack, []).append(site)
        chosen: dict[BrokerId, None] = {}
        taken: Counter[str | None] = Counter()
        order = {rack: place for place, rack in enumerate(racks)}
        for _ in range(replication_factor):
            rack = min(
                (rack for rack in racks if taken[rack] < len(racks[rack])),
                key=lambda rack: (
                    taken[rack],
                    (sum(self.held[site.broker] for site in racks[rack]) + taken[rack] + 1) / len(racks[rack]),
                    sum(self.cluster_load.get(site.broker, 0) for site in racks[rack]) / len(racks[rack]),
                    (order[rack] - self.turn) % len(racks),
                ),
            )
            taken[rack] += 1
            free = [site.broker for site in racks[rack] if site.broker not in chosen]
            chosen[self._least_held(free, chosen)] = None
        return tuple(chosen)

    def _least_held(self, free: Sequence[BrokerId], chosen: Collection[BrokerId]) -> BrokerId:
        places = {broker: (place - self.turn) % len(free) for place, broker in enumerate(free)}
        return min(
            free,
            key=lambda broker: (
                self.held[broker],
                sum(self.together[broker, other] for other in chosen),
                self.cluster_load.get(broker, 0),
                places[broker],
            ),
        )


# --- leaders


def spread_leaders(
    placed: Sequence[Sequence[BrokerId]], leaders: Counter[BrokerId], brokers: Collection[BrokerId]
) -> list[Replicas]:
    """The same replicas, ordered so that leaders are even, on top of what these brokers lead already.

    The second replica, which takes over first, differs from partition to partition of a leader as well.
    """
    usable = set(brokers)
    counts = Counter({broker: leaders[broker] for broker in brokers})
    heirs: Counter[tuple[BrokerId, BrokerId]] = Counter()
    owners: list[BrokerId] = []
    for replicas in placed:
        owner = min(
            (one for one in replicas if one in usable),
            key=lambda one: (counts[one], heirs[one, _heir(one, replicas, heirs)]),
            default=replicas[0],
        )
        owners.append(owner)
        counts[owner] += 1
        heirs[owner, _heir(owner, replicas, heirs)] += 1
    even_out(owners, [[one for one in replicas if one in usable] for replicas in placed], counts)
    heirs.clear()
    ordered: list[Replicas] = []
    for owner, replicas in zip(owners, placed, strict=True):
        heir = _heir(owner, replicas, heirs)
        heirs[owner, heir] += 1
        ordered.append(tuple(sorted(replicas, key=lambda one: (one != owner, one != heir))))
    return ordered


def _heir(owner: BrokerId, replicas: Sequence[BrokerId], heirs: Mapping[tuple[BrokerId, BrokerId], int]) -> BrokerId:
    """Who of the followers comes second: the one that does so least often under this leader."""
    followers = (one for one in replicas if one != owner)
    return min(followers, key=lambda one: heirs[owner, one], default=owner)


def even_out(owners: list[BrokerId], options: Sequence[Sequence[BrokerId]], counts: Counter[BrokerId]) -> None:
    """Give things other owners, each from its options, until no exchange makes the counts more even.

    `counts` says how much each owner has, these things included, and is kept up. An exchange is a path: one thing goes
    from its owner to the next, a thing of theirs to the next, and so on to an owner with at least two less.
    """
    owned: dict[BrokerId, dict[int, None]] = {broker: {} for broker in counts}
    for thing, owner in enumerate(owners):
        owned.setdefault(owner, {})[thing] = None
    improved = True
    while improved:
        improved = False
        for giver in sorted(counts, key=lambda broker: (-counts[broker], broker)):
            while path := _path_to_less(giver, owned, options, counts):
                improved = True
                for thing, taker in path:
                    before = owners[thing]
                    del owned[before][thing]
                    owned[taker][thing] = None
                    owners[thing] = taker
                    counts[before] -= 1
                    counts[taker] += 1


def _path_to_less(
    giver: BrokerId,
    owned: Mapping[BrokerId, Mapping[int, None]],
    options: Sequence[Sequence[BrokerId]],
    counts: Mapping[BrokerId, int],
) -> list[tuple[int, BrokerId]]:
    """Which things go to whom so that, in the end, the giver has one less and an owner with two less has one more."""
    came_from: dict[BrokerId, tuple[BrokerId, int] | None] = {giver: None}
    waiting = deque([giver])
    while waiting:
        broker = waiting.popleft()
        for thing in owned.get(broker, ()):
            for taker in options[thing]:
                if taker in came_from or taker not in counts:
                    continue
                came_from[taker] = (broker, thing)
                if counts[taker] <= counts[giver] - 2:
                    return _walk_back(taker, came_from)
                waiting.append(taker)
    return []


def _walk_back(
    taker: BrokerId, came_from: Mapping[BrokerId, tuple[BrokerId, int] | None]
) -> list[tuple[int, BrokerId]]:
    path: list[tuple[int, BrokerId]] = []
    while (step := came_from[taker]) is not None:
        path.append((step[1], taker))
        taker = step[0]
    return path


# --- racks


def rack_crowding(replicas: Iterable[BrokerId], racks: Mapping[BrokerId, str | None]) -> int:
    """How unevenly a partition's replicas lie in racks: smaller is better, and equal sizes compare."""
    shares = Counter(racks.get(broker) for broker in replicas)
    return sum(share * share for share in shares.values())
