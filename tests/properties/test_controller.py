"""The controller's decisions on random clusters: failures, returns, moves, old images, two controllers at once."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from martlet.base.errors import ApiError, InvariantViolation
from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster import controller_decisions, controller_round, partition_plans, reassignment, replica_decisions
from martlet.cluster.controller_decisions import has_leader
from martlet.cluster.controller_round import plan_round
from martlet.cluster.image import MetadataImage
from martlet.cluster.liveness import BrokerStates, FencingGuard, read_states
from martlet.cluster.partition_moves import decide_replication_factor, held_by, plan_drain, plan_removal
from martlet.cluster.partition_plans import Decision, plan_partitions
from martlet.cluster.reassignment import decide_wish, is_moving
from martlet.cluster.records import BrokerRecord
from martlet.cluster.replica_decisions import live_member
from martlet.cluster.store import CommitPlan
from tests.unit.cluster.controlled_cluster import ControlledCluster

_RACKS = ["a", "b", "c"]


class Controllers(RuleBasedStateMachine):
    """Brokers come and go, leaders take followers back, and two controllers act, one of them on an old image."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ControlledCluster({})
        self.old_image = MetadataImage()
        self.guard = FencingGuard(lease_ms=3_000, now_ms=0)
        self.now_ms = 0

    @initialize(
        racks=st.lists(st.sampled_from(_RACKS), min_size=2, max_size=6),
        topics=st.lists(
            st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 2), st.booleans()), min_size=1, max_size=3
        ),
    )
    def make(self, racks: list[str], topics: list[tuple[int, int, int, bool]]) -> None:
        self.cluster = ControlledCluster(dict(enumerate(racks, 1)))
        for number, (partitions, factor, minimum, unclean) in enumerate(topics):
            configs = {"min.insync.replicas": str(minimum), "unclean.leader.election.enable": str(unclean).lower()}
            self.cluster.place_topic(f"t{number}", partitions, min(factor, len(racks)), configs)
        self.old_image = self.cluster.snapshot()

    def _pick(self, number: int) -> int:
        brokers = sorted(self.cluster.racks)
        return brokers[number % len(brokers)]

    @rule(number=st.integers(0, 5))
    def a_broker_dies(self, number: int) -> None:
        self.cluster.stop(self._pick(number))

    @rule(number=st.integers(0, 5), clean=st.booleans(), same_logs=st.booleans())
    def a_broker_starts(self, number: int, clean: bool, same_logs: bool) -> None:
        self.cluster.start(self._pick(number), clean=clean, same_logs=same_logs)

    @rule(number=st.integers(0, 5))
    def a_lease_runs_out(self, number: int) -> None:
        self.cluster.lose_lease(self._pick(number))

    @rule(number=st.integers(0, 5), leaving=st.booleans(), full=st.booleans())
    def a_process_shows_itself(self, number: int, leaving: bool, full: bool) -> None:
        if self._pick(number) in self.cluster.running:
            self.cluster.show(self._pick(number), leaving=leaving, full=full)

    @rule(data=st.data())
    def followers_catch_up(self, data: st.DataObject) -> None:
        everything = [TopicPartition(topic.name, one.partition) for topic, one in self.cluster.partitions()]
        self.cluster.catch_up(data.draw(st.sets(st.sampled_from(everything))))

    @rule(passed_ms=st.integers(0, 4_000))
    def the_controller_acts(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        states = self.cluster.states
        fenced = self.guard.check(states.missing, self.now_ms)
        self._carry_out(self.cluster.image, states.holding_back(fenced))

    @rule()
    def an_old_controller_acts(self) -> None:
        self._carry_out(self.old_image, read_states(self.old_image))

    def _carry_out(self, image: MetadataImage, states: Any) -> None:
        partitions_before = {TopicPartition(topic.name, one.partition): one for topic, one in self.cluster.partitions()}
        for plan in self.cluster.round(image, states):
            for decision in plan.decisions:
                self._check_decision(decision, partitions_before)

    def _check_decision(self, decision: Decision, before: dict[TopicPartition, Any]) -> None:
        assert decision.before == before[decision.partition], "a decision made from an old record went through"
        after = decision.after
        if not decision.is_election or after.leader is None:
            return
        alive = self.cluster.states.alive
        assert after.leader in alive, f"a replica that is not alive was elected: {decision}"
        complete = {live_member(entry, alive) for entry in (*decision.before.isr, *decision.before.elr)}
        leader = next(member for member in after.isr if member.broker == after.leader)
        assert decision.is_unclean or leader in complete, f"an incomplete replica was elected: {decision}"
        topic = self.cluster.image.topic(decision.topic)
        assert topic is not None
        if decision.is_unclean:
            is_allowed = topic.configs["unclean.leader.election.enable"] == "true"
            assert is_allowed or self._is_last_holder(decision), f"the topic does not allow it: {decision}"
            assert complete == {None}, f"a complete replica was passed over: {decision}"

    def _is_last_holder(self, decision: Decision) -> bool:
        before, leader = decision.before, decision.after.leader
        assert leader is not None
        entries = (*before.isr, *before.elr)
        has_logs = all(entry.incarnation in self.cluster.logs_of[leader] for entry in entries)
        return {entry.broker for entry in entries} == {leader} and (has_logs or before.replicas == (leader,))

    @rule()
    def the_old_image_is_renewed(self) -> None:
        self.old_image = self.cluster.snapshot()

    @rule(data=st.data(), use_old=st.booleans())
    def an_operator_wants_a_move(self, data: st.DataObject, use_old: bool) -> None:
        image = self.old_image if use_old else self.cluster.image
        topic = data.draw(st.sampled_from(image.topics()))
        index = data.draw(st.integers(0, topic.partition_count - 1))
        brokers = st.lists(st.sampled_from(sorted(self.cluster.racks)), min_size=1, max_size=3, unique=True)
        replicas = data.draw(st.none() | brokers)
        try:
            decision = decide_wish((TopicPartition(topic.name, index), replicas), image, read_states(image))
        except ApiError:
            return
        self._offer(decision, image)

    def _offer(self, decision: Decision | None, image: MetadataImage) -> None:
        for plan in plan_partitions([decision] if decision is not None else [], image):
            self.cluster.offer(plan.commit)

    @rule(number=st.integers(0, 5))
    def an_operator_wants_a_drain(self, number: int) -> None:
        try:
            plan = plan_drain(BrokerId(self._pick(number)), self.cluster.image, self.cluster.states, now_ms=0)
        except ApiError:
            return
        if plan is not None:
            self.cluster.offer(plan)

    @precondition(lambda self: len(self.cluster.racks) > 2)
    @rule(number=st.integers(0, 5))
    def an_operator_removes_a_broker(self, number: int) -> None:
        broker = BrokerId(self._pick(number))
        try:
            plan = plan_removal(broker, self.cluster.image)
        except ApiError:
            return
        assert not held_by(self.cluster.image, broker)
        assert self.cluster.offer(plan)
        del self.cluster.racks[broker]
        self.cluster.running.discard(broker)

    @invariant()
    def d4_a_round_changes_each_partition_once_at_most(self) -> None:
        image = self.cluster.image
        touched = [key for plan in plan_round(image, read_states(image)) for key in plan.commit.puts]
        assert len(touched) == len(set(touched))

    def teardown(self) -> None:
        """Once everybody is back and behaves, the controller gets everything in order within a few rounds."""
        cluster = self.cluster
        if not cluster.racks:
            return
        for broker in cluster.racks:
            cluster.start(broker, clean=True)
        for _ in range(60):
            worked = len(cluster.round()) + cluster.catch_up()
            if not worked:
                break
        else:
            raise AssertionError("the cluster does not come to rest")
        states = cluster.states
        for topic, partition in cluster.partitions():
            where = f"{topic.name}-{partition.partition}: {partition}"
            could_lead = any(live_member(entry, states.alive) for entry in (*partition.isr, *partition.elr))
            assert has_leader(partition, states) or not could_lead, f"a candidate is alive: {where}"
            if has_leader(partition, states):
                assert not is_moving(partition), f"the move has ended: {where}"
                assert set(partition.isr_ids()) == set(partition.replicas), where
                assert partition.elr == (), where


TestControllers = Controllers.TestCase
TestControllers.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def no_look_at_the_brokers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_plans, "broker_compares", lambda brokers, image: {})


def no_look_at_the_partition(patch: pytest.MonkeyPatch) -> None:
    original = partition_plans._plan

    def plan(decisions: Any, compares: dict[str, int]) -> Any:
        return original(decisions, {key: one for key, one in compares.items() if not key.startswith("partition/")})

    patch.setattr(partition_plans, "_plan", plan)


def electing_a_broker_that_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    staying = BrokerStates.staying.fget  # type: ignore[attr-defined]
    patch.setattr(BrokerStates, "staying", property(lambda self: {**self.waited_for, **staying(self)}))


def unclean_while_a_complete_replica_may_return(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller_decisions, "last_holder", lambda partition, alive: alive.get(partition.replicas[0]))


def the_last_holder_leads_with_an_empty_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerRecord, "has_logs_of", lambda self, incarnation: True)


def entries_without_incarnation(patch: pytest.MonkeyPatch) -> None:
    def live(entry: Any, alive: Any) -> Any:
        record = alive.get(entry.broker)
        return None if record is None else entry._replace(incarnation=record.incarnation)

    patch.setattr(replica_decisions, "live_member", live)


def ending_moves_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reassignment, "_without", lambda partition, dropped, states, rules: partition)


def moves_that_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller_round, "decide_all_progress", lambda image, states, layers: ())


def no_elections(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller_decisions, "has_leader", lambda partition, states: partition.leader is not None)


@pytest.mark.parametrize(
    "remove_guard",
    [
        no_look_at_the_brokers,
        no_look_at_the_partition,
        electing_a_broker_that_is_waited_for,
        unclean_while_a_complete_replica_may_return,
        the_last_holder_leads_with_an_empty_disk,
        entries_without_incarnation,
        ending_moves_early,
        moves_that_never_end,
        no_elections,
    ],
    ids=lambda guard: guard.__name__,
)
def test_a_missing_guard_is_found(
    remove_guard: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same machine without one of the rules must find something wrong, or it would prove nothing."""
    remove_guard(monkeypatch)
    hard = settings(
        max_examples=600,
        stateful_step_count=40,
        deadline=None,
        phases=(Phase.generate,),
        database=None,
        derandomize=True,
        print_blob=False,
    )
    with pytest.raises((AssertionError, InvariantViolation)):
        run_state_machine_as_test(Controllers, settings=hard)


@given(
    racks=st.lists(st.sampled_from(_RACKS), min_size=3, max_size=6),
    partitions=st.integers(1, 12),
    dead=st.sets(st.integers(1, 6), max_size=2),
    split=st.integers(1, 100),
)
@settings(max_examples=60, deadline=None)
def test_of_two_controllers_with_the_same_image_one_at_most_changes_a_partition(
    racks: list[str], partitions: int, dead: set[int], split: int
) -> None:
    cluster = ControlledCluster(dict(enumerate(racks, 1)))
    cluster.place_topic("t", partitions, 3, {"min.insync.replicas": "2"})
    for broker in dead & set(cluster.racks):
        cluster.stop(broker)
    one, other = cluster.snapshot(), cluster.snapshot()
    changed: list[str] = []
    for image, per_commit in ((one, 100), (other, split)):
        for plan in cluster.round(image, partitions_per_commit=per_commit):
            changed.extend(plan.commit.puts)
    assert len(changed) == len(set(changed))
    assert not cluster.round(other), "what the other wanted is done"


@given(
    racks=st.lists(st.sampled_from(_RACKS), min_size=3, max_size=6),
    partitions=st.integers(1, 12),
    factor=st.integers(1, 3),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_a_drained_broker_ends_up_empty_and_can_be_removed(
    racks: list[str], partitions: int, factor: int, data: st.DataObject
) -> None:
    cluster = ControlledCluster(dict(enumerate(racks, 1)))
    cluster.place_topic("t", partitions, min(factor, len(racks) - 1), {"min.insync.replicas": "2"})
    broker = BrokerId(data.draw(st.sampled_from(sorted(cluster.racks))))
    plan = plan_drain(broker, cluster.image, cluster.states, now_ms=1)
    assert plan is not None
    cluster.commit(plan)
    for _ in range(40):
        if not len(cluster.round(moves_max=2)) + cluster.catch_up():
            break
    assert not held_by(cluster.image, broker)
    for _, partition in cluster.partitions():
        assert len(partition.replicas) == min(factor, len(racks) - 1)
        assert partition.leader == partition.replicas[0]
    cluster.stop(broker)
    assert isinstance(plan_removal(broker, cluster.image), CommitPlan)
    cluster.commit(plan_removal(broker, cluster.image))
    assert cluster.image.broker(broker) is None
    assert cluster.settle() == 0


@given(start=st.integers(1, 3), wished=st.integers(1, 4), partitions=st.integers(1, 10))
@settings(max_examples=40, deadline=None)
def test_a_new_replication_factor_is_reached_and_noted(start: int, wished: int, partitions: int) -> None:
    cluster = ControlledCluster({1: "a", 2: "b", 3: "a", 4: "b"})
    cluster.place_topic("t", partitions, start)
    topic = cluster.image.topic("t")
    assert topic is not None
    decisions = decide_replication_factor(topic, wished, cluster.image, cluster.states)
    for plan in plan_partitions(decisions, cluster.image):
        assert cluster.offer(plan.commit)
    for _ in range(20):
        if not len(cluster.round()) + cluster.catch_up():
            break
    assert all(len(partition.replicas) == wished for _, partition in cluster.partitions())
    topic = cluster.image.topic("t")
    assert topic is not None
    assert topic.replication_factor == wished
