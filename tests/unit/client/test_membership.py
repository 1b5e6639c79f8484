"""One member of a consumer group, heartbeat by heartbeat: what it says, what it does next, what ends it."""

from typing import Any

import pytest
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.backoff import Backoff
from martlet.client.consumer.membership import (
    CommitRefusal,
    MemberOptions,
    Membership,
    MemberState,
    OwnedPartition,
    StepKind,
    Subscription,
)
from martlet.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

ID = b"t" * 16
INTERVAL_MS = 1_000
MAX_POLL_MS = 10_000


def owned(*numbers: int) -> frozenset[OwnedPartition]:
    return frozenset(OwnedPartition(ID, number) for number in numbers)


class Bench:
    """A member of group g and the broker's side of the conversation, in short words."""

    def __init__(self, **options: Any) -> None:
        values = {"group_id": "g", "max_poll_interval_ms": MAX_POLL_MS, **options}
        self.membership = Membership(MemberOptions(**values), "m", Backoff(100, 800, SimRandomness(1)))
        self.now_ms = 0.0

    def sends(self) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat that is due now at the latest."""
        due_ms = self.membership.due_at_ms()
        assert due_ms is not None
        self.now_ms = max(self.now_ms, due_ms)
        request = self.membership.heartbeat(self.now_ms)
        assert request is not None
        return request

    def answer(self, epoch: int, *assigned: int) -> None:
        """Answer with an assignment of these partitions."""
        entries = [TopicPartitions(ID, list(assigned))] if assigned else []
        response = ConsumerGroupHeartbeatResponse(
            member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS, assignment=Assignment(entries)
        )
        self.membership.answered(response, self.now_ms)
        self.membership.learn_names({ID: "t"})

    def answer_nothing_new(self, epoch: int) -> None:
        response = ConsumerGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=INTERVAL_MS)
        self.membership.answered(response, self.now_ms)

    def refuse(self, code: ErrorCode) -> None:
        self.membership.answered(ConsumerGroupHeartbeatResponse(error_code=code), self.now_ms)

    def does(self, kind: StepKind, *numbers: int) -> None:
        """The next step is this one; it is completed."""
        step = self.membership.next_step()
        assert step is not None
        assert (step.kind, step.partitions) == (kind, tuple(TopicPartition("t", number) for number in numbers))
        self.membership.completed(step, self.now_ms)

    def joined(self, *numbers: int) -> "Bench":
        """A member in epoch 1 that owns these partitions, as the broker knows."""
        self.membership.subscribe(Subscription(("t",)), self.now_ms)
        self.sends()
        self.answer(1, *numbers)
        self.does(StepKind.ASSIGN, *numbers)
        assert self.sends().topic_partitions == [TopicPartitions(ID, list(numbers))]
        self.answer_nothing_new(1)
        return self


def test_a_member_joins_by_saying_everything() -> None:
    bench = Bench(rack="r", assignor="range")
    bench.membership.subscribe(Subscription(("t",)), 0)
    assert bench.sends() == ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rack_id="r",
        rebalance_timeout_ms=MAX_POLL_MS,
        subscribed_topic_names=["t"],
        server_assignor="range",
        topic_partitions=[],
    )


def test_a_member_without_a_subscription_says_nothing() -> None:
    assert Bench().membership.due_at_ms() is None


def test_an_assignment_is_reported_as_owned_only_after_reading_has_started() -> None:
    bench = Bench()
    bench.membership.subscribe(Subscription(("t",)), 0)
    bench.sends()
    bench.answer(1, 0, 1)
    assert bench.sends().topic_partitions is None
    bench.answer_nothing_new(1)
    bench.does(StepKind.ASSIGN, 0, 1)
    at_once = bench.membership.due_at_ms()
    assert at_once == bench.now_ms
    assert bench.sends().topic_partitions == [TopicPartitions(ID, [0, 1])]


def test_a_steady_member_says_no_more_than_that_it_is_there() -> None:
    bench = Bench().joined(0)
    assert bench.sends() == ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    bench.answer_nothing_new(1)
    assert bench.membership.due_at_ms() == bench.now_ms + INTERVAL_MS


def test_a_partition_is_given_back_before_its_return_is_reported() -> None:
    bench = Bench().joined(0, 1)
    bench.sends()
    bench.answer(1, 0)
    assert bench.sends().topic_partitions is None
    bench.answer_nothing_new(1)
    bench.does(StepKind.REVOKE, 1)
    assert bench.sends().topic_partitions == [TopicPartitions(ID, [0])]
    bench.answer(2, 0)
    assert bench.membership.next_step() is None
    assert bench.membership.epoch == 2


def test_an_assignment_that_changes_during_a_step_is_followed_by_another_step() -> None:
    bench = Bench()
    bench.membership.subscribe(Subscription(("t",)), 0)
    bench.sends()
    bench.answer(1, 0, 1)
    step = bench.membership.next_step()
    assert step is not None
    bench.sends()
    bench.answer(2, 0, 2)
    bench.membership.completed(step, bench.now_ms)
    bench.does(StepKind.REVOKE, 1)
    bench.does(StepKind.ASSIGN, 2)
    assert bench.membership.owned == owned(0, 2)


def test_partitions_of_a_topic_without_a_name_wait_for_it() -> None:
    bench = Bench().joined(0)
    new = b"n" * 16
    bench.sends()
    assignment = Assignment([TopicPartitions(ID, [0]), TopicPartitions(new, [5])])
    response = ConsumerGroupHeartbeatResponse(member_epoch=2, heartbeat_interval_ms=INTERVAL_MS, assignment=assignment)
    bench.membership.answered(response, bench.now_ms)
    assert bench.membership.next_step() is None
    assert bench.membership.unnamed_topics == {new}
    bench.membership.learn_names({new: "n", b"x" * 16: "of no interest"})
    step = bench.membership.next_step()
    assert step is not None
    assert step.partitions == (TopicPartition("n", 5),)


@pytest.mark.parametrize("failure", ["lost answer", "coordinator loads"])
def test_after_a_failure_a_member_says_everything_again(failure: str) -> None:
    bench = Bench().joined(0)
    bench.sends()
    if failure == "lost answer":
        bench.membership.unanswered(bench.now_ms)
    else:
        bench.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert bench.membership.coordinator_lost == (failure == "lost answer")
    failed_at = bench.now_ms
    request = bench.sends()
    assert 50 <= bench.now_ms - failed_at <= 100
    assert (request.member_epoch, request.rebalance_timeout_ms) == (1, MAX_POLL_MS)
    assert (request.subscribed_topic_names, request.topic_partitions) == (["t"], [TopicPartitions(ID, [0])])


def test_pauses_after_failures_grow_until_an_answer_comes() -> None:
    bench = Bench().joined(0)
    pauses = []
    for _ in range(6):
        bench.sends()
        failed_at = bench.now_ms
        bench.refuse(ErrorCode.NOT_COORDINATOR)
        assert bench.membership.coordinator_lost
        due_ms = bench.membership.due_at_ms()
        assert due_ms is not None
        pauses.append(due_ms - failed_at)
    assert 400 <= pauses[-1] <= 800
    bench.sends()
    bench.answer_nothing_new(1)
    bench.sends()
    bench.refuse(ErrorCode.NOT_COORDINATOR)
    due_ms = bench.membership.due_at_ms()
    assert due_ms is not None
    assert due_ms - bench.now_ms <= 100


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_a_fenced_member_joins_again_once_it_has_dropped_everything(code: ErrorCode) -> None:
    bench = Bench().joined(0, 1)
    bench.sends()
    bench.refuse(code)
    assert bench.membership.due_at_ms() is None
    assert bench.membership.identity is None
    bench.does(StepKind.LOST, 0, 1)
    request = bench.sends()
    assert (request.member_epoch, request.topic_partitions, request.member_id) == (0, [], "m")


def test_a_member_that_is_fenced_whenever_it_joins_waits_longer_each_time() -> None:
    bench = Bench()
    bench.membership.subscribe(Subscription(("t",)), 0)
    for _ in range(5):
        assert bench.sends().member_epoch == 0
        bench.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    assert bench.now_ms > 500


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_ASSIGNOR, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED]
)
def test_a_final_refusal_ends_the_membership(code: ErrorCode) -> None:
    bench = Bench().joined(0)
    bench.sends()
    bench.refuse(code)
    assert bench.membership.state is MemberState.FAILED
    assert bench.membership.failure is not None
    assert bench.membership.failure.code == code
    bench.does(StepKind.LOST, 0)
    assert bench.membership.due_at_ms() is None


def test_a_changed_subscription_is_reported_at_once_and_alone() -> None:
    bench = Bench().joined(0)
    bench.membership.subscribe(Subscription(("t", "u")), bench.now_ms)
    request = bench.sends()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t", "u"], None)
    assert (request.rebalance_timeout_ms, request.topic_partitions) == (-1, None)


def test_a_pattern_takes_the_place_of_names_and_is_taken_back_by_the_empty_pattern() -> None:
    bench = Bench().joined(0)
    bench.membership.subscribe(Subscription(pattern="t.*"), bench.now_ms)
    request = bench.sends()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "t.*")
    bench.answer_nothing_new(1)
    bench.membership.subscribe(Subscription(("t",)), bench.now_ms)
    request = bench.sends()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")


def test_a_subscription_that_changes_while_a_heartbeat_is_under_way_is_sent_right_after_it() -> None:
    bench = Bench().joined(0)
    bench.sends()
    bench.membership.subscribe(Subscription(("u",)), bench.now_ms)
    assert bench.membership.due_at_ms() is None
    bench.answer_nothing_new(1)
    assert bench.membership.due_at_ms() == bench.now_ms
    assert bench.sends().subscribed_topic_names == ["u"]


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("first", -2)])
def test_a_member_leaves_after_it_has_given_everything_back(instance_id: str | None, epoch: int) -> None:
    bench = Bench(instance_id=instance_id).joined(0)
    bench.membership.leave(bench.now_ms)
    assert bench.membership.identity is not None, "offsets can still be committed"
    bench.does(StepKind.REVOKE, 0)
    assert bench.sends() == ConsumerGroupHeartbeatRequest("g", "m", epoch, instance_id)
    bench.answer_nothing_new(epoch)
    assert bench.membership.state is MemberState.LEFT
    assert bench.membership.due_at_ms() is None


def test_a_member_that_leaves_before_it_joined_says_nothing() -> None:
    bench = Bench()
    bench.membership.subscribe(Subscription(("t",)), 0)
    bench.membership.leave(0)
    assert bench.membership.state is MemberState.LEFT


def test_a_member_that_leaves_while_it_joins_leaves_when_the_answer_is_there() -> None:
    bench = Bench()
    bench.membership.subscribe(Subscription(("t",)), 0)
    bench.sends()
    bench.membership.leave(0)
    bench.answer(1, 0)
    assert bench.membership.next_step() is None
    assert bench.sends().member_epoch == -1


def test_a_reader_that_does_not_poll_leaves_and_joins_again_at_its_next_poll() -> None:
    bench = Bench().joined(0)
    bench.membership.poll_started(bench.now_ms)
    bench.membership.poll_ended(bench.now_ms)
    bench.now_ms += MAX_POLL_MS
    assert bench.sends().member_epoch == -1
    bench.answer_nothing_new(-1)
    assert bench.membership.state is MemberState.AWAY
    assert bench.membership.due_at_ms() is None
    bench.membership.poll_started(bench.now_ms)
    bench.does(StepKind.LOST, 0)
    assert bench.sends().member_epoch == 0


def test_a_reader_that_waits_in_a_poll_is_not_taken_for_one_that_does_not_poll() -> None:
    bench = Bench().joined(0)
    bench.membership.poll_started(bench.now_ms)
    bench.now_ms += MAX_POLL_MS * 2
    assert bench.sends().member_epoch == 1


def test_a_broker_that_assigns_later_is_asked_by_joining_once_more() -> None:
    bench = Bench()
    bench.membership.subscribe(Subscription(("t",)), 0)
    bench.sends()
    bench.answer_nothing_new(0)
    assert bench.membership.due_at_ms() == INTERVAL_MS
    request = bench.sends()
    assert (request.member_epoch, request.subscribed_topic_names, request.topic_partitions) == (0, ["t"], [])


class TestCommits:
    """As whom offsets are committed, and what follows from a refusal."""

    STALE = ApiError(ErrorCode.STALE_MEMBER_EPOCH, "stale")

    def test_a_stale_epoch_waits_for_the_next_heartbeat_which_is_sent_at_once(self) -> None:
        bench = Bench().joined(0)
        identity = bench.membership.identity
        assert identity is not None
        refusal = bench.membership.refused_as(identity, self.STALE, bench.now_ms)
        assert refusal is CommitRefusal.AFTER_HEARTBEAT
        assert bench.membership.due_at_ms() == bench.now_ms

    def test_an_epoch_that_was_outdated_by_the_answer_is_replaced(self) -> None:
        bench = Bench().joined(0)
        identity = bench.membership.identity
        assert identity is not None
        bench.sends()
        bench.answer(2, 0)
        assert bench.membership.refused_as(identity, self.STALE, bench.now_ms) is CommitRefusal.AGAIN

    def test_a_member_that_was_fenced_meanwhile_has_lost_what_it_commits(self) -> None:
        bench = Bench().joined(0)
        identity = bench.membership.identity
        assert identity is not None
        bench.sends()
        bench.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
        assert bench.membership.refused_as(identity, self.STALE, bench.now_ms) is CommitRefusal.LOST
        assert bench.membership.not_owned([TopicPartition("t", 0)]) == {TopicPartition("t", 0)}

    def test_other_refusals_are_final(self) -> None:
        bench = Bench().joined(0)
        identity = bench.membership.identity
        assert identity is not None
        error = ApiError(ErrorCode.OFFSET_METADATA_TOO_LARGE, "too large")
        assert bench.membership.refused_as(identity, error, bench.now_ms) is CommitRefusal.FINAL
