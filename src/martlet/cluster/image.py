"""One broker's picture of the cluster: the store's content up to a revision, decoded and indexed for lookups.

Rules: only `load` and `apply` change the image, and they only follow the store; nothing is ever decided or guessed
here. Lookups are dictionary accesses, because every publish and fetch makes them. Not for several threads.

How it works: `load` takes a listing of the whole store, `apply` one revision of a watch. Both return an `ImageDelta`,
what has changed in terms of topics, partitions, brokers and settings. Partition records arrive before their
topic does (a large topic is written in several commits); they stay unseen until the topic's record counts them.

Invariants:
M1 the image equals some prefix of the store's history: revisions only grow and none is skipped;
M2 a topic that can be looked up has all its partitions, with indexes from 0 on;
M3 a delta names everything that differs between the image before and after it, and nothing else.

Proved by: tests/unit/cluster/test_image.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from martlet.base.ids import BrokerId, Incarnation, TopicId
from martlet.base.invariant import invariant
from martlet.cluster.keys import (
    BROKER_CONFIG_PREFIX,
    BROKER_PREFIX,
    CLUSTER_KEY,
    CONTROLLER_KEY,
    DRAIN_PREFIX,
    GROUP_CONFIG_PREFIX,
    LIVE_PREFIX,
    PARTITION_PREFIX,
    TOPIC_PREFIX,
    read_broker_config_key,
    read_broker_key,
    read_drain_key,
    read_group_config_key,
    read_live_key,
    read_partition_key,
    topic_key,
)
from martlet.cluster.records import (
    BrokerRecord,
    ClusterRecord,
    ConfigRecord,
    DrainRecord,
    GroupConfigRecord,
    LiveRecord,
    PartitionRecord,
    RoleRecord,
    TopicRecord,
    decode_broker,
    decode_cluster,
    decode_configs,
    decode_drain,
    decode_group_configs,
    decode_live,
    decode_partition,
    decode_role,
    decode_topic,
)
from martlet.cluster.store import Change, Event, Listing


class TopicChange(NamedTuple):
    """A topic made (`before` is None), deleted (`after` is None), or changed in settings or partition count."""

    before: TopicRecord | None
    after: TopicRecord | None


class PartitionChange(NamedTuple):
    """A partition that came, went, or was stored anew: with another leader, epoch or in-sync set, or just again."""

    topic: str
    before: PartitionRecord | None
    after: PartitionRecord | None


class BrokerChange(NamedTuple):
    """A broker that came, went, or registered anew."""

    before: BrokerRecord | None
    after: BrokerRecord | None


class LiveChange(NamedTuple):
    """A broker process that became alive, went, was replaced by another, or began to leave."""

    before: LiveRecord | None
    after: LiveRecord | None


@dataclass(frozen=True, slots=True)
class ImageDelta:
    """What one step of the image has changed; deletions come first in each list."""

    revision: int
    topics: tuple[TopicChange, ...] = ()
    partitions: tuple[PartitionChange, ...] = ()
    brokers: tuple[BrokerChange, ...] = ()
    broker_configs: tuple[BrokerId | None, ...] = ()
    """Brokers whose run-time settings changed; None stands for the cluster's defaults."""
    live: tuple[LiveChange, ...] = ()
    controller: bool = False
    """Whether another process, or none, has the controller's role now."""
    drains: tuple[BrokerId, ...] = ()
    """Brokers that are to be drained from now on, or no longer."""
    group_configs: tuple[str, ...] = ()
    """Groups whose settings changed; they look at them with every heartbeat by themselves."""

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to tell; many steps only touch what is not the image's business."""
        return bool(
            self.topics
            or self.partitions
            or self.brokers
            or self.broker_configs
            or self.live
            or self.controller
            or self.drains
            or self.group_configs
        )

    @property
    def topics_created(self) -> list[TopicRecord]:
        return [change.after for change in self.topics if change.before is None and change.after is not None]

    @property
    def topics_deleted(self) -> list[TopicRecord]:
        return [change.before for change in self.topics if change.after is None and change.before is not None]

    @property
    def topics_changed(self) -> list[tuple[TopicRecord, TopicRecord]]:
        """Before and after of each topic whose settings or partition count changed."""
        return [(before, after) for before, after in self.topics if before is not None and after is not None]


class _Topic(NamedTuple):
    record: TopicRecord
    partitions: tuple[PartitionRecord, ...]


class _Touched:
    """What a step has laid hands on, with the state before it."""

    __slots__ = ("broker_configs", "brokers", "drains", "group_configs", "live", "topics")

    def __init__(self) -> None:
        self.topics: dict[TopicId, _Topic | None] = {}
        self.brokers: dict[BrokerId, BrokerRecord | None] = {}
        self.broker_configs: dict[BrokerId | None, None] = {}
        self.group_configs: dict[str, None] = {}
        self.live: dict[BrokerId, LiveRecord | None] = {}
        self.drains: dict[BrokerId, DrainRecord | None] = {}


class MetadataImage:
    """Owned by the broker's metadata feed, which alone may call `load` and `apply`; read by everybody."""

    def __init__(self) -> None:
        self.revision = 0
        self.cluster: ClusterRecord | None = None
        self.controller: RoleRecord | None = None
        """The process with the controller's role; None while nobody has it."""
        self._brokers: dict[BrokerId, BrokerRecord] = {}
        self._broker_configs: dict[BrokerId | None, ConfigRecord] = {}
        self._group_configs: dict[str, GroupConfigRecord] = {}
        self._live: dict[BrokerId, LiveRecord] = {}
        self._drains: dict[BrokerId, DrainRecord] = {}
        self._by_name: dict[str, _Topic] = {}
        self._by_id: dict[TopicId, _Topic] = {}
        # By key, which also finds a name's colliding neighbour, and by id: records without regard to M2.
        self._topic_records: dict[str, TopicRecord] = {}
        self._topic_records_by_id: dict[TopicId, TopicRecord] = {}
        self._partition_records: dict[TopicId, dict[int, PartitionRecord]] = {}
        self._key_revisions: dict[str, int] = {}
        self._sorted_topics: tuple[TopicRecord, ...] | None = None

    # --- lookups

    @property
    def cluster_id(self) -> str:
        """Empty until the first broker has registered."""
        return self.cluster.cluster_id if self.cluster is not None else ""

    @property
    def replica_secret(self) -> str:
        """What a broker shows to be let fetch as a replica; empty: nobody is let."""
        return self.cluster.replica_secret if self.cluster is not None else ""

    def brokers(self) -> list[BrokerRecord]:
        """The registered brokers, by id."""
        return [self._brokers[broker] for broker in sorted(self._brokers)]

    def broker(self, broker: BrokerId) -> BrokerRecord | None:
        return self._brokers.get(broker)

    def incarnations(self) -> dict[BrokerId, Incarnation]:
        """The registered brokers' incarnations, in the order of their ids."""
        return {broker.id: broker.incarnation for broker in self.brokers()}

    def live(self, broker: BrokerId) -> LiveRecord | None:
        """The broker's living process, whichever it is; None while no lease says that there is one."""
        return self._live.get(broker)

    def live_revision(self, broker: BrokerId) -> int:
        """What a commit compares so that the broker is as alive, or as gone, as it is here."""
        record = self._live.get(broker)
        return record.mod_revision if record is not None else 0

    def drain(self, broker: BrokerId) -> DrainRecord | None:
        """The wish to empty this broker, if somebody has it."""
        return self._drains.get(broker)

    def broker_configs(self, broker: BrokerId | None) -> Mapping[str, str]:
        """Run-time settings of one broker, or the cluster's defaults when None."""
        record = self._broker_configs.get(broker)
        return record.configs if record is not None else {}

    def broker_config_record(self, broker: BrokerId | None) -> ConfigRecord:
        """The same with the revision it was read at."""
        return self._broker_configs.get(broker) or ConfigRecord(broker)

    def group_configs(self, group: str) -> Mapping[str, str]:
        """What a group sets itself."""
        record = self._group_configs.get(group)
        return record.configs if record is not None else {}

    def group_config_record(self, group: str) -> GroupConfigRecord:
        """The same with the revision it was read at."""
        return self._group_configs.get(group) or GroupConfigRecord(group)

    def groups_with_configs(self) -> list[str]:
        """The ids of the groups that set something themselves."""
        return sorted(self._group_configs)

    def topic(self, name: str) -> TopicRecord | None:
        found = self._by_name.get(name)
        return found.record if found is not None else None

    def topic_by_id(self, topic_id: TopicId) -> TopicRecord | None:
        found = self._by_id.get(topic_id)
        return found.record if found is not None else None

    def topic_colliding_with(self, name: str) -> TopicRecord | None:
        """The topic that has this name or one that differs only in "." and "_"."""
        return self._topic_records.get(topic_key(name))

    def topics(self) -> tuple[TopicRecord, ...]:
        """All topics, sorted by name."""
        if self._sorted_topics is None:
            self._sorted_topics = tuple(self._by_name[name].record for name in sorted(self._by_name))
        return self._sorted_topics

    def partition(self, name: str, index: int) -> PartitionRecord | None:
        found = self._by_name.get(name)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def partitions(self, name: str) -> tuple[PartitionRecord, ...]:
        """All partitions of a topic by index; empty when there is no such topic."""
        found = self._by_name.get(name)
        return found.partitions if found is not None else ()

    # --- following the store

    def load(self, listing: Listing) -> ImageDelta:
        """Take over a listing of the whole store: what the image knew and the listing lacks is gone."""
        invariant(listing.revision >= self.revision, "M1: the store's revision never goes back")
        events = [
            Event(entry.key, entry)
            for entry in listing.entries
            if self._key_revisions.get(entry.key) != entry.mod_revision
        ]
        present = {entry.key for entry in listing.entries}
        gone = [Event(key, None) for key in self._key_revisions if key not in present]
        return self._step(listing.revision, [*gone, *events])

    def apply(self, change: Change) -> ImageDelta:
        """Take over one revision of a watch."""
        invariant(change.revision >= self.revision, "M1: the store's revision never goes back")
        return self._step(change.revision, change.events)

    def _step(self, revision: int, events: list[Event] | tuple[Event, ...]) -> ImageDelta:
        touched = _Touched()
        controller = self.controller
        for event in events:
            if event.entry is None:
                self._key_revisions.pop(event.key, None)
            else:
                self._key_revisions[event.key] = event.entry.mod_revision
            self._take(event, touched)
        if touched.topics:
            self._rebuild(touched)
        self.revision = revision
        return self._delta(touched, controller)

    def _take(self, event: Event, touched: _Touched) -> None:
        key = event.key
        if key.startswith(PARTITION_PREFIX):
            self._take_partition(event, touched)
        elif key.startswith(TOPIC_PREFIX):
            self._take_topic(event, touched)
        elif key.startswith(BROKER_PREFIX):
            self._take_broker(event, touched)
        elif key.startswith(BROKER_CONFIG_PREFIX):
            self._take_broker_configs(event, touched)
        elif key.startswith(GROUP_CONFIG_PREFIX):
            self._take_group_configs(event, touched)
        elif key.startswith(LIVE_PREFIX):
            self._take_live(event, touched)
        elif key.startswith(DRAIN_PREFIX):
            self._take_drain(event, touched)
        elif key == CONTROLLER_KEY:
            self.controller = decode_role(event.entry) if event.entry is not None else None
        elif key == CLUSTER_KEY:
            self.cluster = decode_cluster(event.entry) if event.entry is not None else None
        # Other keys (counters, intents, those of newer versions) are not the image's business.

    def _take_partition(self, event: Event, touched: _Touched) -> None:
        if event.entry is not None:
            record = decode_partition(event.entry)
            topic_id = record.topic_id
            self._partition_records.setdefault(topic_id, {})[record.partition] = record
        else:
            topic_id, index = read_partition_key(event.key)
            records = self._partition_records.get(topic_id, {})
            records.pop(index, None)
            if not records:
                self._partition_records.pop(topic_id, None)
        touched.topics.setdefault(topic_id, self._by_id.get(topic_id))

    def _take_topic(self, event: Event, touched: _Touched) -> None:
        before = self._topic_records.pop(event.key, None)
        if before is not None:
            self._topic_records_by_id.pop(before.id, None)
            touched.topics.setdefault(before.id, self._by_id.get(before.id))
        if event.entry is not None:
            after = decode_topic(event.entry)
            self._topic_records[event.key] = after
            self._topic_records_by_id[after.id] = after
            touched.topics.setdefault(after.id, self._by_id.get(after.id))

    def _take_broker(self, event: Event, touched: _Touched) -> None:
        broker = read_broker_key(event.key)
        touched.brokers.setdefault(broker, self._brokers.get(broker))
        if event.entry is not None:
            self._brokers[broker] = decode_broker(event.entry)
        else:
            self._brokers.pop(broker, None)

    def _take_group_configs(self, event: Event, touched: _Touched) -> None:
        group = read_group_config_key(event.key)
        touched.group_configs[group] = None
        if event.entry is not None:
            self._group_configs[group] = decode_group_configs(event.entry)
        else:
            self._group_configs.pop(group, None)

    def _take_broker_configs(self, event: Event, touched: _Touched) -> None:
        broker = read_broker_config_key(event.key)
        touched.broker_configs[broker] = None
        if event.entry is not None:
            self._broker_configs[broker] = decode_configs(event.entry)
        else:
            self._broker_configs.pop(broker, None)

    def _take_live(self, event: Event, touched: _Touched) -> None:
        broker = read_live_key(event.key)
        touched.live.setdefault(broker, self._live.get(broker))
        if event.entry is not None:
            self._live[broker] = decode_live(event.entry)
        else:
            self._live.pop(broker, None)

    def _take_drain(self, event: Event, touched: _Touched) -> None:
        broker = read_drain_key(event.key)
        touched.drains.setdefault(broker, self._drains.get(broker))
        if event.entry is not None:
            self._drains[broker] = decode_drain(event.entry)
        else:
            self._drains.pop(broker, None)

    def _rebuild(self, touched: _Touched) -> None:
        for topic_id, before in touched.topics.items():
            if before is not None:
                self._by_id.pop(topic_id, None)
                self._by_name.pop(before.record.name, None)
        for topic_id in touched.topics:
            record = self._topic_records_by_id.get(topic_id)
            if record is not None:
                topic = _Topic(record, self._counted_partitions(record))
                self._by_id[topic_id] = self._by_name[record.name] = topic
        self._sorted_topics = None

    def _counted_partitions(self, record: TopicRecord) -> tuple[PartitionRecord, ...]:
        records = self._partition_records.get(record.id, {})
        invariant(
            all(index in records for index in range(record.partition_count)),
            f"M2: topic {record.name} has all its {record.partition_count} partitions",
        )
        return tuple(records[index] for index in range(record.partition_count))

    def _delta(self, touched: _Touched, controller: RoleRecord | None) -> ImageDelta:
        topics: list[TopicChange] = []
        partitions: list[PartitionChange] = []
        for topic_id, before in touched.topics.items():
            after = self._by_id.get(topic_id)
            old_record = before.record if before is not None else None
            new_record = after.record if after is not None else None
            if old_record != new_record:
                topics.append(TopicChange(old_record, new_record))
            partitions.extend(_partition_changes(before, after))
        brokers = [BrokerChange(before, self._brokers.get(broker)) for broker, before in touched.brokers.items()]
        live = [LiveChange(before, self._live.get(broker)) for broker, before in touched.live.items()]
        return ImageDelta(
            revision=self.revision,
            topics=tuple(sorted(topics, key=_deletions_first)),
            partitions=tuple(sorted(partitions, key=_deletions_first)),
            brokers=tuple(sorted((c for c in brokers if c.before != c.after), key=_deletions_first)),
            broker_configs=tuple(touched.broker_configs),
            controller=controller != self.controller,
            live=tuple(sorted((c for c in live if c.before != c.after), key=_deletions_first)),
            drains=tuple(
                sorted(broker for broker, before in touched.drains.items() if before != self._drains.get(broker))
            ),
            group_configs=tuple(touched.group_configs),
        )


def _partition_changes(before: _Topic | None, after: _Topic | None) -> list[PartitionChange]:
    topic = before or after
    if topic is None:
        return []
    pairs = zip_longest(before.partitions if before is not None else (), after.partitions if after is not None else ())
    # A record that was stored again counts even if it says the same: its revision is the partition epoch.
    return [PartitionChange(topic.record.name, old, new) for old, new in pairs if old is not new]


def _deletions_first(change: TopicChange | PartitionChange | BrokerChange | LiveChange) -> bool:
    return change.after is not None
