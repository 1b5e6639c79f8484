"""The decisions about a replicated partition: who is in sync, who may lead, who leads next.

Rules: pure functions from records to records; the caller commits the result by compare-and-swap on the
partition's record and on the records of the brokers it relies on.

How it works: a membership entry names a process (CLS-5). It counts while that very process is registered,
or all its successors have proven that the log lost nothing. When fewer replicas than the minimum are in sync, the high
watermark stands still, so a replica that leaves the in-sync set then still holds all that was ever acknowledged: it is
*eligible* (the ELR of KIP-966) and may lead when none in sync is left. Where a replica is to lead that may lack
something, those with the logs of the last complete ones come first, then those that were complete before, the last one
to leave ahead, then those that never were; empty and damaged disks come last. Where all of them have reported how far
their logs go (`log_ends.py`), that decides instead, the latest epoch first.

Invariants:
CLS-37 a leader is chosen from the in-sync set, else from the eligible ones; from others only where the topic allows it;
CLS-38 an election raises the leader epoch by one; a change of the in-sync set keeps it;
CLS-39 the leader is in the in-sync set, under its present incarnation;
CLS-40 a replica that leaves the set while fewer than the minimum are in sync is eligible; with enough in sync none is.

Proved by: tests/unit/cluster/test_replica_decisions.py, tests/properties/test_replication.py
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from martlet.base.ids import BrokerId, LeaderEpoch, Member
from martlet.base.invariant import invariant
from martlet.cluster.records import BrokerRecord, PartitionRecord


@dataclass(frozen=True, slots=True)
class Election:
    """The partition after an election, and whether it may have lost what was acknowledged."""

    partition: PartitionRecord
    is_unclean: bool = False


def live_member(entry: Member, live: Mapping[BrokerId, BrokerRecord]) -> Member | None:
    """The process for which this entry counts now: itself, a successor that lost nothing, or None."""
    broker = live.get(entry.broker)
    if broker is None or not broker.vouches_for(entry.incarnation):
        return None
    return Member(broker.id, broker.incarnation)


def store_in_sync(partition: PartitionRecord, members: Collection[Member], min_in_sync: int) -> PartitionRecord:
    """The partition with the in-sync set that its leader proposes."""
    invariant(any(member.broker == partition.leader for member in members), "CLS-39: the leader is in sync")
    ordered = _in_replica_order(partition, members)
    eligible = _eligible(partition, ordered, min_in_sync)
    return replace(partition, isr=ordered, elr=eligible, last_in_sync=_last_in_sync(partition, (*ordered, *eligible)))


def elect_leader(
    partition: PartitionRecord,
    live: Mapping[BrokerId, BrokerRecord],
    min_in_sync: int,
    *,
    unclean_allowed: bool = False,
    preferred: BrokerId | None = None,
) -> Election:
    """The partition under a new leader, or under none when none may lead.

    `preferred` is chosen if it may lead; else the first replica in the partition's own order. Where no complete one is
    alive, and only if `unclean_allowed` says so, the one is chosen that probably lacks least.
    """
    in_sync = [member for entry in partition.isr if (member := live_member(entry, live)) is not None]
    eligible = [member for entry in partition.elr if (member := live_member(entry, live)) is not None]
    for candidates in (in_sync, eligible):
        leader = _first_choice(partition, candidates, preferred)
        if leader is not None:
            members = in_sync if leader in in_sync else [*in_sync, leader]
            return Election(_led_by(partition, leader, members, min_in_sync))
    if unclean_allowed:
        leader = _least_lacking(partition, live)
        if leader is not None:
            forgotten = replace(partition, isr=(), elr=(), last_in_sync=())
            return Election(_led_by(forgotten, leader, [leader], min_in_sync), is_unclean=True)
    return Election(_without_leader(partition))


def _led_by(
    partition: PartitionRecord, leader: Member, members: Collection[Member], min_in_sync: int
) -> PartitionRecord:
    ordered = _in_replica_order(partition, members)
    eligible = _eligible(partition, ordered, min_in_sync)
    return replace(
        partition,
        leader=leader.broker,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        isr=ordered,
        elr=eligible,
        last_in_sync=_last_in_sync(partition, (*ordered, *eligible)),
        log_ends=(),
    )


def _without_leader(partition: PartitionRecord) -> PartitionRecord:
    """Without a leader nothing is appended or acknowledged, so who was complete stays complete: the sets are kept."""
    if partition.leader is None:
        return partition
    return replace(partition, leader=None, leader_epoch=LeaderEpoch(partition.leader_epoch + 1))


def _eligible(partition: PartitionRecord, in_sync: Collection[Member], min_in_sync: int) -> tuple[Member, ...]:
    """Who, besides those in sync, holds everything acknowledged (CLS-40)."""
    if len(in_sync) >= min(min_in_sync, len(partition.replicas)):
        return ()
    brokers = {member.broker for member in in_sync}
    complete = {entry.broker: entry for entry in (*partition.elr, *partition.isr) if entry.broker not in brokers}
    return _in_replica_order(partition, complete.values())


def _last_in_sync(partition: PartitionRecord, complete: Collection[Member]) -> tuple[Member, ...]:
    """Who was complete once and is not among these; those that leave now were complete longest."""
    seen = {member.broker for member in complete}
    left: list[Member] = []
    for entry in (*partition.isr, *partition.elr, *partition.last_in_sync):
        if entry.broker not in seen and entry.broker in partition.replicas:
            seen.add(entry.broker)
            left.append(entry)
    return tuple(left)


def _least_lacking(partition: PartitionRecord, live: Mapping[BrokerId, BrokerRecord]) -> Member | None:
    """The living replica that probably lacks least; None when none is alive."""
    known: dict[BrokerId, tuple[int, Member]] = {}
    for place, entry in enumerate((*partition.isr, *partition.elr, *partition.last_in_sync)):
        known.setdefault(entry.broker, (place, entry))

    def rank(broker: BrokerId) -> tuple[int, int]:
        if broker not in known:
            return 1, 0
        place, entry = known[broker]
        return (0 if live[broker].has_logs_of(entry.incarnation) else 2), place

    candidates = [Member(broker, live[broker].incarnation) for broker in partition.replicas if broker in live]
    ends = {Member(end.broker, end.incarnation): (-end.epoch, -end.offset) for end in partition.log_ends}
    if all(member in ends for member in candidates):
        return min(candidates, key=lambda member: (ends[member], rank(member.broker)), default=None)
    return min(candidates, key=lambda member: rank(member.broker), default=None)


def _first_choice(
    partition: PartitionRecord, candidates: Collection[Member], preferred: BrokerId | None
) -> Member | None:
    by_broker = {member.broker: member for member in candidates}
    if preferred in by_broker:
        return by_broker[preferred]
    return next((by_broker[broker] for broker in partition.replicas if broker in by_broker), None)


def _in_replica_order(partition: PartitionRecord, members: Collection[Member]) -> tuple[Member, ...]:
    order = {broker: place for place, broker in enumerate(partition.replicas)}
    return tuple(sorted(members, key=lambda member: order.get(member.broker, len(order))))
