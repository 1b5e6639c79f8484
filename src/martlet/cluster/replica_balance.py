"""Where existing replicas should move: after a broker was added, to empty a broker, to change how many there are.

Rules: pure; from present replicas to wished ones. Starting and following the moves is in `reassignment.py`.

How it works: only what must move moves. To balance, every broker gets its share of all replicas, those that hold most
keeping the larger shares, and replicas go from brokers above their share to brokers below, a little of each topic,
never making a partition's spread over racks worse. To empty a broker, each of its replicas goes where the racks are
spread best, and these moves are then evened out. Leaders are evened out last: that changes only the replicas' order.

Invariants:
CLS-34 nothing moves that is not needed, and a wished set of replicas is as large as the present one unless its size is
   what is to change;
CLS-35 no partition is less evenly spread over racks than before, as far as the brokers that are left allow;
CLS-36 without racks, balancing ends with brokers that differ by one replica at most.

Proved by: tests/unit/cluster/test_replica_balance.py, tests/properties/test_placement.py
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from martlet.base.ids import BrokerId, TopicPartition
from martlet.base.invariant import invariant
from martlet.cluster.placement import Replicas, Site, even_out, rack_crowding, spread_leaders

Placed = Mapping[TopicPartition, Sequence[BrokerId]]
"""Replicas by partition, preferred leader first."""

Moves = dict[TopicPartition, Replicas]
"""The wished replicas of those partitions that are to change."""


def plan_balance(placed: Placed, sites: Sequence[Site]) -> Moves:
    """Even out replicas and leaders over these brokers with as few moves as possible."""
    balance = _Balance(placed, dict(sites))
    balance.move_to_shares()
    balance.move_what_is_left()
    return _changed(placed, _with_even_leaders(balance.wished, [site.broker for site in sites]))


def plan_emptying(placed: Placed, broker: BrokerId, sites: Sequence[Site]) -> Moves:
    """Move every replica of the broker to others, which are the `sites`."""
    invariant(all(site.broker != broker for site in sites), "a broker is not emptied onto itself")
    affected = {partition: tuple(replicas) for partition, replicas in placed.items() if broker in replicas}
    rest = {partition: [one for one in replicas if one != broker] for partition, replicas in affected.items()}
    others = [replicas for partition, replicas in placed.items() if partition not in affected]
    chosen = _choose_one_more(rest, sites, _load([*others, *rest.values()], dict(sites)))
    led = Counter(replicas[0] for replicas in placed.values() if replicas[0] != broker)
    # Only where the broker led has anybody else to lead.
    orphans = {partition: chosen[partition] for partition, replicas in affected.items() if replicas[0] == broker}
    ordered = spread_leaders(list(orphans.values()), led, [site.broker for site in sites])
    return chosen | dict(zip(orphans, ordered, strict=True))


def plan_replication_factor(placed: Placed, factor: int, sites: Sequence[Site], load: Mapping[BrokerId, int]) -> Moves:
    """Give each partition this number of replicas; `load` says how many replicas the brokers hold in all."""
    racks = dict(sites)
    wished = {partition: tuple(replicas) for partition, replicas in placed.items()}
    counts = Counter({broker: load.get(broker, 0) for broker in racks})
    while growing := {partition: list(one) for partition, one in wished.items() if len(one) < factor}:
        wished |= _choose_one_more(growing, sites, counts)
    for partition, replicas in wished.items():
        while len(replicas) > factor:
            # The preferred leader stays; a broker that is no place for replicas any more goes first.
            surplus = min(
                replicas[1:],
                key=lambda one: (
                    one in racks,
                    rack_crowding([other for other in replicas if other != one], racks),
                    -counts[one],
                    -one,
                ),
            )
            counts[surplus] -= 1
            replicas = tuple(one for one in replicas if one != surplus)
        wished[partition] = replicas
    return _changed(placed, wished)


# --- from broker to broker


class _Balance:
    """The wished replicas while they are being shifted from brokers that hold more to brokers that hold less."""

    __slots__ = ("held", "load", "racks", "wished")

    def __init__(self, placed: Placed, racks: Mapping[BrokerId, str | None]) -> None:
        self.wished: Moves = {partition: tuple(replicas) for partition, replicas in placed.items()}
        self.racks = racks
        self.load = _load(self.wished.values(), racks)
        self.held: dict[BrokerId, set[TopicPartition]] = {broker: set() for broker in racks}
        for partition, replicas in self.wished.items():
            for broker in replicas:
                if broker in racks:
                    self.held[broker].add(partition)

    def move_to_shares(self) -> None:
        """Bring everybody to its share, as far as racks let that be."""
        load, shares = self.load, _shares(self.load)
        for giver in sorted(load, key=lambda broker: (shares[broker] - load[broker], broker)):
            for taker in sorted(load, key=lambda broker: (load[broker] - shares[broker], broker)):
                self._move(giver, taker, min(load[giver] - shares[giver], shares[taker] - load[taker]))

    def move_what_is_left(self) -> None:
        """Racks may have stood in the way of the shares: go on while two brokers differ by two and a move helps."""
        moved = True
        while moved:
            moved = False
            for giver in sorted(self.load, key=lambda broker: (-self.load[broker], broker)):
                for taker in sorted(self.load, key=lambda broker: (self.load[broker], broker)):
                    moved |= self._move(giver, taker, (self.load[giver] - self.load[taker]) // 2) > 0

    def _move(self, giver: BrokerId, taker: BrokerId, amount: int) -> int:
        """Move up to `amount` replicas, a little of each topic; returns how many."""
        if amount <= 0:
            return 0
        moved = self._movable(giver, taker)[:amount]
        for partition in moved:
            self.wished[partition] = _swapped(self.wished[partition], giver, taker)
            self.held[giver].remove(partition)
            self.held[taker].add(partition)
        self.load[giver] -= len(moved)
        self.load[taker] += len(moved)
        return len(moved)

    def _movable(self, giver: BrokerId, taker: BrokerId) -> list[TopicPartition]:
        """What may move: first what is spread over racks better then; led partitions of each topic last."""
        wished = self.wished
        gain: dict[TopicPartition, int] = {}
        for partition in self.held[giver] - self.held[taker]:
            worse = self._crowding_added(wished[partition], giver, taker)
            if worse <= 0:
                gain[partition] = worse
        of_topic = Counter(partition.topic for partition in gain)
        seen: Counter[str] = Counter()
        ranked: list[tuple[int, float, bool, TopicPartition]] = []
        for partition in sorted(gain, key=lambda one: (wished[one][0] == giver, one)):
            seen[partition.topic] += 1
            share = seen[partition.topic] / (of_topic[partition.topic] + 1)
            ranked.append((gain[partition], share, wished[partition][0] == giver, partition))
        return [partition for *_, partition in sorted(ranked)]

    def _crowding_added(self, replicas: Replicas, giver: BrokerId, taker: BrokerId) -> int:
        if self.racks[giver] == self.racks[taker]:
            return 0
        return rack_crowding(_swapped(replicas, giver, taker), self.racks) - rack_crowding(replicas, self.racks)


# --- single steps


def _choose_one_more(
    rest: Mapping[TopicPartition, Sequence[BrokerId]], sites: Sequence[Site], load: Counter[BrokerId]
) -> Moves:
    """One more replica for each, where racks are spread best, evened out; `load` is kept up."""
    racks = dict(sites)
    options: list[list[BrokerId]] = []
    owners: list[BrokerId] = []
    for replicas in rest.values():
        free = [site.broker for site in sites if site.broker not in replicas]
        invariant(free, "there is a broker that does not hold the partition yet")
        crowding = {broker: rack_crowding([*replicas, broker], racks) for broker in free}
        best = min(crowding.values())
        options.append([broker for broker in free if crowding[broker] == best])
        owner = min(options[-1], key=lambda broker: load[broker])
        owners.append(owner)
        load[owner] += 1
    even_out(owners, options, load)
    return {partition: (*replicas, owner) for (partition, replicas), owner in zip(rest.items(), owners, strict=True)}


def _shares(load: Counter[BrokerId]) -> dict[BrokerId, int]:
    """What each broker should hold: who holds most keeps one more when it does not come out even."""
    share, extra = divmod(sum(load.values()), max(1, len(load)))
    by_load = sorted(load, key=lambda broker: (-load[broker], broker))
    return {broker: share + (place < extra) for place, broker in enumerate(by_load)}


def _load(placed: Iterable[Sequence[BrokerId]], racks: Mapping[BrokerId, str | None]) -> Counter[BrokerId]:
    load = Counter(dict.fromkeys(sorted(racks), 0))
    for replicas in placed:
        load.update(broker for broker in replicas if broker in racks)
    return load


def _with_even_leaders(wished: Moves, brokers: Sequence[BrokerId]) -> Moves:
    """Change the preferred leader where that makes leaders more even; everything else keeps its order."""
    usable = set(brokers)
    led_by_usable = {partition: replicas for partition, replicas in wished.items() if replicas[0] in usable}
    owners = [replicas[0] for replicas in led_by_usable.values()]
    counts = Counter(dict.fromkeys(sorted(usable), 0))
    counts.update(owners)
    even_out(owners, [[one for one in replicas if one in usable] for replicas in led_by_usable.values()], counts)
    for (partition, replicas), owner in zip(led_by_usable.items(), owners, strict=True):
        if owner != replicas[0]:
            wished[partition] = (owner, *(one for one in replicas if one != owner))
    return wished


def _swapped(replicas: Sequence[BrokerId], giver: BrokerId, taker: BrokerId) -> Replicas:
    return tuple(taker if broker == giver else broker for broker in replicas)


def _changed(placed: Placed, wished: Mapping[TopicPartition, Replicas]) -> Moves:
    return {partition: replicas for partition, replicas in wished.items() if tuple(placed[partition]) != replicas}
