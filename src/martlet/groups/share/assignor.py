"""The simple assignor of share groups: which members may fetch from which partitions, evenly and with few changes.

Members may share partitions. A topic with as many partitions as members, or more, gives each partition to one member;
one with fewer gives each to several, until every member has a part. Members keep what they have where it is even.

Proved by: tests/unit/groups/share/test_assignor.py, tests/properties/test_share_assignor.py
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from martlet.base.ids import TopicId
from martlet.groups.ports import TopicView
from martlet.groups.records import NO_PARTITIONS, Partitions

Partition: TypeAlias = tuple[TopicId, int]


def assign(
    subscriptions: Mapping[str, Sequence[str]], views: Mapping[str, TopicView], before: Mapping[str, Partitions]
) -> dict[str, Partitions]:
    """The partitions of every member; topics that do not exist are left out."""
    plan = _Plan(subscriptions, views)
    plan.keep(before)
    plan.fill()
    plan.even_out()
    return {
        member: known if (known := before.get(member, NO_PARTITIONS)) == given else frozenset(given)
        for member, given in plan.given.items()
    }


class _Plan:
    """An assignment in the making."""

    def __init__(self, subscriptions: Mapping[str, Sequence[str]], views: Mapping[str, TopicView]) -> None:
        self.given: dict[str, set[Partition]] = {member: set() for member in sorted(subscriptions)}
        self._takers: dict[TopicId, list[str]] = {}
        """By topic the members that want it."""
        self._wanted: dict[Partition, int] = {}
        """How many members each partition is to have."""
        self._owners: dict[Partition, list[str]] = {}
        for member in self.given:
            for name in dict.fromkeys(subscriptions[member]):
                if name in views:
                    self._takers.setdefault(views[name].id, []).append(member)
        for view in views.values():
            takers = self._takers.get(view.id)
            if takers:
                shared_by = -(-len(takers) // max(1, view.partition_count))
                self._wanted.update(dict.fromkeys([(view.id, at) for at in range(view.partition_count)], shared_by))
        self._owners = {partition: [] for partition in self._wanted}

    def keep(self, before: Mapping[str, Partitions]) -> None:
        """Let members keep what they have, as far as a partition is not to have fewer members."""
        for member in self.given:
            for partition in sorted(before.get(member, NO_PARTITIONS)):
                is_wanted = partition in self._wanted and member in self._takers[partition[0]]
                if is_wanted and len(self._owners[partition]) < self._wanted[partition]:
                    self._give(partition, member)

    def fill(self) -> None:
        """Give every partition as many members as it is to have, the ones with the least first."""
        for partition, shared_by in self._wanted.items():
            owners = self._owners[partition]
            missing = shared_by - len(owners)
            if missing > 0:
                free = [member for member in self._takers[partition[0]] if member not in owners]
                free.sort(key=lambda member: len(self.given[member]))
                for member in free[:missing]:
                    self._give(partition, member)

    def even_out(self) -> None:
        """Move partitions from members with much to members with less, until none has two fewer than it could."""
        is_done = False
        while not is_done:
            is_done = True
            for poor in sorted(self.given, key=lambda member: len(self.given[member])):
                while (partition := self._to_take(poor)) is not None:
                    rich = max(self._owners[partition], key=lambda member: len(self.given[member]))
                    self.given[rich].remove(partition)
                    self._owners[partition].remove(rich)
                    self._give(partition, poor)
                    is_done = False

    def _to_take(self, poor: str) -> Partition | None:
        """A partition that this member wants and has not, of a member that has at least two more than it."""
        least = len(self.given[poor]) + 2
        for rich in sorted(self.given, key=lambda member: -len(self.given[member])):
            if len(self.given[rich]) < least:
                return None
            for partition in sorted(self.given[rich] - self.given[poor]):
                if poor in self._takers[partition[0]]:
                    return partition
        return None

    def _give(self, partition: Partition, member: str) -> None:
        self.given[member].add(partition)
        self._owners[partition].append(member)
