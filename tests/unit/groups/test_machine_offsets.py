"""Offsets as the groups machine keeps them: who may commit, fetch and delete."""

from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.ports import GroupsOptions
from martlet.wire.messages.offset_fetch import OffsetFetchRequestGroup

from .group_bench import SESSION_MS, GroupBench


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


def test_a_simple_consumer_commits_without_being_a_member(bench: GroupBench) -> None:
    assert bench.commit(offset=7) == 0
    assert bench.fetch() == 7
    bench.context.reload()
    assert bench.fetch() == 7


def test_the_empty_group_name_may_commit_and_fetch(bench: GroupBench) -> None:
    assert bench.commit("", offset=7) == 0
    assert bench.fetch("") == 7


def test_a_group_name_that_is_too_long_is_refused(bench: GroupBench) -> None:
    for operation in (bench.commit, bench.fetch, bench.join, bench.consumer_heartbeat):
        with pytest.raises(ApiError) as refusal:
            operation("é" * 2_049)
        assert refusal.value.code is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_does_not_exist_may_not_commit(
    bench: GroupBench, version: int, code: ErrorCode
) -> None:
    assert bench.refusal_of_commit(generation=0, member_id="m", version=version) == code


def test_a_member_of_a_simple_group_is_unknown(bench: GroupBench) -> None:
    bench.commit()
    assert bench.refusal_of_commit(generation=0, member_id="m") == ErrorCode.UNKNOWN_MEMBER_ID


def test_when_no_topic_is_known_the_group_is_not_asked(bench: GroupBench) -> None:
    assert bench.commit(topic="nothing", generation=4, member_id="m") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_classic_member_commits_with_its_generation(bench: GroupBench) -> None:
    joined = bench.stable()
    who: dict[str, Any] = {"member_id": joined.member_id, "generation": joined.generation_id}
    assert bench.commit(offset=9, **who) == 0
    assert bench.fetch() == 9
    assert bench.refusal_of_commit(**(who | {"generation": 99})) == ErrorCode.ILLEGAL_GENERATION
    assert bench.refusal_of_commit(**(who | {"member_id": "other"})) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.refusal_of_commit() == ErrorCode.UNKNOWN_MEMBER_ID


def test_no_member_commits_between_join_and_sync(bench: GroupBench) -> None:
    joined = bench.join()
    who: dict[str, Any] = {"member_id": joined.member_id, "generation": joined.generation_id}
    assert bench.refusal_of_commit(**who) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_a_classic_member_alive(bench: GroupBench) -> None:
    joined = bench.stable()
    for _ in range(3):
        bench.context.advance(SESSION_MS - 1)
        bench.commit(member_id=joined.member_id, generation=joined.generation_id)
    assert bench.heartbeat(joined) == 0
    bench.context.advance(SESSION_MS)
    with pytest.raises(ApiError):
        bench.heartbeat(joined)


def test_a_refused_commit_keeps_no_member_alive(bench: GroupBench) -> None:
    joined = bench.stable()
    bench.context.advance(SESSION_MS - 1)
    assert bench.refusal_of_commit(member_id=joined.member_id, generation=99) != 0
    bench.context.advance(1)
    with pytest.raises(ApiError):
        bench.heartbeat(joined)


def test_a_consumer_member_commits_with_its_epoch(bench: GroupBench) -> None:
    epoch = bench.consumer_heartbeat().member_epoch
    assert bench.commit(offset=3, member_id="m", generation=epoch, version=9) == 0
    assert bench.fetch() == 3
    stale = bench.refusal_of_commit(member_id="m", generation=epoch - 1, version=9)
    assert stale == ErrorCode.STALE_MEMBER_EPOCH
    assert bench.refusal_of_commit(member_id="other", generation=epoch, version=9) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.refusal_of_commit(version=9) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fetch_may_name_the_member_and_its_epoch(bench: GroupBench) -> None:
    epoch = bench.consumer_heartbeat().member_epoch
    assert bench.fetch_group(OffsetFetchRequestGroup("g", "m", epoch, None)).error_code == 0
    for member, member_epoch, code in (("m", epoch + 1, 113), ("other", epoch, 25)):
        with pytest.raises(ApiError) as refusal:
            bench.fetch_group(OffsetFetchRequestGroup("g", member, member_epoch, None))
        assert refusal.value.code == code


def test_a_classic_group_does_not_look_at_who_fetches(bench: GroupBench) -> None:
    bench.stable()
    assert bench.fetch_group(OffsetFetchRequestGroup("g", "any-member", 7, None)).topics == []


def test_offsets_stay_when_the_members_leave(bench: GroupBench) -> None:
    joined = bench.stable()
    bench.commit(offset=9, member_id=joined.member_id, generation=joined.generation_id)
    bench.leave(joined)
    assert bench.fetch() == 9
    assert bench.commit(offset=4) == 0, "an empty group may be reset from outside"
    assert bench.fetch() == 4


# OffsetDelete


def test_offsets_of_a_group_that_does_not_exist_cannot_be_deleted(bench: GroupBench) -> None:
    with pytest.raises(ApiError) as refusal:
        bench.delete_offset()
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(ApiError) as refusal:
        bench.delete_offset("")
    assert refusal.value.code is ErrorCode.INVALID_GROUP_ID


def test_offsets_of_topics_that_are_read_cannot_be_deleted(bench: GroupBench) -> None:
    joined = bench.stable("g", "orders")
    who: dict[str, Any] = {"member_id": joined.member_id, "generation": joined.generation_id}
    bench.commit(**who)
    bench.commit(topic="clicks", **who)
    assert bench.delete_offset(topic="orders") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert bench.delete_offset(topic="clicks") == 0
    assert (bench.fetch(), bench.fetch(topic="clicks")) == (5, -1)


def test_until_a_group_has_chosen_a_protocol_all_topics_count_as_read() -> None:
    bench = GroupBench(GroupsOptions(initial_rebalance_delay_ms=3_000))
    bench.commit(topic="clicks")
    bench.begin_join("g", "orders")
    assert bench.delete_offset(topic="clicks") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    bench.context.advance(3_000)
    assert bench.delete_offset(topic="clicks") == 0
    assert bench.delete_offset(topic="orders") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_a_consumer_group_follow_its_subscription(bench: GroupBench) -> None:
    bench.commit()
    bench.commit(topic="clicks")
    bench.consumer_heartbeat("g", "m", 0, "orders")
    assert bench.delete_offset(topic="orders") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert bench.delete_offset(topic="clicks") == 0


def test_a_live_group_of_another_type_keeps_all_its_offsets(bench: GroupBench) -> None:
    bench.commit()
    joined = bench.stable("g", protocol_type="connect")
    with pytest.raises(ApiError) as refusal:
        bench.delete_offset()
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP
    bench.leave(joined)
    assert bench.delete_offset() == 0


# Deleted topics


def test_offsets_of_a_deleted_topic_are_gone_in_every_group(bench: GroupBench) -> None:
    for group in ("a", "b"):
        bench.commit(group)
        bench.commit(group, topic="clicks")
    bench.topics_deleted("orders")
    assert [bench.fetch(group) for group in ("a", "b")] == [-1, -1]
    assert [bench.fetch(group, "clicks") for group in ("a", "b")] == [5, 5]
    bench.context.reload()
    assert bench.fetch("a") == -1


def test_offsets_of_a_deleted_topic_are_gone_also_when_the_clock_was_set_back_meanwhile(bench: GroupBench) -> None:
    bench.commit()
    bench.context.now_ms -= 3_600_000
    bench.topics_deleted("orders")
    assert bench.fetch() == -1


def test_very_many_offsets_of_a_deleted_topic_go_one_after_another() -> None:
    bench = GroupBench(GroupsOptions(group_id_bytes_max=4_096))
    names = [f"{number}-".ljust(4_000, "x") for number in range(500)]
    for name in names:
        bench.commit(name)
    bench.topics_deleted("orders")
    left = bench.machine.offsets.count
    assert 0 < left < 500
    bench.topics.counts["orders"] = 4
    bench.context.now_ms += 1
    bench.commit(names[-1], offset=77)  # for the new topic of this name
    bench.context.advance(60_000)
    assert bench.machine.offsets.count == 1
    assert bench.fetch(names[-1]) == 77
    assert bench.machine.offsets.forgotten_topics == {}
