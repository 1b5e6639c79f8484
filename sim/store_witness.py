"""Everything the simulated metadata store ever held, kept by a witness that forgets nothing when the store compacts.

Here are the invariants that speak of the store alone: epochs only grow and have one leader process each (REP-5), a set
that changes names registered processes (REP-11).
"""

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from typing import cast

from martlet.base.ids import BrokerId, Incarnation, Member, TopicId, TopicPartition
from martlet.cluster.keys import BROKER_PREFIX, PARTITION_PREFIX, TOPIC_PREFIX, live_key
from martlet.cluster.records import BrokerRecord, PartitionRecord, TopicRecord, decode_record
from martlet.cluster.store import Entry
from sim.store import SimStoreState

Report = Callable[[str, str], None]


class StoreWitness:
    """Notified of every revision in the moment it is made."""

    def __init__(self, state: SimStoreState, report: Report) -> None:
        self.revision = 0
        self.partitions: dict[TopicPartition, PartitionRecord] = {}
        self.brokers: dict[BrokerId, BrokerRecord] = {}
        self.lost_at: dict[BrokerId, Incarnation] = {}
        """Brokers that lost something, and the last process that was registered then."""
        self.on_partition: Callable[[TopicPartition], None] = lambda partition: None
        self._state = state
        self._report = report
        self._topics: dict[TopicId, TopicRecord] = {}
        self._by_id: dict[tuple[TopicId, int], PartitionRecord] = {}
        self._revisions: dict[str, list[int]] = defaultdict(list)
        self._leaders: dict[tuple[TopicId, int, int], Member] = {}
        state.moved.add(cast(asyncio.Event, _Hook(self._moved)))

    # --- what is true now

    def is_alive(self, broker: BrokerId) -> bool:
        """Whether a lease says so."""
        return live_key(broker) in self._state.entries

    def counts_for(self, entry: Member) -> Member | None:
        """The registered process for which this entry of a set counts, if there is one."""
        record = self.brokers.get(entry.broker)
        if record is None or not record.vouches_for(entry.incarnation):
            return None
        return Member(record.id, record.incarnation)

    def candidates(self, partition: TopicPartition) -> list[Member]:
        """The processes that may be elected: the members of both sets, as far as they count."""
        record = self.partitions[partition]
        return [member for entry in (*record.isr, *record.elr) if (member := self.counts_for(entry)) is not None]

    def version_of(self, key: str, revision: int) -> int:
        """The revision in which the key last changed up to that one; 0 when it never had."""
        revisions = self._revisions[key]
        place = bisect_right(revisions, revision)
        return revisions[place - 1] if place else 0

    def vouches_wrongly(self, process: Member) -> bool:
        """Whether this process, which has found its disk as a loss left it, claims to hold what was there before."""
        lost, record = self.lost_at.get(process.broker), self.brokers.get(process.broker)
        if lost is None or record is None or record.incarnation != process.incarnation:
            return False
        return process.incarnation > lost and record.vouches_for(lost)

    # --- what happened

    def lost_disk(self, broker: BrokerId) -> None:
        """From now on no process of this broker may vouch for the ones before."""
        record = self.brokers.get(broker)
        if record is not None:
            self.lost_at[broker] = record.incarnation

    def has_recovered(self, broker: BrokerId) -> bool:
        """Whether a process since then is back in the in-sync set of everything it holds."""
        lost = self.lost_at.get(broker)
        if lost is None:
            return True
        record = self.brokers[broker]
        me = Member(record.id, record.incarnation)
        return record.incarnation > lost and all(
            me in held.isr for held in self.partitions.values() if broker in held.replicas
        )

    def _moved(self) -> None:
        if self._state.revision == self.revision:
            return
        changes = self._state.changes_after(self.revision)
        for change in changes:
            self.revision = change.revision
            for event in change.events:
                self._revisions[event.key].append(change.revision)
                if event.entry is not None:
                    self._stored(event.entry)

    def _stored(self, entry: Entry) -> None:
        key = entry.key
        if key.startswith(PARTITION_PREFIX):
            self._partition_stored(decode_record(PartitionRecord, entry))
        elif key.startswith(BROKER_PREFIX):
            self._broker_stored(decode_record(BrokerRecord, entry))
        elif key.startswith(TOPIC_PREFIX):
            topic = decode_record(TopicRecord, entry)
            self._topics[topic.id] = topic
            for index in range(topic.partition_count):
                self.partitions[TopicPartition(topic.name, index)] = self._by_id[topic.id, index]

    def _broker_stored(self, record: BrokerRecord) -> None:
        before = self.brokers.get(record.id)
        self.brokers[record.id] = record
        if before is not None and record.incarnation < before.incarnation:
            self._report(
                "REP-5", f"broker {record.id} went from incarnation {before.incarnation} to {record.incarnation}"
            )

    def _partition_stored(self, record: PartitionRecord) -> None:
        key = record.topic_id, record.partition
        before = self._by_id.get(key)
        self._by_id[key] = record
        name = f"{self._topics[record.topic_id].name if record.topic_id in self._topics else ''}-{record.partition}"
        if before is not None and record.leader_epoch < before.leader_epoch:
            self._report("REP-5", f"{name} went from epoch {before.leader_epoch} back to {record.leader_epoch}")
        if record.leader is not None:
            leader = Member(record.leader, record.leader_incarnation or Incarnation(-1))
            known = self._leaders.setdefault((*key, record.leader_epoch), leader)
            if known != leader:
                self._report("REP-5", f"{name} has two leaders in epoch {record.leader_epoch}: {known} and {leader}")
        if before is not None and record.leader_epoch == before.leader_epoch:
            self._added(name, before, record)
        topic = self._topics.get(record.topic_id)
        if topic is not None:
            partition = TopicPartition(topic.name, record.partition)
            self.partitions[partition] = record
            self.on_partition(partition)

    def _added(self, name: str, before: PartitionRecord, after: PartitionRecord) -> None:
        for member in after.isr:
            broker = self.brokers.get(member.broker)
            if member not in before.isr and (broker is None or broker.incarnation != member.incarnation):
                self._report("REP-11", f"{member} joined the in-sync set of {name}, but {broker} is registered")


class _Hook:
    """Stands among the events that a `SimStoreState` sets."""

    def __init__(self, moved: Callable[[], None]) -> None:
        self.set = moved
