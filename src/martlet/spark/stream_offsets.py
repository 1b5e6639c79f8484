"""How far a stream has come: the next offset of every partition, as Spark keeps it in its checkpoint and progress.

How it looks: {"orders": {"0": 5, "1": 7, "topicId": "…"}}, the form of Spark's Kafka source plus the topic's id. A
topic that was deleted and recreated has the same name and other messages; without its id a stream would leave out as
many of them as it had read of the old ones.

Invariants:
SPK-19 The same progress is the same text: topics and partitions are sorted. Spark compares texts.

Proved by: tests/unit/spark/test_stream_offsets.py
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from martlet.base.ids import TopicPartition

TOPIC_ID: Final = "topicId"

OffsetsByTopic = dict[str, dict[str, int | str]]
"""What Spark turns into JSON."""


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """The next offset to be read of every partition, and which topics are meant by their names."""

    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> set[str]:
        return {partition.topic for partition in self.positions}

    def to_json(self) -> OffsetsByTopic:
        """A dictionary that JSON can hold (SPK-19)."""
        found: OffsetsByTopic = {}
        for partition in sorted(self.positions):
            found.setdefault(partition.topic, {})[str(partition.partition)] = self.positions[partition]
        for topic, numbers in found.items():
            if topic in self.topic_ids:
                numbers[TOPIC_ID] = self.topic_ids[topic]
        return found

    @classmethod
    def from_json(cls, offsets: Mapping[str, Mapping[str, int | str]]) -> "StreamOffsets":
        """The inverse of `to_json`."""
        positions: dict[TopicPartition, int] = {}
        topic_ids: dict[str, str] = {}
        for topic, numbers in offsets.items():
            for partition, number in numbers.items():
                if partition == TOPIC_ID:
                    topic_ids[topic] = str(number)
                else:
                    positions[TopicPartition(topic, int(partition))] = int(number)
        return cls(positions, topic_ids)

    def at_most(self, other: "StreamOffsets") -> "StreamOffsets":
        """These offsets, as far as the other has the partitions and goes as far."""
        both = self.positions.keys() & other.positions.keys()
        return StreamOffsets({p: min(self.positions[p], other.positions[p]) for p in both}, other.topic_ids)

    def with_unseen_of(self, start: "StreamOffsets") -> "StreamOffsets":
        """These offsets, and those of partitions that the start has of the same topics and that are not here.

        A topic never loses a partition, so one that is not seen may come back, and must not be read from its beginning.
        """
        recreated = start.recreated_in(self)
        unseen = {
            partition: at
            for partition, at in start.positions.items()
            if partition not in self.positions and partition.topic in self.topics and partition.topic not in recreated
        }
        return StreamOffsets({**unseen, **self.positions}, self.topic_ids) if unseen else self

    def recreated_in(self, other: "StreamOffsets") -> set[str]:
        """Topics that both name, but that have another id in the other."""
        return {
            topic
            for topic in self.topics & other.topics
            if topic in self.topic_ids and topic in other.topic_ids and self.topic_ids[topic] != other.topic_ids[topic]
        }
