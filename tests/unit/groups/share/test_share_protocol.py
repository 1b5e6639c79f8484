"""Share groups: joining, staying, leaving, and what is refused."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.share.options import ShareOptions, ShareTimes
from martlet.groups.share.records import ShareCurrentAssigned, ShareTargetAssigned
from martlet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.unit.groups.consumer.sim_topics import SimTopics
from tests.unit.groups.share.share_bench import ShareBench, numbers


def refusal(bench: ShareBench, request: ShareGroupHeartbeatRequest) -> ErrorCode:
    log_length = len(bench.context.log)
    with pytest.raises(ApiError) as caught:
        bench.send(request)
    assert len(bench.context.log) == log_length
    return caught.value.code


def test_members_share_partitions_and_learn_of_changes_by_their_heartbeats() -> None:
    bench = ShareBench()
    ann = bench.join("ann")
    assert (ann.member_epoch, ann.heartbeat_interval_ms, numbers(ann)) == (1, 5_000, [0, 1])
    assert numbers(bench.beat("ann", 1)) is None, "nothing is new"
    bob = bench.join("bob")
    assert (bob.member_epoch, len(numbers(bob) or [])) == (2, 1)
    ann = bench.beat("ann", 1)
    assert ann.member_epoch == 2
    assert sorted([*(numbers(ann) or []), *(numbers(bob) or [])]) == [0, 1]
    cid = bench.join("cid")
    assert len(numbers(cid) or []) >= 1, "partitions are shared when members outnumber them"


def test_an_answer_that_was_lost_is_given_again() -> None:
    bench = ShareBench()
    bench.join("ann")
    bench.join("bob")
    first = bench.beat("ann", 1)
    again = bench.beat("ann", 1)
    assert (again.member_epoch, numbers(again)) == (first.member_epoch, numbers(first))
    assert refusal(bench, ShareGroupHeartbeatRequest("g", "bob", 7)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_leaves_makes_place_at_once() -> None:
    bench = ShareBench()
    bench.join("ann")
    bench.join("bob")
    assert len(numbers(bench.beat("ann", 1)) or []) == 1
    assert bench.beat("bob", -1).member_epoch == -1
    assert numbers(bench.beat("ann", 2)) == [0, 1]
    assert list(bench.group.members) == ["ann"]
    assert not bench.machine.may_fetch("g", "bob")
    assert bench.machine.may_fetch("g", "ann")


def test_a_member_that_leaves_may_name_no_topics() -> None:
    """As Java's client does; one that stays has no partitions then."""
    bench = ShareBench()
    bench.join("ann")
    assert numbers(bench.send(ShareGroupHeartbeatRequest("g", "ann", 1, None, []))) == []
    assert bench.send(ShareGroupHeartbeatRequest("g", "ann", -1, None, [])).member_epoch == -1
    assert bench.group.is_empty


def test_a_member_that_is_not_heard_is_removed() -> None:
    bench = ShareBench(options=ShareOptions(times_of=lambda group_id: ShareTimes(10_000, 3_000)))
    assert bench.join("ann").heartbeat_interval_ms == 3_000
    bench.context.advance(9_000)
    bench.join("bob")
    bench.context.advance(5_000)
    assert list(bench.group.members) == ["bob"]
    assert numbers(bench.beat("bob", 2)) == [0, 1]
    bench.context.advance(10_000)
    assert bench.group.is_empty
    assert bench.machine.describe(bench.group).group_state == "Empty"


def test_a_topic_that_grows_or_goes_changes_the_assignment() -> None:
    bench = ShareBench()
    bench.join("ann")
    bench.topics.grow("orders", 4)
    bench.topics_changed("orders", "others")
    ann = bench.beat("ann", 1)
    assert (ann.member_epoch, numbers(ann)) == (2, [0, 1, 2, 3])
    bench.topics_changed("others")
    assert bench.beat("ann", 2).member_epoch == 2
    bench.topics.delete("orders")
    bench.topics_changed("orders")
    assert numbers(bench.beat("ann", 2)) == []


def test_a_topic_that_comes_later_is_consumed_then() -> None:
    bench = ShareBench(SimTopics())
    assert numbers(bench.join("ann")) == []
    bench.topics.create("orders", 1)
    bench.topics_changed("orders")
    assert numbers(bench.beat("ann", 1)) == [0]


def test_a_changed_subscription_is_a_new_epoch_and_a_repeated_one_is_not() -> None:
    bench = ShareBench(SimTopics(orders=1, bills=1))
    bench.join("ann")
    changed = bench.send(ShareGroupHeartbeatRequest("g", "ann", 1, None, ["bills", "orders", "bills"]))
    assert (changed.member_epoch, numbers(changed)) == (2, [0, 0])
    same = bench.send(ShareGroupHeartbeatRequest("g", "ann", 2, None, ["orders", "bills"]))
    assert (same.member_epoch, numbers(same)) == (2, [0, 0]), "who says all is answered in full"


def test_a_usual_heartbeat_writes_nothing() -> None:
    bench = ShareBench()
    bench.join("ann")
    length = len(bench.context.log)
    for _ in range(5):
        bench.beat("ann", 1)
    assert len(bench.context.log) == length


def test_only_those_whose_part_changed_get_a_record() -> None:
    bench = ShareBench(SimTopics(orders=4))
    for member in ("ann", "bob", "cid"):
        bench.join(member)
    bench.context.take_records()
    bench.join("dan")
    changed = [record.member_id for record in bench.context.records if isinstance(record, ShareTargetAssigned)]
    assert len(changed) == 2, "one gives, one gets"
    assert [r.member_id for r in bench.context.records if isinstance(r, ShareCurrentAssigned)] == ["dan"]


def test_a_new_leader_goes_on_where_the_old_one_was() -> None:
    bench = ShareBench()
    bench.join("ann")
    bench.join("bob")
    bench.beat("ann", 1)
    bench.context.compact()
    bench.context.reload()
    assert bench.beat("ann", 2).member_epoch == 2
    bench.topics.grow("orders", 3)
    bench.context.reload()
    assert bench.beat("ann", 2).member_epoch == 3, "what happened meanwhile is made up for"
    bench.context.advance(44_000)
    bench.beat("ann", 3)
    bench.context.advance(2_000)
    assert list(bench.group.members) == ["ann"], "every member has its full time again"


def test_a_group_can_be_removed_and_come_back() -> None:
    bench = ShareBench()
    bench.join("ann")
    bench.beat("ann", -1)
    for record in bench.machine.removal(bench.group):
        bench.machine.replay(record)  # type: ignore[arg-type]  # they are records of share groups
    assert bench.machine.groups == {}
    assert bench.join("ann").member_epoch == 1


def test_a_description_names_members_and_what_they_have() -> None:
    bench = ShareBench()
    bench.join("ann")
    described = bench.machine.describe(bench.group)
    assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 1, "simple")
    (member,) = described.members
    assert (member.member_id, member.client_host, member.subscribed_topic_names) == ("ann", "/127.0.0.1", ["orders"])
    assert [(topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions] == [
        ("orders", [0, 1])
    ]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ShareGroupHeartbeatRequest("", "ann", 0, None, ["t"]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "", 0, None, ["t"]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "m" * 37, 0, None, ["t"]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "new", 0), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "new", 0, None, []), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "new", 0, "", ["t"]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "new", 0, None, ["t"] * 10_001), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "new", 0, None, ["t" * 1_048_577]), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g" * 4_097, "new", 0, None, ["t"]), ErrorCode.INVALID_GROUP_ID),
        (ShareGroupHeartbeatRequest("g", "ann", -2), ErrorCode.INVALID_REQUEST),
        (ShareGroupHeartbeatRequest("g", "new", 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (ShareGroupHeartbeatRequest("g", "new", -1), ErrorCode.UNKNOWN_MEMBER_ID),
        (ShareGroupHeartbeatRequest("other", "ann", 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (ShareGroupHeartbeatRequest("other", "ann", -1), ErrorCode.GROUP_ID_NOT_FOUND),
        (ShareGroupHeartbeatRequest("g", "cid", 0, None, ["t"]), ErrorCode.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_what_no_member_may_send_is_refused(request_: ShareGroupHeartbeatRequest, code: ErrorCode) -> None:
    bench = ShareBench(options=ShareOptions(max_size=2))
    bench.join("ann")
    bench.join("bob")
    assert refusal(bench, request_) is code
