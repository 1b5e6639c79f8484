"""From decisions about single partitions to commits: what each relies on is compared, and batches fit a commit.

Rules: pure. Who decides what is in `controller_decisions.py` and `reassignment.py`; here is only how a decision
becomes safe against everything that has happened since the image it was made from.

How it works: a decision is a partition's record before and after. Its commit compares the record's revision, and for
each broker on which the decision turned (elected, taken into the in-sync set, left out of it, given a replica) both its
registration and its leased key, as they were seen, absence included; and for one that is given a replica also its
drain mark, because only that keeps it from being removed meanwhile. Two controllers with old images therefore never
both change a partition, and no leader is deposed that has come back meanwhile.

Invariants:
CLS-23 no decision lowers a leader epoch, and a new leader always has a new epoch;
CLS-24 in every record written the leader is in the in-sync set, which is within the replicas;
CLS-25 a plan holds at most `PARTITIONS_PER_COMMIT` partitions and fits the store's limit of operations.

Proved by: tests/unit/cluster/test_controller_decisions.py, tests/properties/test_controller.py
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from martlet.base.ids import BrokerId, TopicPartition
from martlet.base.invariant import invariant
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import broker_key, drain_key, live_key, partition_key, topic_key
from martlet.cluster.records import PartitionRecord, encode_record
from martlet.cluster.store import COMMIT_OPERATIONS_MAX, CommitPlan

PARTITIONS_PER_COMMIT: Final = 100
"""Partitions changed by one commit."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to become of one partition."""

    topic: str
    before: PartitionRecord
    after: PartitionRecord
    is_unclean: bool = False
    """Whether acknowledged messages may be lost by it; the log then says so loudly."""

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.before.partition)

    @property
    def is_election(self) -> bool:
        return self.before.leader_epoch != self.after.leader_epoch

    def brokers(self) -> set[BrokerId]:
        """On whose being as they were seen the decision rests."""
        before, after = self.before, self.after
        changed = {member.broker for member in set(before.isr) ^ set(after.isr)}
        changed.update(set(after.replicas) - set(before.replicas))
        if self.is_election:
            changed.update(leader for leader in (before.leader, after.leader) if leader is not None)
        if self.is_unclean:
            # No complete replica was alive; that must still be so.
            changed.update(member.broker for member in (*before.isr, *before.elr))
        return changed


@dataclass(frozen=True, slots=True)
class PartitionsPlan:
    """One commit and the decisions that it carries out."""

    commit: CommitPlan
    decisions: tuple[Decision, ...]

    @property
    def unclean(self) -> list[Decision]:
        """Those that may lose acknowledged messages."""
        return [decision for decision in self.decisions if decision.is_unclean]


def plan_partitions(
    decisions: Iterable[Decision], image: MetadataImage, partitions_per_commit: int = PARTITIONS_PER_COMMIT
) -> Iterator[PartitionsPlan]:
    """The commits for these decisions, all made from this image; fewer per commit lose less to a lost comparison."""
    compares: dict[str, int] = {}
    chosen: list[Decision] = []
    for decision in decisions:
        needed = _compares(decision, image)
        grown = compares | needed
        if chosen and (len(chosen) >= partitions_per_commit or len(grown) > COMMIT_OPERATIONS_MAX):
            yield _plan(chosen, compares)
            grown, chosen = needed, []
        compares = grown
        chosen.append(decision)
    if chosen:
        yield _plan(chosen, compares)


def check_change(before: PartitionRecord, after: PartitionRecord) -> None:
    """What every change of a partition keeps (CLS-23, CLS-24)."""
    invariant(after.leader_epoch >= before.leader_epoch, "CLS-23: no leader epoch goes back")
    is_same_leader = (before.leader, before.leader_incarnation) == (after.leader, after.leader_incarnation)
    invariant(is_same_leader or after.leader_epoch > before.leader_epoch, "CLS-23: a new leader has a new epoch")
    members = {member.broker for member in after.isr}
    invariant(after.leader is None or after.leader in members, "CLS-24: the leader is in sync")
    invariant(members <= set(after.replicas), "CLS-24: who is in sync is a replica")
    invariant({member.broker for member in after.elr} <= set(after.replicas), "CLS-24: who is eligible is a replica")


def broker_compares(brokers: Iterable[BrokerId], image: MetadataImage) -> dict[str, int]:
    """That these brokers are still registered and alive, or not, exactly as in the image."""
    compares: dict[str, int] = {}
    for broker in sorted(brokers):
        record = image.broker(broker)
        compares[broker_key(broker)] = record.mod_revision if record is not None else 0
        compares[live_key(broker)] = image.live_revision(broker)
    return compares


def drain_compares(brokers: Iterable[BrokerId], image: MetadataImage) -> dict[str, int]:
    """That these brokers are marked for draining, or not, exactly as in the image."""
    marks = {broker: image.drain(broker) for broker in sorted(brokers)}
    return {drain_key(broker): mark.mod_revision if mark is not None else 0 for broker, mark in marks.items()}


def _compares(decision: Decision, image: MetadataImage) -> dict[str, int]:
    check_change(decision.before, decision.after)
    compares = {partition_key(decision.before.topic_id, decision.before.partition): decision.before.mod_revision}
    compares.update(broker_compares(decision.brokers(), image))
    compares.update(drain_compares(set(decision.after.replicas) - set(decision.before.replicas), image))
    if decision.is_unclean:
        topic = image.topic(decision.topic)
        # The topic must still allow it.
        compares[topic_key(decision.topic)] = topic.mod_revision if topic is not None else 0
    return compares


def _plan(decisions: list[Decision], compares: dict[str, int]) -> PartitionsPlan:
    puts = {
        partition_key(decision.after.topic_id, decision.after.partition): encode_record(decision.after)
        for decision in decisions
    }
    return PartitionsPlan(CommitPlan(compares, puts), tuple(decisions))
