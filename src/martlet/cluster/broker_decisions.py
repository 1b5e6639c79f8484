"""The decisions about brokers: registration, elections at a broker's start, settings, and the counters.

Rules: pure functions from what the store holds to a `CommitPlan`, as in `topic_decisions.py`.

How it works: every start of a broker process takes a new incarnation from a counter of the cluster, in the same
commit that registers it. Whatever an earlier incarnation led is void from then on (CLS-5) until an
election names the new one. At its own start a broker elects itself where no other could hold the data; a
partition with other replicas in sync is left to the controller.

Invariants:
CLS-8 an incarnation, and any number given away by a counter, is never given twice;
CLS-9 an election raises the leader epoch by one and names the incarnation elected; nothing ever lowers an epoch;
CLS-10 an election compares the broker's registration, so a process that has been replaced elects none.

Proved by: tests/unit/cluster/test_broker_decisions.py, tests/unit/broker/administration/test_topic_admin.py
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member
from martlet.base.invariant import invariant
from martlet.cluster.keys import (
    CLUSTER_KEY,
    INCARNATION_COUNTER_KEY,
    PRODUCER_ID_COUNTER_KEY,
    broker_config_key,
    broker_key,
    group_config_key,
    partition_key,
)
from martlet.cluster.records import (
    BrokerRecord,
    ClusterRecord,
    ConfigRecord,
    Endpoint,
    GroupConfigRecord,
    PartitionRecord,
    decode_counter,
    decode_record,
    encode_counter,
    encode_record,
)
from martlet.cluster.store import CommitPlan, Entry

ELECTIONS_PER_COMMIT: Final = 100
"""Partitions elected by one commit; the broker's own record is compared as well."""

FIRST_INCARNATION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a starting broker says about itself."""

    id: BrokerId
    endpoints: Sequence[Endpoint] = ()
    broker_listener: str = ""
    """The listener that other brokers connect to; empty means the first."""
    rack: str | None = None
    boot_id: str = ""
    clean: bool = False
    """Whether it is proven that the log of the process before lost nothing."""
    same_logs: bool = False
    """Whether it has the log directory of the process before, which lost at most what was not flushed."""
    new_disk: bool = False
    """Whether its log directory is empty, and not because it is the first of its broker."""
    unread: bool = False
    """Whether some logs could not be opened; what is said of the logs then holds for the others."""
    gave_up: bool = False
    """Whether the process before put aside a log it could not open: nothing older is proven by it."""
    predecessor: Incarnation | None = None
    """Of which process that is proven, if it is known; when another one has come between, nothing is proven."""
    attempt: str = ""
    """A name that no other start has; empty: this start cannot tell its own registration from another's."""


class RegistrationPlan(NamedTuple):
    """The commit that registers a broker, and what will hold once it has succeeded."""

    commit: CommitPlan
    cluster: ClusterRecord
    broker: BrokerRecord


def plan_registration(
    registration: Registration,
    *,
    cluster: Entry | None,
    broker: Entry | None,
    counter: Entry | None,
    new_cluster_id: str,
    new_replica_secret: str = "",
    now_ms: int,
) -> RegistrationPlan:
    """Register the broker under a new incarnation; the first broker of all also makes the cluster.

    A cluster without a replica secret, from before there was one, gets the new one.
    """
    stored = decode_record(ClusterRecord, cluster) if cluster is not None else None
    identity = stored or ClusterRecord(new_cluster_id, now_ms)
    if not identity.replica_secret:
        identity = replace(identity, replica_secret=new_replica_secret)
    incarnation = max(decode_counter(counter), FIRST_INCARNATION)
    before = decode_record(BrokerRecord, broker) if broker is not None else None
    record = BrokerRecord(
        id=registration.id,
        incarnation=Incarnation(incarnation),
        endpoints=tuple(registration.endpoints),
        broker_listener=registration.broker_listener,
        rack=registration.rack,
        clean_since=_clean_since(before, registration),
        same_logs_since=_same_logs_since(before, registration),
        new_disk_since=_new_disk_since(before, registration, Incarnation(incarnation)),
        unread=registration.unread,
        boot_id=registration.boot_id,
        started_at_ms=now_ms,
        attempt=registration.attempt,
    )
    invariant(before is None or before.incarnation < incarnation, "CLS-8: a new incarnation is larger than all before")
    key = broker_key(registration.id)
    puts = {key: encode_record(record), INCARNATION_COUNTER_KEY: encode_counter(incarnation + 1)}
    if identity != stored:
        puts[CLUSTER_KEY] = encode_record(identity)
    compares = {
        CLUSTER_KEY: _revision(cluster),
        key: _revision(broker),
        INCARNATION_COUNTER_KEY: _revision(counter),
    }
    return RegistrationPlan(CommitPlan(compares, puts), identity, record)


def is_registered_as(registration: Registration, broker: Entry | None) -> bool:
    """Whether this very registration has happened, be it that its answer was lost."""
    return (
        broker is not None
        and bool(registration.attempt)
        and decode_record(BrokerRecord, broker).attempt == registration.attempt
    )


def _clean_since(before: BrokerRecord | None, registration: Registration) -> Incarnation | None:
    """A chain of clean restarts is as good as one, so that two quick ones do not cost a replica its place."""
    if before is None or not registration.clean or not _follows(before, registration):
        return None
    is_first = before.clean_since is None or registration.gave_up
    return before.incarnation if is_first else before.clean_since


def _same_logs_since(before: BrokerRecord | None, registration: Registration) -> Incarnation | None:
    """A chain like the one of clean restarts: one start with an empty disk in between ends it."""
    has_logs = registration.same_logs or registration.clean
    if before is None or not has_logs or not _follows(before, registration):
        return None
    is_first = before.same_logs_since is None or registration.gave_up
    return before.incarnation if is_first else before.same_logs_since


def _new_disk_since(
    before: BrokerRecord | None, registration: Registration, incarnation: Incarnation
) -> Incarnation | None:
    if before is None:
        return None
    return incarnation if registration.new_disk else before.new_disk_since


def _follows(before: BrokerRecord, registration: Registration) -> bool:
    return registration.predecessor in (None, before.incarnation)


def needs_own_election(partition: PartitionRecord, broker: BrokerRecord) -> bool:
    """Whether the starting broker is the one to lead: it led before, or none does, and no other may hold more.

    Eligible replicas may: they hold everything that was acknowledged, which a process that restarted without
    proof may not. Where there are other replicas, the election of such a process is the controller's, which marks it. A
    sole replica on a new disk waits for an operator's word: it would hand out offsets again.
    """
    if broker.id not in partition.replicas or partition.leader not in (None, broker.id):
        return False
    if partition.is_led_by(broker.id, broker.incarnation):
        return False
    holders = (*partition.isr, *partition.elr)
    if len(partition.replicas) > 1 and not all(broker.vouches_for(member.incarnation) for member in holders):
        return False
    return all(member.broker == broker.id and not broker.has_lost_disk_of(member.incarnation) for member in holders)


def plan_own_elections(partitions: Iterable[PartitionRecord], broker: BrokerRecord) -> Iterator[CommitPlan]:
    """Elect the broker's new incarnation in every partition that needs it, a batch per commit."""
    waiting = (partition for partition in partitions if needs_own_election(partition, broker))
    while batch := tuple(islice(waiting, ELECTIONS_PER_COMMIT)):
        compares = {broker_key(broker.id): broker.mod_revision}
        puts: dict[str, bytes] = {}
        for partition in batch:
            key = partition_key(partition.topic_id, partition.partition)
            compares[key] = partition.mod_revision
            puts[key] = encode_record(elect(partition, broker))
        yield CommitPlan(compares, puts)


def elect(partition: PartitionRecord, broker: BrokerRecord) -> PartitionRecord:
    """The partition led by this broker process, alone in sync, one epoch on (CLS-9)."""
    return replace(
        partition,
        leader=broker.id,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        isr=(Member(broker.id, broker.incarnation),),
        elr=(),
        log_ends=(),
    )


def plan_broker_configs(stored: ConfigRecord, configs: Mapping[str, str]) -> CommitPlan:
    """Give a broker, or the cluster's defaults, these run-time settings, already checked."""
    key = broker_config_key(stored.broker)
    return CommitPlan({key: stored.mod_revision}, {key: encode_record(replace(stored, configs=configs))})


def plan_group_configs(stored: GroupConfigRecord, configs: Mapping[str, str]) -> CommitPlan:
    """Give a group these settings, already checked; one that sets nothing leaves nothing behind."""
    key = group_config_key(stored.group)
    compares = {key: stored.mod_revision}
    if not configs:
        return CommitPlan(compares, deletes=(key,))
    return CommitPlan(compares, {key: encode_record(replace(stored, configs=configs))})


def plan_producer_ids(counter: Entry | None, count: int) -> tuple[CommitPlan, range]:
    """Take the next `count` producer ids."""
    invariant(count > 0, "a block of ids is not empty")
    first = decode_counter(counter)
    compares = {PRODUCER_ID_COUNTER_KEY: _revision(counter)}
    puts = {PRODUCER_ID_COUNTER_KEY: encode_counter(first + count)}
    return CommitPlan(compares, puts), range(first, first + count)


def _revision(entry: Entry | None) -> int:
    return entry.mod_revision if entry is not None else 0
