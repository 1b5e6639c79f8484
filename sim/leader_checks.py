"""What is checked of leaders, and of those who may be elected, whenever the store or what is committed has moved."""

from typing import TYPE_CHECKING, Any

from martlet.base.ids import BrokerId, Member, TopicPartition
from sim.disk_log import Batch
from sim.ledger import Committed, Ledger, Replica

if TYPE_CHECKING:
    from sim.ghost import Ghost

_SEQUENCES = 1 << 31


class LeaderChecks:
    """One per ghost, to which it reports."""

    def __init__(self, ghost: "Ghost", ledger: Ledger) -> None:
        self._ghost = ghost
        self._ledger = ledger
        self._leads: dict[tuple[TopicPartition, int], Member] = {}

    def check_leader(self, broker: BrokerId, partition: TopicPartition, replica: Replica, leader: Any) -> None:
        me = leader.me
        known = self._leads.setdefault((partition, leader.leader_epoch), me)
        if known != me:
            self._ghost.report("REP-5", f"{me} leads {partition} in epoch {leader.leader_epoch}, which was {known}'s")
        record = self._ghost.store.partitions[partition]
        is_current = record.leader_epoch == leader.leader_epoch and self._ghost.hosts[broker].is_running
        committed = self._ledger.of(partition)
        if replica.high_watermark > committed.end_offset:
            self.commit(broker, partition, replica, replica.high_watermark)
            self._check_reached(partition, leader, replica.high_watermark)
        if is_current:
            self._ledger.verify(broker, partition, up_to=committed.end_offset, name="REP-1")
            self._check_maximal(partition, leader, record)
        self._check_frozen(partition, replica, leader)

    def commit(self, broker: BrokerId, partition: TopicPartition, replica: Replica, high_watermark: int) -> None:
        """The high watermark has passed batches: they are committed from now on."""
        committed = self._ledger.of(partition)
        self._ledger.verify(broker, partition, up_to=committed.end_offset, name="REP-1")
        number = len(committed.batches)
        while number < len(replica.disk.batches) and replica.disk.batches[number].next_offset <= high_watermark:
            batch, header = replica.disk.batches[number], replica.disk.header(number)
            committed.batches.append(batch)
            records = replica.disk.records(number)
            for record in records:
                committed.values[record.offset] = record.value or b""
                if partition.topic.startswith("__") and record.key is not None and not header.is_transactional:
                    self._restate(committed, record.key, record.offset, is_deleted=record.value is None)
            self._ghost.on_committed(partition, header, records)
            self._check_sequence(partition, committed, header)
            number += 1
        replica.verified = max(replica.verified, number)
        if number:
            self._check_holders(partition, committed.batches[-1], number - 1)
        self._check_candidates(partition)

    @staticmethod
    def _restate(committed: Committed, key: bytes, offset: int, *, is_deleted: bool) -> None:
        if is_deleted:
            committed.live.pop(key, None)
        else:
            committed.live[key] = offset

    def _check_reached(self, partition: TopicPartition, leader: Any, high_watermark: int) -> None:
        record = self._ghost.store.partitions[partition]
        for member in leader.in_sync.maximal:
            if record.leader_epoch > leader.leader_epoch and member not in record.isr:
                continue  # it has given its damaged copy up since; the leader counts what it held, and hears of it soon
            if member != leader.me and self._ghost.process_of(member.broker) == member:
                follower = self._ledger.replica(member.broker, partition)
                self._ledger.read_on(member.broker, partition, follower)
                if follower.disk.end_offset < high_watermark:
                    text = f"{partition} is committed to {high_watermark}, but {member} in sync has "
                    self._ghost.report("REP-6", f"{text}{follower.disk.end_offset}")

    def _check_sequence(self, partition: TopicPartition, committed: Committed, header: Any) -> None:
        # Markers, and offsets that a coordinator stores for a producer, have no sequence.
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        producer = header.producer_id, header.producer_epoch
        expected = committed.sequences.get(producer, 0)
        if header.base_sequence != expected:
            text = f"{partition}/{header.base_offset}: producer {producer} is at {header.base_sequence}"
            self._ghost.report("REP-10", f"{text}, {expected} comes next")
        committed.sequences[producer] = (header.last_sequence + 1) % _SEQUENCES

    def _check_holders(self, partition: TopicPartition, batch: Batch, number: int) -> None:
        holders = [broker for broker in self._ghost.hosts if self._ledger.holds(broker, partition, batch, number)]
        # Who held it and has just lost its tail is one of those the promise allows for.
        lossy = [one for one in self._ghost.hosts if one not in holders and self._ghost.is_lossy(one)]
        if len(holders) + len(lossy) < self._ghost.min_in_sync:
            end = batch.next_offset
            self._ghost.report("REP-7", f"{partition} up to {end} is committed, and only {holders} hold it")

    def _check_maximal(self, partition: TopicPartition, leader: Any, record: Any) -> None:
        if len(leader.in_sync.committed) < self._ghost.min_in_sync:
            return
        maximal = {member.broker for member in leader.in_sync.maximal}
        may_lead = [member for member in self._ghost.store.candidates(partition) if member.broker not in maximal]
        if may_lead:
            self._ghost.report(
                "REP-4", f"{may_lead} of {partition} may be elected, but commits wait for {sorted(maximal)} only"
            )

    def _check_frozen(self, partition: TopicPartition, replica: Replica, leader: Any) -> None:
        now = leader.leader_epoch, replica.high_watermark
        is_frozen = len(leader.in_sync.committed) < self._ghost.min_in_sync
        if is_frozen and replica.frozen_at is not None and replica.frozen_at[0] == now[0] and replica.frozen_at != now:
            self._ghost.report("REP-6", f"{partition} went to {now[1]} with too few in sync")
        replica.frozen_at = now if is_frozen else None

    def record_stored(self, partition: TopicPartition) -> None:
        self._check_candidates(partition)
        record = self._ghost.store.partitions[partition]
        if record.leader is None:
            return
        app = self._ghost.app(record.leader)
        held = app.services.partitions.hosted(*partition) if app is not None and app.services is not None else None
        if held is not None and held.leader is not None and held.leader.leader_epoch == record.leader_epoch:
            self._check_maximal(partition, held.leader, record)

    def _check_candidates(self, partition: TopicPartition) -> None:
        committed = self._ledger.of(partition)
        for member in self._ghost.store.candidates(partition):
            if self._ghost.process_of(member.broker) == member:
                self._ledger.read_on(member.broker, partition, self._ledger.replica(member.broker, partition))
                self._ledger.verify(member.broker, partition, up_to=committed.end_offset, name="REP-2")
