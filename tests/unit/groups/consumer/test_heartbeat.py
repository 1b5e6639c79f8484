"""Heartbeats: what is refused, what is written, and what a big group does later."""

from dataclasses import replace

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.consumer.consumer_group import AssignmentDue
from martlet.groups.consumer.subscriptions import EXPRESSIONS_MAX, NEXT_TURN_MS
from martlet.groups.consumer.target import ASSIGN_DELAY_MS, AT_ONCE_MEMBERS_MAX
from martlet.groups.ports import ConsumerTimes, GroupsOptions
from martlet.groups.records import (
    ConsumerGroupStored,
    ConsumerMemberStored,
    CurrentAssigned,
    RegexResolved,
    TargetAssigned,
    TargetEpochStored,
)
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from tests.unit.groups.consumer.bench import ConsumerBench, join_request
from tests.unit.groups.consumer.sim_topics import SimTopics


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        # Each fault comes with those that are looked at after it.
        ({"member_id": "", "group_id": "", "instance_id": ""}, "MemberId can't be empty."),
        ({"group_id": "", "instance_id": "", "rack_id": ""}, "GroupId can't be empty."),
        ({"instance_id": "", "rack_id": "", "rebalance_timeout_ms": -1}, "InstanceId can't be empty."),
        ({"rack_id": "", "rebalance_timeout_ms": -1}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1, "topic_partitions": None}, "RebalanceTimeoutMs must be provided"),
        ({"topic_partitions": None, "subscribed_topic_names": None}, "TopicPartitions must be empty"),
        ({"topic_partitions": [TopicPartitions()]}, "TopicPartitions must be empty"),
        ({"subscribed_topic_names": None, "server_assignor": "?"}, "Either SubscribedTopicNames or"),
        ({"member_epoch": -2}, "InstanceId can't be null"),
        ({"member_epoch": -3}, "MemberEpoch -3 is invalid."),
        ({"member_id": "m" * 513}, "MemberId has 513 characters; at most 512 are allowed."),
    ],
)
def test_a_request_no_member_may_send_is_refused(changes: dict[str, object], detail: str) -> None:
    request = join_request("a")
    for name, value in changes.items():
        setattr(request, name, value)
    with pytest.raises(ApiError) as refusal:
        ConsumerBench().send(request)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert refusal.value.detail.startswith(detail)


def test_what_is_too_large_is_refused() -> None:
    bench = ConsumerBench(options=GroupsOptions(topics_per_member_max=3, member_metadata_bytes_max=50))
    cases = [
        (replace(join_request("a"), group_id="g" * 5_000), ErrorCode.INVALID_GROUP_ID),
        (join_request("a", ["w", "x", "y", "z"]), ErrorCode.INVALID_REQUEST),
        (join_request("a", ["t" * 50]), ErrorCode.INVALID_REQUEST),
        (join_request("a" * 50), ErrorCode.INVALID_REQUEST),
    ]
    for request, code in cases:
        with pytest.raises(ApiError) as refusal:
            bench.send(request)
        assert refusal.value.code is code
    assert bench.context.machine.groups == {}


def test_an_unknown_assignor_is_refused_by_name() -> None:
    request = join_request("a")
    request.server_assignor = "cleverest"
    with pytest.raises(ApiError, match="'cleverest' is not supported") as refusal:
        ConsumerBench().send(request)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_version_zero_gets_an_id_from_the_broker_and_version_one_brings_its_own() -> None:
    bench = ConsumerBench()
    response = bench.send(join_request(""), version=0)
    assert response.member_id in bench.group.members
    with pytest.raises(ApiError):
        bench.send(join_request(""), version=1)


def test_a_member_without_topics_is_a_member_all_the_same() -> None:
    bench = ConsumerBench()
    response = bench.join("a", [])
    assert (response.member_epoch, response.assignment and response.assignment.topic_partitions) == (1, [])


def test_a_steady_heartbeat_writes_nothing() -> None:
    bench = ConsumerBench()
    bench.join("a")
    bench.context.take_records()
    bench.beat("a", 1)
    bench.beat("a", 1, {"orders": [0, 1, 2, 3]})
    full = join_request("a")
    full.member_epoch = 1
    full.topic_partitions = [TopicPartitions(bench.topics.id_of("orders"), [0, 1, 2, 3])]
    assert bench.send(full).assignment is not None
    assert bench.context.take_records() == []


def test_the_order_of_topics_in_a_request_does_not_matter() -> None:
    bench = ConsumerBench(SimTopics(one=1, two=1))
    bench.join("a", ["one", "two"])
    bench.context.take_records()
    again = ConsumerGroupHeartbeatRequest("g", "a", 1, subscribed_topic_names=["two", "one", "two"])
    bench.send(again)
    assert bench.context.take_records() == []


def test_only_members_whose_target_changed_get_records() -> None:
    bench = ConsumerBench(SimTopics(orders=3))
    for name in "abc":
        bench.join(name)
    bench.context.take_records()
    bench.join("d")
    kinds = [type(record) for record in bench.context.take_records()]
    assert kinds == [ConsumerMemberStored, ConsumerGroupStored, TargetEpochStored, CurrentAssigned]


def test_in_a_big_group_one_timer_makes_the_target_for_a_burst_of_joins() -> None:
    count = AT_ONCE_MEMBERS_MAX + 20
    bench = ConsumerBench(SimTopics(orders=count))
    for number in range(count):
        bench.join(f"m{number}")
    records = bench.context.take_records()
    assert sum(isinstance(record, TargetEpochStored) for record in records) == AT_ONCE_MEMBERS_MAX
    assert sum(isinstance(record, AssignmentDue) for record in records) == 1
    assert (bench.group.epoch, bench.group.target_epoch) == (count, AT_ONCE_MEMBERS_MAX)
    newest = bench.group.members[f"m{count - 1}"].current
    assert (newest.epoch, newest.assigned) == (AT_ONCE_MEMBERS_MAX, frozenset())
    bench.context.advance(ASSIGN_DELAY_MS)
    records = bench.context.take_records()
    assert isinstance(records[-1], TargetEpochStored)
    assert bench.group.target_epoch == count
    assert all(len(partitions) == 1 for partitions in bench.group.targets.values())
    assert len(records) <= count + 1
    # Later changes set the timer again.
    bench.topics.grow("orders", count + 1)
    bench.topics_changed("orders")
    bench.beat("m0", bench.group.members["m0"].current.epoch)
    bench.context.advance(ASSIGN_DELAY_MS)
    assert bench.group.target_epoch == bench.group.epoch == count + 1


def test_a_groups_own_times_are_those_it_lives_by() -> None:
    own: dict[str, ConsumerTimes] = {}
    bench = ConsumerBench(options=GroupsOptions(consumer_times_of=own.get))
    assert bench.join("a").heartbeat_interval_ms == 5_000
    own["other"] = ConsumerTimes(1, 1, 1)
    assert bench.beat("a", 1).heartbeat_interval_ms == 5_000
    own["g"] = ConsumerTimes(9_000, 3_000, 0)
    assert bench.beat("a", 1).heartbeat_interval_ms == 3_000
    bench.context.advance(8_999)
    assert not bench.group.is_empty
    bench.beat("a", 1)
    bench.context.reload()
    bench.context.advance(8_999)
    assert not bench.group.is_empty
    bench.context.advance(1)
    assert bench.group.is_empty


def test_a_group_is_assigned_no_more_often_than_it_asks_for() -> None:
    options = GroupsOptions(consumer_times_of=lambda group: ConsumerTimes(45_000, 5_000, 2_000))
    bench = ConsumerBench(options=options)
    assert bench.join("a").assignment is not None
    assert len(bench.group.targets["a"]) == 4, "the first assignment is made at once"
    bench.join("b")
    bench.join("c")
    assert (bench.group.epoch, bench.group.target_epoch) == (3, 1)
    bench.context.advance(1_999)
    assert bench.group.target_epoch == 1
    bench.context.advance(1)
    assert bench.group.target_epoch == 3
    assert sorted(len(partitions) for partitions in bench.group.targets.values()) == [1, 1, 2]
    # What waited when the coordinator was replaced is made up for with the next heartbeat.
    bench.join("d")
    bench.context.reload()
    bench.beat("b", bench.group.members["b"].current.epoch)
    bench.context.advance(2_000)
    assert bench.group.target_epoch == bench.group.epoch == 4


def test_a_big_group_is_assigned_after_a_restart() -> None:
    count = AT_ONCE_MEMBERS_MAX + 2
    bench = ConsumerBench(SimTopics(orders=count))
    for number in range(count):
        bench.join(f"m{number}")
    bench.context.reload()
    bench.context.advance(ASSIGN_DELAY_MS)
    assert bench.group.target_epoch == bench.group.epoch


def test_a_thousand_members_share_a_thousand_partitions() -> None:
    bench = ConsumerBench(SimTopics(orders=1_000))
    for number in range(1_000):
        bench.join(f"m{number}")
    bench.context.advance(ASSIGN_DELAY_MS)
    bench.context.take_records()
    assert {len(partitions) for partitions in bench.group.targets.values()} == {1}
    bench.send(ConsumerGroupHeartbeatRequest("g", "m500", -1))
    bench.beat("m0", bench.group.members["m0"].current.epoch)
    bench.context.take_records()
    bench.context.advance(ASSIGN_DELAY_MS)
    changed = [record for record in bench.context.take_records() if isinstance(record, TargetAssigned)]
    assert len(changed) == 1


def test_only_groups_that_a_topic_concerns_are_touched() -> None:
    bench = ConsumerBench(SimTopics(one=1, two=1))
    bench.join("a", ["one"])
    other = join_request("b", ["two"])
    other.group_id = "h"
    bench.send(other)
    bench.context.take_records()
    bench.topics.grow("two", 3)
    bench.topics_changed("two")
    records = bench.context.take_records()
    assert [type(record) for record in records] == [ConsumerGroupStored]
    assert records[0].group_id == "h"
    bench.topics_changed("two")
    assert bench.context.take_records() == [], "nothing has changed since"


def test_a_change_of_topics_missed_while_loading_is_made_up_for() -> None:
    bench = ConsumerBench()
    bench.join("a")
    bench.topics.grow("orders", 6)
    bench.context.reload()
    assert bench.group.epoch == 2
    response = bench.beat("a", 1)
    assert response.assignment is not None
    assert response.assignment.topic_partitions[0].partitions == [0, 1, 2, 3, 4, 5]


def test_late_timers_of_members_long_gone_do_nothing() -> None:
    bench = ConsumerBench()
    bench.join("a")
    for key in (("session", "g", "z"), ("revoke", "g", "a"), ("assign", "g"), ("regex", "g"), ("session", "x", "y")):
        bench.context.take_records()
        bench.context.call(lambda machine, now_ms, key=key: machine.on_timer(key, now_ms))  # type: ignore[misc]
        assert bench.context.take_records() == []


def test_topics_that_came_unnoticed_are_found_by_expressions_soon_after_loading() -> None:
    bench = ConsumerBench(SimTopics(orders=1))
    request = join_request("a", [])
    request.subscribed_topic_regex = "o.*"
    bench.send(request)
    bench.topics.create("offers", 2)
    bench.context.reload()
    bench.context.advance(1_000)
    assert bench.group.regexes["o.*"].topics == ("offers", "orders")
    assert bench.group.epoch == 2


def many_expressions(count: int, topic_count: int) -> ConsumerBench:
    """A group in which everybody has an expression of its own, each of which matches every topic."""
    topics = SimTopics(**{f"t{number}-{'x' * 200}": 1 for number in range(topic_count)})
    bench = ConsumerBench(topics, GroupsOptions(consumer_regex_refresh_ms=20_000))
    for number in range(count):
        request = join_request(f"m{number}", [])
        request.subscribed_topic_regex = f".*|{number}"
        bench.send(request)
    bench.context.take_records()
    return bench


def test_a_group_with_very_many_expressions_has_them_looked_at_in_turns() -> None:
    bench = many_expressions(EXPRESSIONS_MAX * 3 + 5, 5)
    bench.topics.create("new", 1)
    bench.context.advance(bench.options.consumer_regex_refresh_ms)
    for _ in range(4):
        records = [record for record in bench.context.take_records() if isinstance(record, RegexResolved)]
        assert 0 < len(records) <= EXPRESSIONS_MAX
        bench.context.advance(NEXT_TURN_MS)
    assert all("new" in resolved.topics for resolved in bench.group.regexes.values())
    bench.context.advance(bench.options.consumer_regex_refresh_ms - 1_000)
    assert bench.context.take_records() == []


def test_news_of_a_topic_reaches_every_expression_however_much_it_makes_to_store() -> None:
    bench = many_expressions(EXPRESSIONS_MAX * 2, 1_500)
    log_length = len(bench.context.log)
    bench.topics.create("new", 1)
    bench.topics_changed("new")
    for _ in range(EXPRESSIONS_MAX):
        stored = bench.context.log[log_length:]
        assert sum(len(key) + len(value or b"") for key, value in stored) < 8 << 20
        log_length = len(bench.context.log)
        bench.context.advance(NEXT_TURN_MS)
    assert all("new" in resolved.topics for resolved in bench.group.regexes.values())


def test_news_of_a_topic_reaches_every_group_that_reads_it_however_many_there_are() -> None:
    bench = ConsumerBench(SimTopics(orders=1))
    for number in range(400):
        request = join_request("a", ["orders"])
        request.group_id = f"{number:04d}".ljust(4_000, "x")
        bench.send(request)
    log_length = len(bench.context.log)
    bench.topics.grow("orders", 2)
    bench.topics_changed("orders")
    assert len(bench.context.log) < log_length + 400
    bench.context.advance(NEXT_TURN_MS)
    assert {group.epoch for group in bench.context.machine.groups.values()} == {2}
