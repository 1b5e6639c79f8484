"""The replication machines under the controller's own decisions, moves included: nothing acknowledged is lost.

The same world of late and lost messages, crashes and lost tails as in `test_replication.py`; but here elections,
in-sync sets without the dead, moves to other brokers and their cancellation are what the controller decides.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from martlet.base.errors import ApiError
from martlet.base.ids import BrokerId, LeaderEpoch, Member
from martlet.cluster import reassignment
from martlet.cluster.controller_decisions import TopicRules, decide_partition
from martlet.cluster.liveness import BrokerStates
from martlet.cluster.partition_plans import Decision, check_change
from martlet.cluster.reassignment import decide_cancel, decide_progress, decide_start, is_moving
from martlet.cluster.records import BrokerRecord
from tests.replicated_log import Broker, ReplicatedPartition, Violation

_RULES = TopicRules(min_in_sync=2)
_BROKERS = 5
_STEPS = 600


class ControlledPartition(ReplicatedPartition):
    """Five brokers, three of them with a replica at first."""

    def __init__(self, seed: int) -> None:
        self.records: dict[BrokerId, BrokerRecord] = {}
        self.moves_ended = 0
        super().__init__(seed, _BROKERS)
        first = self.partition.replicas[:3]
        members = tuple(member for member in self.partition.isr if member.broker in first)
        self._store(replace(self.partition, replicas=first, isr=members))

    def start(self, broker: Broker, *, clean: bool) -> None:
        super().start(broker, clean=clean)
        self.records[broker.id] = self.live[broker.id]

    @property
    def states(self) -> BrokerStates:
        missing = {broker: record for broker, record in self.records.items() if broker not in self.live}
        fenced = [broker for broker in missing if self.random.below(2)]
        leaving = frozenset(broker for broker in self.live if not self.random.below(8))
        return BrokerStates(dict(self.live), missing, leaving=leaving, full=self.full).holding_back(fenced)

    @property
    def full(self) -> frozenset[BrokerId]:
        return frozenset(broker for broker in self.live if not self.random.below(8))

    def step(self) -> None:
        super().step()
        if not self.random.below(8):
            self.elect()
            self.check()

    def elect(self) -> None:
        """A round of the controller, or a wish of an operator."""
        try:
            decision = self._decide_something()
        except ApiError:
            return
        if decision is not None:
            self._carry_out(decision)

    def _decide_something(self) -> Decision | None:
        draw = self.random.below(10)
        if draw == 0 and is_moving(self.partition):
            return decide_cancel("t", self.partition, self.states, _RULES)
        if draw <= 2:
            count = 2 + self.random.below(3)
            brokers = sorted(self.brokers, key=lambda _: self.random.below(1_000))
            return decide_start("t", self.partition, tuple(brokers[:count]), self.states, _RULES)
        if draw <= 5:
            return decide_progress("t", self.partition, self.states, _RULES)
        return decide_partition("t", self.partition, self.states, _RULES)

    def _carry_out(self, decision: Decision) -> None:
        check_change(decision.before, decision.after)
        if decision.is_unclean:
            raise Violation(f"an unclean election that was not allowed: {decision}")
        self.moves_ended += is_moving(decision.before) and not is_moving(decision.after)
        self._note(f"controller: {decision.after}")
        self._store(decision.after)

    def _others_are_whole(self, broker: Broker) -> bool:
        return not any(
            one.is_lossy and (not one.running or one.me not in self.partition.isr)
            for one in self.brokers.values()
            if one is not broker and one.id in self.partition.replicas
        )

    def heal(self) -> None:
        """No more faults: everybody starts, and the controller and the leader do what they do, until all is well."""
        for broker in self.brokers.values():
            if not broker.running:
                self.start(broker, clean=not broker.lost_tail)
        for _ in range(3_000):
            for broker in self.brokers.values():
                self._apply(broker)
            states = BrokerStates(dict(self.live))
            for decide in (decide_partition, decide_progress):
                decision = decide("t", self.partition, states, _RULES)
                if decision is not None:
                    self._carry_out(decision)
            self.fetch()
            self.propose()
            self.deliver()
            if not self.random.below(50):
                self.give_up_waiting()
            self.now_ms += 1
            self.check()


def run(seed: int) -> ControlledPartition:
    partition = ControlledPartition(seed)
    try:
        for _ in range(_STEPS):
            partition.step()
        partition.heal()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation}\n" + "\n".join(partition.trace[-40:])) from violation
    return partition


@pytest.mark.parametrize("first_seed", range(0, 60, 20))
def test_nothing_acknowledged_is_lost_while_partitions_move(first_seed: int) -> None:
    runs = [run(seed) for seed in range(first_seed, first_seed + 20)]
    assert sum(len(each.acknowledged) for each in runs) > 100, "an idle partition proves nothing"
    assert sum(each.moves_ended for each in runs) > 20


def test_after_all_faults_the_move_has_ended_and_all_replicas_are_the_same() -> None:
    for seed in range(100, 125):
        world = run(seed)
        partition = world.partition
        assert partition.leader is not None, f"seed {seed}: {partition}"
        assert not is_moving(partition), f"seed {seed}: {partition}"
        assert set(partition.isr_ids()) == set(partition.replicas), f"seed {seed}: {partition}"
        values = [[record.value for record in world.brokers[one].copy.records] for one in partition.replicas]
        assert all(each == values[0] for each in values), f"seed {seed}"


def dropping_before_the_added_are_in_sync(patch: pytest.MonkeyPatch) -> None:
    def progress(topic: str, partition: Any, states: Any, rules: Any) -> Decision | None:
        if not is_moving(partition):
            return None
        done = replace(partition, replicas=reassignment.wished_replicas(partition), adding=(), removing=())
        members = tuple(
            Member(broker, states.alive[broker].incarnation) for broker in done.replicas if broker in states.alive
        )
        if not members:
            return None
        epoch = LeaderEpoch(partition.leader_epoch + 1)
        return Decision(
            "t", partition, replace(done, isr=members, elr=(), leader=members[0].broker, leader_epoch=epoch)
        )

    patch.setattr(f"{__name__}.decide_progress", progress)


def dropping_complete_copies_that_are_needed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reassignment, "_complete_count", lambda partition, states: 0)


@pytest.mark.parametrize(
    "remove_guard",
    [dropping_before_the_added_are_in_sync, dropping_complete_copies_that_are_needed],
    ids=lambda guard: guard.__name__,
)
def test_a_missing_guard_is_found(
    remove_guard: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_guard(monkeypatch)
    for seed in range(600):
        world = ControlledPartition(seed)
        try:
            for _ in range(_STEPS):
                world.step()
        except (Violation, IndexError):
            return
    pytest.fail("600 seeds did not notice")
