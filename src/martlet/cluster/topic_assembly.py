"""Topics put together from their records: the topic's own, and one per partition.

A topic's partitions are written before or with it, a large topic's in several commits, so a partition may be here
long before a topic counts it. `MetadataImage` shows only what `assemble` returns.
"""

from typing import NamedTuple

from martlet.base.ids import TopicId
from martlet.base.invariant import invariant
from martlet.cluster.keys import read_partition_index, read_partition_topic, topic_key
from martlet.cluster.records import PartitionRecord, TopicRecord, decode_record
from martlet.cluster.store import Event


class AssembledTopic(NamedTuple):
    """A topic with all its partitions, by index."""

    record: TopicRecord
    partitions: tuple[PartitionRecord, ...]


class TopicAssembly:
    """All records of topics and partitions that the store has, and the topics that a step has touched."""

    def __init__(self) -> None:
        # By key, which also finds a name's colliding neighbour, and by id.
        self._by_key: dict[str, TopicRecord] = {}
        self._by_id: dict[TopicId, TopicRecord] = {}
        self._partitions: dict[TopicId, dict[int, PartitionRecord]] = {}
        self._touched: dict[TopicId, None] = {}

    def take_partition(self, event: Event) -> None:
        topic_id, index = read_partition_topic(event.key), read_partition_index(event.key)
        records = self._partitions.setdefault(topic_id, {})
        if event.entry is not None:
            records[index] = decode_record(PartitionRecord, event.entry)
        else:
            records.pop(index, None)
            if not records:
                del self._partitions[topic_id]
        self._touched[topic_id] = None

    def take_topic(self, event: Event) -> None:
        before = self._by_key.pop(event.key, None)
        if before is not None:
            self._by_id.pop(before.id, None)
            self._touched[before.id] = None
        if event.entry is not None:
            after = decode_record(TopicRecord, event.entry)
            self._by_key[event.key] = self._by_id[after.id] = after
            self._touched[after.id] = None

    def end_step(self) -> list[TopicId]:
        """The topics touched since the last call, those of which only partitions are known included."""
        touched = list(self._touched)
        self._touched.clear()
        return touched

    def assemble(self, topic_id: TopicId) -> AssembledTopic | None:
        """The topic as it stands; None while its own record is not there."""
        record = self._by_id.get(topic_id)
        if record is None:
            return None
        records = self._partitions.get(topic_id, {})
        invariant(
            all(index in records for index in range(record.partition_count)),
            f"CLS-2: topic {record.name} has all its {record.partition_count} partitions",
        )
        return AssembledTopic(record, tuple([records[index] for index in range(record.partition_count)]))

    def colliding_with(self, name: str) -> TopicRecord | None:
        """The topic that has this name or one that differs only in "." and "_"."""
        return self._by_key.get(topic_key(name))
