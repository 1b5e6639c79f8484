"""Topics for tests of consumer groups: created, grown and deleted at will, with ids that tell their names."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from martlet.base.ids import TopicId
from martlet.groups.ports import TopicView


class SimTopics:
    """A `TopicsView` that tests can change."""

    def __init__(self, **partition_counts: int) -> None:
        self._topics: dict[str, TopicView] = {}
        self._created = 0
        for name, count in partition_counts.items():
            self.create(name, count)

    def create(self, name: str, partition_count: int, racks: Sequence[str] = ()) -> None:
        self._created += 1
        topic_id = TopicId(f"{name[:12]}#{self._created}".encode().ljust(16, b".")[:16])
        of_partitions = tuple(frozenset(rack.split("+")) for rack in racks)
        self._topics[name] = TopicView(topic_id, name, partition_count, of_partitions)

    def grow(self, name: str, partition_count: int) -> None:
        self._topics[name] = replace(self._topics[name], partition_count=partition_count)

    def delete(self, name: str) -> None:
        del self._topics[name]

    def topic(self, name: str) -> TopicView | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: TopicId) -> TopicView | None:
        return next((view for view in self._topics.values() if view.id == topic_id), None)

    def names(self) -> Iterable[str]:
        return [name for name in self._topics if not name.startswith("__")]

    def id_of(self, name: str) -> TopicId:
        return self._topics[name].id
