"""The replication machines together, with crashes, lost tails, late and lost messages: nothing acknowledged is lost.

Each guard is also taken away in turn: the same runs must then find a violation, or they would prove nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from martlet.base.ids import Member
from martlet.cluster import replica_decisions
from martlet.replication.follower import FollowerReplica, TruncateTo
from martlet.replication.in_sync import Proposed, Settled
from martlet.replication.leader import LeaderReplica
from tests import replicated_log
from tests.replicated_log import ReplicatedPartition, Violation

_SEEDS = 120
_STEPS = 600
_MUTANT_SEEDS_MAX = 600


def run(seed: int) -> ReplicatedPartition:
    partition = ReplicatedPartition(seed)
    try:
        for _ in range(_STEPS):
            partition.step()
        partition.heal()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}\n" + "\n".join(partition.trace[-40:])) from violation
    return partition


@pytest.mark.parametrize("first_seed", range(0, _SEEDS, 30))
def test_nothing_acknowledged_is_lost_or_changed(first_seed: int) -> None:
    runs = [run(seed) for seed in range(first_seed, first_seed + 30)]
    assert sum(len(each.acknowledged) for each in runs) > 200, "an idle partition proves nothing"
    assert sum(len(each.leaders) for each in runs) > 30


def test_after_all_faults_every_copy_is_in_sync_and_the_same() -> None:
    for seed in range(40):
        partition = run(seed)
        leader = partition.partition.leader
        assert leader is not None
        values = [[record.value for record in one.copy.records] for one in partition.brokers.values()]
        assert len(partition.partition.isr) == 3, f"seed {seed}: {partition.partition}"
        assert values[0] == values[1] == values[2], f"seed {seed}"


def high_watermark_by_the_stored_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Proposed, "maximal", property(lambda self: self.members))


def high_watermark_below_the_minimum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderReplica, "has_enough_in_sync", property(lambda self: True))


def joining_without_the_epochs_start(patch: pytest.MonkeyPatch) -> None:
    def may_join(self: LeaderReplica, progress: Any) -> bool:
        return progress.member not in self.in_sync.committed and progress.end_offset >= self._log.high_watermark

    patch.setattr(LeaderReplica, "may_join", may_join)


def fetches_without_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderReplica, "check_fetch", lambda self, member, leader_epoch: None)
    patch.setattr(ReplicatedPartition, "_diverging", staticmethod(lambda copy, position: None))


def cutting_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    class Cutting(FollowerReplica):
        def __init__(self, leader_epoch: int) -> None:
            super().__init__(leader_epoch)
            self.is_new = True

        def next_fetch(self, log: Any) -> Any:
            if self.is_new:
                log.cut(log.high_watermark)
                self.is_new = False
            return super().next_fetch(log)

    patch.setattr(replicated_log, "FollowerReplica", Cutting)


def never_cutting(patch: pytest.MonkeyPatch) -> None:
    def take(self: FollowerReplica, answer: Any, asked: Any, log: Any) -> Any:
        step = original(self, answer, asked, log)
        return TruncateTo(log.end_offset, loses_committed=False) if isinstance(step, TruncateTo) else step

    original = FollowerReplica.step_for
    patch.setattr(FollowerReplica, "step_for", take)
    # A leader that does not compare histories either.
    patch.setattr(ReplicatedPartition, "_diverging", staticmethod(lambda copy, position: None))


def entries_without_incarnation(patch: pytest.MonkeyPatch) -> None:
    def live_member(entry: Member, live: Any) -> Member | None:
        broker = live.get(entry.broker)
        return None if broker is None else Member(broker.id, broker.incarnation)

    patch.setattr(replica_decisions, "live_member", live_member)


def taking_a_lost_answer_for_a_refusal(patch: pytest.MonkeyPatch) -> None:
    def refuse(self: LeaderReplica) -> None:
        self.in_sync = Settled(self.in_sync.committed)
        self.proposal_refused()

    patch.setattr(LeaderReplica, "proposal_unanswered", refuse)


def no_eligible_replicas_but_any(patch: pytest.MonkeyPatch) -> None:
    original = replica_decisions.elect_leader

    def elect(partition: Any, live: Any, min_in_sync: int, **options: Any) -> Any:
        return original(partition, live, min_in_sync, **options, unclean_allowed=True)

    patch.setattr(replicated_log, "elect_leader", elect)


def electing_without_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    original = replica_decisions.elect_leader

    def elect(partition: Any, live: Any, min_in_sync: int, **options: Any) -> Any:
        election = original(partition, live, min_in_sync, **options)
        return replace(election, partition=replace(election.partition, leader_epoch=partition.leader_epoch))

    patch.setattr(replicated_log, "elect_leader", elect)


@pytest.mark.parametrize(
    "remove_guard",
    [
        high_watermark_by_the_stored_set,
        high_watermark_below_the_minimum,
        joining_without_the_epochs_start,
        fetches_without_epochs,
        cutting_to_the_high_watermark,
        never_cutting,
        entries_without_incarnation,
        taking_a_lost_answer_for_a_refusal,
        no_eligible_replicas_but_any,
        electing_without_a_new_epoch,
    ],
    ids=lambda guard: guard.__name__,
)
def test_a_missing_guard_is_found(
    remove_guard: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_guard(monkeypatch)
    for seed in range(_MUTANT_SEEDS_MAX):
        partition = ReplicatedPartition(seed)
        try:
            for _ in range(_STEPS):
                partition.step()
        except (Violation, IndexError):
            return
    pytest.fail(f"{_MUTANT_SEEDS_MAX} seeds did not notice")
