"""The offsets of all groups of one machine: the state, its only writer, and lookups; no rules.

How it works: group → topic → partition → `CommittedOffset`, as nested dictionaries, so that a group's offsets, or a
topic's within it, are found without visiting others. Topic names come back from the log as new strings every time;
they are interned, so that a thousand groups share one.

Invariants:
GRP-19 No group without a topic and no topic without a partition is kept, so "has offsets" is "is a key".
GRP-20 `count` is the number of offsets held.

Proved by: tests/unit/groups/offsets/test_offset_table.py, tests/properties/test_group_offsets.py
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from sys import intern
from typing import Final, TypeAlias

from martlet.groups.offsets.pending import PendingOffsets
from martlet.groups.records import OffsetCommitted, OffsetPending, OffsetRemoved, OffsetsDecided


@dataclass(frozen=True, slots=True)
class TopicsForgotten:
    """These topics were deleted and not all of their offsets could be removed at once; the rest follows."""

    topics: frozenset[str]
    deleted_at_ms: int


@dataclass(frozen=True, slots=True)
class TopicsCleared:
    """The offsets that were left over from deleted topics are gone."""

    topics: frozenset[str]


OffsetRecord: TypeAlias = (
    OffsetCommitted | OffsetRemoved | OffsetPending | OffsetsDecided | TopicsForgotten | TopicsCleared
)

_NOTHING: Mapping[str, Mapping[int, "CommittedOffset"]] = {}
_NO_PARTITIONS: Mapping[int, "CommittedOffset"] = {}
_RECORDS_PER_STEP: Final = 200
"""Of one step of a snapshot."""


class CommittedOffset:
    """How far a group has come in one partition. There may be millions, hence no dataclass machinery and no dict."""

    __slots__ = ("committed_at_ms", "expires_at_ms", "leader_epoch", "metadata", "offset")

    def __init__(self, record: OffsetCommitted) -> None:
        self.offset = record.offset
        self.leader_epoch = record.leader_epoch
        self.metadata = record.metadata or ""
        self.committed_at_ms = record.committed_at_ms
        self.expires_at_ms = record.expires_at_ms

    def record(self, group_id: str, topic: str, partition: int) -> OffsetCommitted:
        """The record that commits it."""
        return OffsetCommitted(
            group_id,
            topic,
            partition,
            self.offset,
            self.leader_epoch,
            self.metadata,
            self.committed_at_ms,
            self.expires_at_ms,
        )

    def __repr__(self) -> str:
        return f"{self.offset}@{self.leader_epoch} {self.metadata!r} at {self.committed_at_ms}/{self.expires_at_ms}"


class OffsetTable:
    """Owned by the groups machine; `replay` alone changes it."""

    __slots__ = ("_groups", "count", "forgotten_topics", "pending")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self.count = 0
        self.pending = PendingOffsets()
        self.forgotten_topics: dict[str, int] = {}
        """Deleted topics of which offsets may be left over, with the instant of their deletion."""

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups or group_id in self.pending

    def group_ids(self) -> Iterator[str]:
        """Every group that has an offset, or has one in an open transaction."""
        yield from self._groups
        yield from (group_id for group_id in self.pending.group_ids() if group_id not in self._groups)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """By topic and partition; empty for a group without offsets."""
        return self._groups.get(group_id, _NOTHING)

    def of_topic(self, group_id: str, topic: str) -> Mapping[int, CommittedOffset]:
        """What the group has committed in this topic, by partition."""
        return self.of_group(group_id).get(topic, _NO_PARTITIONS)

    def partitions_of_topic(self, group_id: str, topic: str) -> Mapping[int, CommittedOffset | None]:
        """The same with those that only open transactions hold, as None."""
        committed = self.of_topic(group_id, topic)
        if group_id not in self.pending:
            return committed
        staged = [partition for name, partition in self.pending.of_group(group_id) if name == topic]
        return {**dict.fromkeys(staged), **committed}

    def topics_of_group(self, group_id: str) -> AbstractSet[str]:
        """The topics in which the group has offsets, also in open transactions."""
        return {*self.of_group(group_id), *(name for name, _ in self.pending.of_group(group_id))}

    def count_of_group(self, group_id: str) -> int:
        return sum(map(len, self.of_group(group_id).values()))

    def all(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition, offset."""
        for group_id, topics in self._groups.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    yield group_id, topic, partition, committed.offset

    def topic_names(self) -> set[str]:
        """Topics in which something is committed, or is in open transactions."""
        return {topic for group_id in self.group_ids() for topic in self.topics_of_group(group_id)}

    def live_records(self) -> Iterator[Sequence[OffsetCommitted]]:
        """Everything committed, some at each step; offsets may come and go between the steps."""
        for group_id in tuple(self._groups):
            for topic in tuple(self.of_group(group_id)):
                indexes = tuple(self.of_topic(group_id, topic))
                for start in range(0, len(indexes), _RECORDS_PER_STEP):
                    partitions = self.of_topic(group_id, topic)
                    asked = indexes[start : start + _RECORDS_PER_STEP]
                    yield [partitions[index].record(group_id, topic, index) for index in asked if index in partitions]

    def replay(self, record: OffsetRecord) -> None:
        """Take over a commit, forget an offset that may be gone already, or note what is still to be forgotten."""
        match record:
            case OffsetCommitted():
                self._put(record)
                if len(self.pending):
                    self.pending.overtaken_by(record)
            case OffsetRemoved():
                self._remove(record)
                self.pending.drop(record.group_id, record.topic, record.partition)
            case OffsetPending():
                self.pending.stage(record)
            case OffsetsDecided():
                for commit in self.pending.decide(record.producer_id, is_commit=record.is_commit):
                    self._put(commit)
            case TopicsForgotten():
                self.forgotten_topics.update(dict.fromkeys(record.topics, record.deleted_at_ms))
            case TopicsCleared():
                for topic in record.topics:
                    self.forgotten_topics.pop(topic, None)

    def _put(self, record: OffsetCommitted) -> None:
        partitions = self._groups.setdefault(record.group_id, {}).setdefault(intern(record.topic), {})
        self.count += record.partition not in partitions
        partitions[record.partition] = CommittedOffset(record)

    def _remove(self, record: OffsetRemoved) -> None:
        topics = self._groups.get(record.group_id)
        if topics is None or (partitions := topics.get(record.topic)) is None:
            return
        if partitions.pop(record.partition, None) is not None:
            self.count -= 1
        if not partitions:
            del topics[record.topic]
        if not topics:
            del self._groups[record.group_id]
