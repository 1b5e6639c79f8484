"""Where the partitions of a new or growing topic lie, and what must still be so when that is committed.

Rules: pure. The arithmetic of an even spread is in `placement.py`; here is which brokers are asked at all, what is
wrong with an assignment made by hand, and on which brokers the whole relies.

How it works: partitions are spread over the brokers that are alive, stay, and are not being drained. If those are
fewer than the replicas wished for, registered brokers that are away fill up: they are not in sync and catch up when
they return, so that a topic can be made while one broker restarts. Where fewer are in sync than must be, those away are
eligible: nothing is acknowledged before there are enough, so who has nothing has everything. Every commit of the layout
compares, for each broker named, its registration, its leased key and its drain mark as they were seen.

Invariants:
CLS-45 no replica is placed on a broker that left, was replaced or was marked for draining since the layout was made;
CLS-46 every new partition has a leader that is alive, and only processes that are alive are in sync;
CLS-47 a layout names at most `SITES_MAX` brokers, so that its comparisons fit into one commit.

Proved by: tests/unit/cluster/test_topic_placement.py, tests/unit/cluster/test_topic_decisions.py
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, LeaderEpoch, Member, TopicId
from martlet.cluster.image import MetadataImage
from martlet.cluster.liveness import BrokerStates, read_states
from martlet.cluster.partition_plans import broker_compares, drain_compares
from martlet.cluster.placement import Replicas, Site, place_partitions, sites_of
from martlet.cluster.records import BrokerRecord, PartitionRecord

SITES_MAX: Final = 40
"""Brokers that one topic is laid out over; each costs three comparisons of the 128 that a commit may have."""

PATTERN_MAX: Final = 400
"""Partitions that are each placed with care; more of them repeat the pattern."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The replicas of each partition, who of them is in sync from the start, and what all of it rests on."""

    placed: tuple[Replicas, ...]
    in_sync: Mapping[BrokerId, BrokerRecord] = field(default_factory=dict)
    away: Mapping[BrokerId, BrokerRecord] = field(default_factory=dict)
    guards: Mapping[str, int] = field(default_factory=dict)
    """What every commit of the layout compares (CLS-45)."""

    @property
    def replication_factor(self) -> int:
        return len(self.placed[0])

    def partition(self, topic_id: TopicId, index: int, replicas: Replicas, min_in_sync: int) -> PartitionRecord:
        """A partition as it begins: at epoch 0, led by the first of its replicas that is there (CLS-46)."""
        isr = _members(replicas, self.in_sync)
        has_enough = len(isr) >= min(min_in_sync, len(replicas))
        return PartitionRecord(
            topic_id=topic_id,
            partition=index,
            replicas=replicas,
            leader=isr[0].broker,
            leader_epoch=LeaderEpoch(0),
            isr=isr,
            elr=() if has_enough else _members(replicas, self.away),
        )


def _members(replicas: Replicas, brokers: Mapping[BrokerId, BrokerRecord]) -> tuple[Member, ...]:
    return tuple(Member(broker, brokers[broker].incarnation) for broker in replicas if broker in brokers)


# --- chosen here


def choose_layout(
    image: MetadataImage,
    *,
    count: int,
    factor: int,
    start: int,
    existing: Sequence[Replicas] = (),
    fewer_will_do: bool = False,
) -> Layout:
    """Spread `count` partitions with `factor` replicas each; `existing` are those that the topic has.

    With `fewer_will_do`, there are as many replicas as brokers if those are fewer.
    """
    states = _states(image)
    usable = [broker for broker in image.brokers() if broker.id not in states.draining]
    if fewer_will_do:
        factor = max(1, min(factor, len(usable), SITES_MAX))
    _check_factor(factor, len(usable), len(states.draining))
    placeable = states.placeable
    if not placeable:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker takes new partitions: all are about to stop")
    load = _load(image) if len(placeable) > 1 else Counter[BrokerId]()
    sites = _nearest_sites(sites_of(placeable), load)
    # A whole number of rounds over the brokers is as even when it is repeated, and far quicker for thousands.
    pattern = min(count, len(sites) * max(1, PATTERN_MAX // len(sites)))
    placed = place_partitions(
        sites,
        count=pattern,
        replication_factor=min(factor, len(sites)),
        existing=existing,
        cluster_load=load,
        start=start,
    )
    placed = [placed[index % pattern] for index in range(count)]
    if factor > len(sites):
        away = [broker.id for broker in usable if broker.id not in states.alive or broker.id in states.leaving]
        placed = _filled_up(placed, factor, away, load)
    return layout_of(placed, image, states)


def _check_factor(factor: int, broker_count: int, draining: int) -> None:
    if 1 <= factor <= broker_count and factor <= SITES_MAX:
        return
    brokers = "is 1 broker" if broker_count == 1 else f"are {broker_count} brokers"
    besides = f" besides {draining} being drained" if draining else ""
    limit = f", and {SITES_MAX} replicas are the most a partition can have" if factor > SITES_MAX else ""
    raise ApiError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"a replication factor of {factor} is not possible: there {brokers}{besides}{limit}",
    )


def _load(image: MetadataImage) -> Counter[BrokerId]:
    load: Counter[BrokerId] = Counter()
    for topic in image.topics():
        for partition in image.partitions(topic.name):
            load.update(partition.replicas)
    return load


def _nearest_sites(sites: list[Site], load: Mapping[BrokerId, int]) -> list[Site]:
    """All of them, or in a very large cluster those that hold least, from all racks alike (CLS-47)."""
    if len(sites) <= SITES_MAX:
        return sites
    taken: Counter[str | None] = Counter()
    ranked: list[tuple[int, int, Site]] = []
    for site in sorted(sites, key=lambda site: (load.get(site.broker, 0), site.broker)):
        ranked.append((taken[site.rack], load.get(site.broker, 0), site))
        taken[site.rack] += 1
    chosen = sorted(ranked, key=lambda one: (one[0], one[1], one[2].broker))[:SITES_MAX]
    return sorted((site for *_, site in chosen), key=lambda site: site.broker)


def _filled_up(
    placed: Iterable[Replicas], factor: int, away: Sequence[BrokerId], load: Mapping[BrokerId, int]
) -> list[Replicas]:
    """Brokers that are away as further replicas, each as often as the others."""
    given = Counter(dict.fromkeys(away, 0))
    filled: list[Replicas] = []
    for replicas in placed:
        others = sorted(away, key=lambda broker: (given[broker], load.get(broker, 0), broker))
        more = others[: factor - len(replicas)]
        given.update(more)
        filled.append((*replicas, *more))
    return filled


# --- assigned by hand


def check_layout(image: MetadataImage, assignments: Sequence[Sequence[int]]) -> Layout:
    """Take over an assignment; ApiError INVALID_REPLICA_ASSIGNMENT says what is wrong with it."""
    states = _states(image)
    placed = [_checked_replicas(replicas, image, states) for replicas in assignments]
    if any(len(replicas) != len(placed[0]) for replicas in placed):
        raise bad_assignment(f"every partition of this topic must have {len(placed[0])} replicas")
    named = {broker for replicas in placed for broker in replicas}
    if len(named) > SITES_MAX:
        raise bad_assignment(f"one topic is made on at most {SITES_MAX} brokers; {len(named)} are named")
    layout = layout_of(placed, image, states)
    for index, replicas in enumerate(placed):
        if not any(broker in layout.in_sync for broker in replicas):
            raise bad_assignment(f"none of the brokers {list(replicas)} of the {index + 1}. partition is running")
    return layout


def _checked_replicas(replicas: Sequence[int], image: MetadataImage, states: BrokerStates) -> Replicas:
    if not replicas:
        raise bad_assignment("each assigned partition needs at least one broker")
    if len(set(replicas)) != len(replicas):
        raise bad_assignment(f"a broker is named twice in the replicas {list(replicas)}")
    for broker in map(BrokerId, replicas):
        if image.broker(broker) is None:
            raise bad_assignment(f"there is no broker {broker} in this cluster")
        if broker in states.draining:
            raise bad_assignment(f"broker {broker} is being drained and takes no more replicas")
    return tuple(map(BrokerId, replicas))


def bad_assignment(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)


# --- what it rests on


def _states(image: MetadataImage) -> BrokerStates:
    """Who is there. While no process at all has shown itself, as after an outage of the store, all may."""
    states = read_states(image)
    return states if states.alive else replace(states, alive=states.missing, missing={})


def layout_of(placed: Collection[Replicas], image: MetadataImage, states: BrokerStates) -> Layout:
    """These replicas, as a layout."""
    named = {broker for replicas in placed for broker in replicas}
    guards = broker_compares(named, image) | drain_compares(named, image)
    in_sync = {broker: record for broker, record in states.staying.items() if broker in named}
    away = {broker.id: broker for broker in image.brokers() if broker.id in named and broker.id not in in_sync}
    return Layout(tuple(placed), in_sync, away, guards)
