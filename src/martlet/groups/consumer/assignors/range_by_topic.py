"""The assignor `range`: each topic's partitions are dealt out in ranges, so that partition 3 of two topics meets.

Topics with the same subscribers and the same number of partitions are dealt out as one: who gets number 3 of one gets
it of all, which is what joins of topics need. Members keep their numbers as long as the balance allows, so after
changes a range may have gaps. The load is even per topic, not over all topics: that is the price.

Invariants: GRP-10 of `specification.py`, and
GRP-11 In each topic, loads differ by at most one.
GRP-12 Topics with equal subscribers and partition counts are split alike.
GRP-13 Given back its own outcome, it changes nothing.

Proved by: tests/properties/test_assignors.py
"""

from collections.abc import Callable
from typing import NamedTuple

from martlet.base.ids import TopicId
from martlet.groups.consumer.assignors.pool import Pool
from martlet.groups.consumer.assignors.specification import Members, Topics, classes_of_topics
from martlet.groups.ports import TopicView
from martlet.groups.records import Partitions

_NOTHING: dict[str, int] = {}
_NOWHERE: frozenset[str] = frozenset()


def assign_range(members: Members, topics: Topics) -> dict[str, Partitions]:
    """Split each bundle of like topics over its subscribers."""
    with_racks = any(view.racks for view in topics.values())
    racks = {id_: one.rack for id_, one in members.items() if one.rack is not None} if with_racks else {}
    bundles = _bundles(members, topics)
    _keep(members, bundles)
    given: dict[str, list[tuple[TopicId, int]]] = {member_id: [] for member_id in members}
    for bundle in bundles:
        bundle.pool.level(_NOTHING, racks, in_runs=True)
        bundle.pool.match_racks(racks, uneven=True)
        for member_id, numbers in bundle.pool.held.items():
            given[member_id] += [(view.id, number) for view in bundle.topics for number in numbers]
    outcome: dict[str, Partitions] = {}
    for member_id, partitions in given.items():
        before, after = members[member_id].partitions, frozenset(partitions)
        outcome[member_id] = before if before == after else after
    return outcome


class _Bundle(NamedTuple):
    """Topics that are split alike, and the pool of their partition numbers."""

    topics: list[TopicView]
    pool: Pool[int]


def _bundles(members: Members, topics: Topics) -> list[_Bundle]:
    bundles: list[_Bundle] = []
    for one in classes_of_topics(members, topics):
        by_count: dict[int, list[TopicView]] = {}
        for view in one.topics:
            by_count.setdefault(view.partition_count, []).append(view)
        bundles += [_Bundle(views, Pool[int](one.members, _common_racks(views))) for views in by_count.values()]
    return bundles


def _common_racks(views: list[TopicView]) -> Callable[[int], frozenset[str]]:
    """The racks in which all these topics keep the partition of a number."""

    def racks_of(number: int) -> frozenset[str]:
        known = [view.racks[number] if number < len(view.racks) else _NOWHERE for view in views]
        return frozenset.intersection(*known)

    return racks_of


def _keep(members: Members, bundles: list[_Bundle]) -> None:
    """Leave each partition number with the member that had it in the most of the topics; the rest is free."""
    bundle_of = {view.id: place for place, bundle in enumerate(bundles) for view in bundle.topics}
    votes: list[dict[int, dict[str, int]]] = [{} for _ in bundles]
    for member_id in sorted(members):
        for topic_id, number in members[member_id].partitions:
            place = bundle_of.get(topic_id)
            if place is not None and member_id in bundles[place].pool.held:
                of_number = votes[place].setdefault(number, {})
                of_number[member_id] = of_number.get(member_id, 0) + 1
    for bundle, of_bundle in zip(bundles, votes, strict=True):
        for number in range(bundle.topics[0].partition_count):
            of_number = of_bundle.get(number, {})
            if of_number:
                bundle.pool.held[max(of_number, key=of_number.__getitem__)].append(number)
            else:
                bundle.pool.free.append(number)
