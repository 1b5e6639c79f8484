"""The assignor `uniform`, the default: every member gets as many partitions as every other, whatever their topics.

Topics with the same subscribers form one pool; with equal subscriptions there is only one, levelled in one go. With
several, each is levelled in turn, over what its members carry from the others, until nothing moves any more.

Invariants: GRP-10 of `specification.py`, and
GRP-14 With equal subscriptions, loads differ by at most one.
GRP-15 Otherwise, no partition could move to another of its subscribers and make their loads more even.
GRP-16 Given back its own outcome, it changes nothing.

Proved by: tests/properties/test_assignors.py
"""

from martlet.base.ids import TopicId
from martlet.groups.consumer.assignors.pool import Pool
from martlet.groups.consumer.assignors.specification import Members, TopicClass, Topics, classes_of_topics
from martlet.groups.ports import TopicView
from martlet.groups.records import Partitions

_PASSES_MAX = 100
_NOWHERE: frozenset[str] = frozenset()
_NOTHING: dict[str, int] = {}


def assign_uniform(members: Members, topics: Topics) -> dict[str, Partitions]:
    """Spread all partitions over all members."""
    views = {view.id: view for view in topics.values()}
    with_racks = any(view.racks for view in views.values())
    racks = {id_: one.rack for id_, one in members.items() if one.rack is not None} if with_racks else {}

    def racks_of(partition: tuple[TopicId, int]) -> frozenset[str]:
        known = views[partition[0]].racks
        return known[partition[1]] if partition[1] < len(known) else _NOWHERE

    classes = classes_of_topics(members, topics)
    pools = [Pool[tuple[TopicId, int]](one.members, racks_of) for one in classes]
    changed = _keep(members, classes, pools)
    _level(pools, racks)
    for pool in pools:
        pool.match_racks(racks, uneven=len(pools) == 1)
        changed |= pool.changed
    outcome: dict[str, Partitions] = {}
    for member_id, member in members.items():
        if member_id in changed:
            parts = [pool.held[member_id] for pool in pools if member_id in pool.held]
            partitions = frozenset(partition for part in parts for partition in part)
            outcome[member_id] = member.partitions if partitions == member.partitions else partitions
        else:
            outcome[member_id] = member.partitions
    return outcome


def _keep(members: Members, classes: list[TopicClass], pools: list[Pool[tuple[TopicId, int]]]) -> set[str]:
    """Leave everything where it was, as far as it is still wanted there; the rest is free. Returns who lost some."""
    counts: dict[TopicId, int] = {}
    pool_of: dict[TopicId, Pool[tuple[TopicId, int]]] = {}
    for one, pool in zip(classes, pools, strict=True):
        for view in one.topics:
            counts[view.id] = view.partition_count
            pool_of[view.id] = pool
    lost: set[str] = set()
    taken: set[tuple[TopicId, int]] = set()
    for member_id in sorted(members):
        for partition in members[member_id].partitions:
            held = pool_of[partition[0]].held.get(member_id) if partition[0] in pool_of else None
            if held is None or partition[1] >= counts[partition[0]] or partition in taken:
                lost.add(member_id)
            else:
                held.append(partition)
                taken.add(partition)
    for one, pool in zip(classes, pools, strict=True):
        pool.free = [partition for view in one.topics for partition in _partitions(view) if partition not in taken]
    return lost


def _partitions(view: TopicView) -> list[tuple[TopicId, int]]:
    return [(view.id, number) for number in range(view.partition_count)]


def _level(pools: list[Pool[tuple[TopicId, int]]], racks: dict[str, str]) -> None:
    if len(pools) == 1:
        pools[0].level(_NOTHING, racks)
        return
    loads: dict[str, int] = {}
    for pool in pools:
        for member_id, held in pool.held.items():
            loads[member_id] = loads.get(member_id, 0) + len(held)
    for _ in range(_PASSES_MAX):
        moved = False
        for pool in pools:
            for member_id, held in pool.held.items():
                loads[member_id] -= len(held)
            moved |= pool.level(loads, racks)
            for member_id, held in pool.held.items():
                loads[member_id] += len(held)
        if not moved:
            return
