"""How a process takes its damaged copy of a partition out of all that counts on it, and goes on.

Rules: pure. A replica is given up only by this commit: before it the replica counts as ever, after it for nothing. The
broker may delete its files once it sees the new leader epoch, and copies again from the leader.

How it works: every entry of the broker leaves the partition's sets, those of earlier processes too, so that no restart
can vouch for what is thrown away. An election among the others goes with it, even where the leader stays. The leader
counts what a follower has fetched in this leader epoch; in a new one it begins at nothing and refuses the fetches of
the one before. So it cannot take the follower back on the strength of the copy that is gone.

Invariants:
CLS-41 afterwards the broker is in no set, and another complete, living replica leads, in a new leader epoch;
CLS-42 without another complete, living replica there is no plan: this one is the best there is; nor on a full disk,
   because no other could be made in its place.

Proved by: tests/unit/cluster/test_resignation.py, tests/properties/test_resignation.py
"""

from collections.abc import Iterable
from dataclasses import replace

from martlet.base.ids import BrokerId, Member
from martlet.cluster.controller_decisions import TopicRules, with_space
from martlet.cluster.image import MetadataImage
from martlet.cluster.liveness import BrokerStates
from martlet.cluster.partition_plans import Decision, broker_compares, plan_partitions
from martlet.cluster.records import PartitionRecord
from martlet.cluster.replica_decisions import elect_leader
from martlet.cluster.store import CommitPlan


def resign(
    partition: PartitionRecord, broker: BrokerId, states: BrokerStates, rules: TopicRules
) -> PartitionRecord | None:
    """The partition without this broker's entries, under a leader that stays or is elected; None while none may."""
    others = replace(
        partition,
        isr=_without(partition.isr, broker),
        elr=_without(partition.elr, broker),
        last_in_sync=_without(partition.last_in_sync, broker),
    )
    preferred = partition.leader if partition.leader != broker else with_space(others, states)
    for live in (states.staying, states.alive):
        after = elect_leader(others, live, rules.min_in_sync, preferred=preferred).partition
        if after.leader is not None:
            return after
    return None


def plan_resignation(
    topic: str, partition: PartitionRecord, me: Member, image: MetadataImage, states: BrokerStates, rules: TopicRules
) -> CommitPlan | None:
    """Take this process's replica out of the partition's sets; None while that is not safe (CLS-42), or it has none."""
    registered = image.broker(me.broker)
    if registered is None or registered.incarnation != me.incarnation or me.broker not in partition.replicas:
        return None
    after = resign(partition, me.broker, states, rules) if me.broker not in states.full else None
    if after is None:
        return None
    [plan] = plan_partitions([Decision(topic, partition, after)], image)
    return replace(plan.commit, compares={**plan.commit.compares, **broker_compares({me.broker}, image)})


def has_resigned(partition: PartitionRecord, broker: BrokerId) -> bool:
    """Whether nothing counts on this broker's replica, and another leads."""
    entries = (*partition.isr, *partition.elr, *partition.last_in_sync)
    return partition.leader not in (None, broker) and all(entry.broker != broker for entry in entries)


def _without(entries: Iterable[Member], broker: BrokerId) -> tuple[Member, ...]:
    return tuple(entry for entry in entries if entry.broker != broker)
