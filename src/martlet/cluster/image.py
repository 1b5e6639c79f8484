"""One broker's picture of the cluster: the store's content up to a revision, decoded and indexed for lookups.

Rules: only `load` and `apply` change the image, and they only follow the store; nothing is decided or guessed here.
Lookups are dictionary accesses, because every publish and fetch makes them. Not for several threads.

How it works: `load` takes a listing of the whole store, `apply` one revision of a watch. Both return an `ImageDelta`,
what has changed in terms of topics, partitions, brokers and settings.

Invariants:
CLS-1 the image equals some prefix of the store's history: revisions only grow and none is skipped;
CLS-2 a topic that can be looked up has all its partitions, with indexes from 0 on;
CLS-3 a delta names everything that differs between the image before and after it, and nothing else.

Proved by: tests/unit/cluster/test_image.py
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Generic, NamedTuple, TypeVar

from martlet.base.ids import BrokerId, Incarnation, TopicId
from martlet.base.invariant import invariant
from martlet.cluster.keys import (
    ACCESS_PREFIX,
    BROKER_CONFIG_PREFIX,
    BROKER_PREFIX,
    CLUSTER_KEY,
    CONTROLLER_KEY,
    DRAIN_PREFIX,
    GROUP_CONFIG_PREFIX,
    LIVE_PREFIX,
    PARTITION_PREFIX,
    QUOTA_PREFIX,
    SUBSCRIPTION_PREFIX,
    TOPIC_PREFIX,
    USER_PREFIX,
    QuotaEntity,
    read_access_key,
    read_broker_config_key,
    read_broker_key,
    read_drain_key,
    read_group_config_key,
    read_live_key,
    read_quota_key,
    read_subscription_key,
    read_user_key,
)
from martlet.cluster.records import (
    AccessRecord,
    BrokerRecord,
    ClusterRecord,
    ConfigRecord,
    DrainRecord,
    GroupConfigRecord,
    LiveRecord,
    PartitionRecord,
    QuotaRecord,
    RoleRecord,
    SubscriptionRecord,
    TopicRecord,
    UserRecord,
    decode_record,
)
from martlet.cluster.store import Change, Event, Listing
from martlet.cluster.topic_assembly import AssembledTopic, TopicAssembly

Key = TypeVar("Key")
Record = TypeVar("Record")


class TopicChange(NamedTuple):
    """A topic made (`before` is None), deleted (`after` is None), or changed in settings or partition count."""

    before: TopicRecord | None
    after: TopicRecord | None


class PartitionChange(NamedTuple):
    """A partition that came, went, or was stored again: with another leader, epoch or in-sync set, or unchanged."""

    topic: str
    before: PartitionRecord | None
    after: PartitionRecord | None


class BrokerChange(NamedTuple):
    """A broker that came, went, or registered again."""

    before: BrokerRecord | None
    after: BrokerRecord | None


class LiveChange(NamedTuple):
    """A broker process that became alive, went, was replaced by another, or began to leave."""

    before: LiveRecord | None
    after: LiveRecord | None


class AccessChange(NamedTuple):
    """The rules of a resource pattern that came, went, or are others now."""

    before: AccessRecord | None
    after: AccessRecord | None


class SubscriptionChange(NamedTuple):
    """A subscription that came, went, or is another now."""

    before: SubscriptionRecord | None
    after: SubscriptionRecord | None


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
    """Groups whose settings changed; a group reads its settings at every heartbeat."""
    access: tuple[AccessChange, ...] = ()
    users: tuple[str, ...] = ()
    """Users who came or went, or whose credentials changed."""
    quotas: tuple[QuotaEntity, ...] = ()
    subscriptions: tuple[SubscriptionChange, ...] = ()

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
            or self.access
            or self.users
            or self.quotas
            or self.subscriptions
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


class _Table(Generic[Key, Record]):
    """The records of one kind by what their keys name, and those that a step has touched as they were before it."""

    def __init__(self, kind: type[Record], read_key: Callable[[str], Key]) -> None:
        self.records: dict[Key, Record] = {}
        self._kind = kind
        self._read_key = read_key
        self._before: dict[Key, Record | None] = {}

    def take(self, event: Event) -> None:
        key = self._read_key(event.key)
        self._before.setdefault(key, self.records.get(key))
        if event.entry is not None:
            self.records[key] = decode_record(self._kind, event.entry)
        else:
            self.records.pop(key, None)

    def end_step(self) -> list[tuple[Key, Record | None, Record | None]]:
        """What differs from before the step: key, before and after, deletions first."""
        changes = [(key, before, self.records.get(key)) for key, before in self._before.items()]
        self._before.clear()
        return sorted((each for each in changes if each[1] != each[2]), key=lambda change: change[2] is not None)


class MetadataImage:
    """Owned by the broker's metadata feed, which alone may call `load` and `apply`; read by everybody."""

    def __init__(self) -> None:
        self.revision = 0
        self.cluster: ClusterRecord | None = None
        self.controller: RoleRecord | None = None
        """The process with the controller's role; None while there is none."""
        self._brokers = _Table(BrokerRecord, read_broker_key)
        self._live = _Table(LiveRecord, read_live_key)
        self._drains = _Table(DrainRecord, read_drain_key)
        self._broker_configs = _Table(ConfigRecord, read_broker_config_key)
        self._group_configs = _Table(GroupConfigRecord, read_group_config_key)
        self._access = _Table(AccessRecord, read_access_key)
        self._users = _Table(UserRecord, read_user_key)
        self._quotas = _Table(QuotaRecord, read_quota_key)
        self._subscriptions = _Table(SubscriptionRecord, read_subscription_key)
        self._take_by_prefix: Mapping[str, Callable[[Event], None]] = {
            BROKER_PREFIX: self._brokers.take,
            LIVE_PREFIX: self._live.take,
            DRAIN_PREFIX: self._drains.take,
            BROKER_CONFIG_PREFIX: self._broker_configs.take,
            GROUP_CONFIG_PREFIX: self._group_configs.take,
            ACCESS_PREFIX: self._access.take,
            USER_PREFIX: self._users.take,
            QUOTA_PREFIX: self._quotas.take,
            SUBSCRIPTION_PREFIX: self._subscriptions.take,
        }
        self._assembly = TopicAssembly()
        self._by_name: dict[str, AssembledTopic] = {}
        self._by_id: dict[TopicId, AssembledTopic] = {}
        self._key_revisions: dict[str, int] = {}
        self._sorted_topics: tuple[TopicRecord, ...] | None = None

    # --- lookups

    @property
    def cluster_id(self) -> str:
        """Empty until the first broker has registered."""
        return self.cluster.cluster_id if self.cluster is not None else ""

    @property
    def replica_secret(self) -> str:
        """What a broker shows to fetch as a replica; while it is empty, none may."""
        return self.cluster.replica_secret if self.cluster is not None else ""

    def brokers(self) -> list[BrokerRecord]:
        """The registered brokers, by id."""
        return [self._brokers.records[broker] for broker in sorted(self._brokers.records)]

    def broker(self, broker: BrokerId) -> BrokerRecord | None:
        return self._brokers.records.get(broker)

    def incarnations(self) -> dict[BrokerId, Incarnation]:
        """The registered brokers' incarnations, in the order of their ids."""
        return {broker.id: broker.incarnation for broker in self.brokers()}

    def live(self, broker: BrokerId) -> LiveRecord | None:
        """The broker's living process, whichever it is; None while no lease says that there is one."""
        return self._live.records.get(broker)

    def live_revision(self, broker: BrokerId) -> int:
        """What a commit compares so that the broker is as alive, or as gone, as it is here."""
        record = self._live.records.get(broker)
        return record.mod_revision if record is not None else 0

    def drain(self, broker: BrokerId) -> DrainRecord | None:
        """The wish to empty this broker, if there is one."""
        return self._drains.records.get(broker)

    def broker_configs(self, broker: BrokerId | None) -> Mapping[str, str]:
        """Run-time settings of one broker, or the cluster's defaults when None."""
        record = self._broker_configs.records.get(broker)
        return record.configs if record is not None else {}

    def broker_config_record(self, broker: BrokerId | None) -> ConfigRecord:
        """The same with the revision it was read at."""
        return self._broker_configs.records.get(broker) or ConfigRecord(broker)

    def group_configs(self, group: str) -> Mapping[str, str]:
        """What a group sets itself."""
        record = self._group_configs.records.get(group)
        return record.configs if record is not None else {}

    def group_config_record(self, group: str) -> GroupConfigRecord:
        """The same with the revision it was read at."""
        return self._group_configs.records.get(group) or GroupConfigRecord(group)

    def groups_with_configs(self) -> list[str]:
        """The ids of the groups that set something themselves."""
        return sorted(self._group_configs.records)

    def access_records(self) -> Mapping[tuple[str, str, str], AccessRecord]:
        """The access rules by resource pattern."""
        return self._access.records

    def users(self) -> Mapping[str, UserRecord]:
        """The users who prove their identity by a password, by name."""
        return self._users.records

    def quotas(self) -> Mapping[QuotaEntity, QuotaRecord]:
        """The quotas by entity."""
        return self._quotas.records

    def subscriptions(self) -> Mapping[str, SubscriptionRecord]:
        """The subscriptions by name."""
        return self._subscriptions.records

    def topic(self, name: str) -> TopicRecord | None:
        found = self._by_name.get(name)
        return found.record if found is not None else None

    def topic_by_id(self, topic_id: TopicId) -> TopicRecord | None:
        found = self._by_id.get(topic_id)
        return found.record if found is not None else None

    def topic_colliding_with(self, name: str) -> TopicRecord | None:
        """The topic that has this name or one that differs only in "." and "_"."""
        return self._assembly.colliding_with(name)

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
        invariant(listing.revision >= self.revision, "CLS-1: the store's revision never goes back")
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
        invariant(change.revision >= self.revision, "CLS-1: the store's revision never goes back")
        return self._step(change.revision, change.events)

    def _step(self, revision: int, events: Iterable[Event]) -> ImageDelta:
        controller = self.controller
        for event in events:
            if event.entry is None:
                self._key_revisions.pop(event.key, None)
            else:
                self._key_revisions[event.key] = event.entry.mod_revision
            self._take(event)
        self.revision = revision
        topics, partitions = self._replace_topics()
        return ImageDelta(
            revision=revision,
            topics=tuple(sorted(topics, key=_deletions_first)),
            partitions=tuple(sorted(partitions, key=_deletions_first)),
            brokers=tuple(BrokerChange(before, after) for _, before, after in self._brokers.end_step()),
            broker_configs=tuple(broker for broker, _, _ in self._broker_configs.end_step()),
            live=tuple(LiveChange(before, after) for _, before, after in self._live.end_step()),
            controller=controller != self.controller,
            drains=tuple(sorted(broker for broker, _, _ in self._drains.end_step())),
            group_configs=tuple(group for group, _, _ in self._group_configs.end_step()),
            access=tuple(AccessChange(before, after) for _, before, after in self._access.end_step()),
            users=tuple(user for user, _, _ in self._users.end_step()),
            quotas=tuple(entity for entity, _, _ in self._quotas.end_step()),
            subscriptions=tuple(SubscriptionChange(old, new) for _, old, new in self._subscriptions.end_step()),
        )

    def _take(self, event: Event) -> None:
        key = event.key
        if key.startswith(PARTITION_PREFIX):
            self._assembly.take_partition(event)
        elif key.startswith(TOPIC_PREFIX):
            self._assembly.take_topic(event)
        elif key == CONTROLLER_KEY:
            self.controller = decode_record(RoleRecord, event.entry) if event.entry is not None else None
        elif key == CLUSTER_KEY:
            self.cluster = decode_record(ClusterRecord, event.entry) if event.entry is not None else None
        else:
            # Other keys (counters, intents, those of newer versions) are not the image's business.
            for prefix, take in self._take_by_prefix.items():
                if key.startswith(prefix):
                    take(event)

    def _replace_topics(self) -> tuple[list[TopicChange], list[PartitionChange]]:
        """Show the topics that the step has touched as they are now."""
        touched = self._assembly.end_step()
        if touched:
            self._sorted_topics = None
        # All go before any comes: a topic made again under its name has another id.
        before_by_id = {topic_id: self._by_id.pop(topic_id, None) for topic_id in touched}
        for before in before_by_id.values():
            if before is not None:
                self._by_name.pop(before.record.name, None)
        topics: list[TopicChange] = []
        partitions: list[PartitionChange] = []
        for topic_id, before in before_by_id.items():
            after = self._assembly.assemble(topic_id)
            if after is not None:
                self._by_id[topic_id] = self._by_name[after.record.name] = after
            change = TopicChange(before.record if before else None, after.record if after else None)
            if change.before != change.after:
                topics.append(change)
            partitions += _partition_changes(before, after)
        return topics, partitions


def _partition_changes(before: AssembledTopic | None, after: AssembledTopic | None) -> list[PartitionChange]:
    topic = before or after
    if topic is None:
        return []
    pairs = zip_longest(before.partitions if before is not None else (), after.partitions if after is not None else ())
    # A record that was stored again counts even if it says the same: its revision is the partition epoch.
    return [PartitionChange(topic.record.name, old, new) for old, new in pairs if old is not new]


def _deletions_first(change: TopicChange | PartitionChange) -> bool:
    return change.after is not None
