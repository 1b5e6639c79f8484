"""Builds metadata images for tests by committing plans to a plain dictionary and following it."""

from collections.abc import Iterable

from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.keys import broker_key, partition_key, topic_key
from martlet.cluster.records import BrokerRecord, PartitionRecord, TopicRecord, encode_record
from martlet.cluster.store import Change, CommitPlan, Entry, Event, Listing


class FollowedStore:
    """A store reduced to a dictionary, and an image that has seen every change of it."""

    def __init__(self, brokers: Iterable[int] = ()) -> None:
        self.image = MetadataImage()
        self.entries: dict[str, Entry] = {}
        self.revision = 0
        for broker in brokers:
            self.put_broker(broker, incarnation=broker * 10)

    def commit(self, plan: CommitPlan) -> ImageDelta:
        """Apply the plan, which must be based on the present state."""
        for key, expected in plan.compares.items():
            found = self.entries.get(key)
            assert (found.mod_revision if found else 0) == expected, f"the comparison of {key} would fail"
        doomed = {key for key in plan.deletes if key in self.entries}
        doomed |= {key for key in self.entries for prefix in plan.delete_prefixes if key.startswith(prefix)}
        self.revision += 1
        events = [Event(key, None) for key in sorted(doomed)]
        for key in doomed:
            del self.entries[key]
        for key, value in plan.puts.items():
            before = self.entries.get(key)
            created = before.create_revision if before else self.revision
            self.entries[key] = Entry(key, value, created, self.revision)
            events.append(Event(key, self.entries[key]))
        return self.image.apply(Change(self.revision, tuple(events)))

    def put(self, **values: bytes) -> ImageDelta:
        return self.commit(CommitPlan(puts=values))

    def put_broker(self, broker: int, incarnation: int) -> ImageDelta:
        record = BrokerRecord(BrokerId(broker), Incarnation(incarnation))
        return self.commit(CommitPlan(puts={broker_key(record.id): encode_record(record)}))

    def listing(self) -> Listing:
        return Listing(self.revision, tuple(self.entries[key] for key in sorted(self.entries)))


def topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


def topic(name: str, number: int, *, partitions: int = 1, configs: dict[str, str] | None = None) -> TopicRecord:
    return TopicRecord(name, topic_id(number), partitions, 1, configs or {})


def partition(
    number: int, index: int, *, leader: int | None = 1, epoch: int = 0, incarnation: int = 10
) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id(number),
        partition=index,
        replicas=(BrokerId(1),),
        leader=None if leader is None else BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=(Member(BrokerId(1), Incarnation(incarnation)),),
    )


def puts(*records: TopicRecord | PartitionRecord) -> CommitPlan:
    """A plan that writes the records without looking."""
    values = {}
    for record in records:
        if isinstance(record, TopicRecord):
            values[topic_key(record.name)] = encode_record(record)
        else:
            values[partition_key(record.topic_id, record.partition)] = encode_record(record)
    return CommitPlan(puts=values)
