"""Share groups beside the other kinds: what is listed, what is refused, and what of them lasts."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.share.records import TopicPartitions

from .group_bench import RETENTION_MS, GroupBench
from .offsets.offset_cases import topic_id


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


def code_of(ask: object, *words: object) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        ask(*words)  # type: ignore[operator]
    return refused.value.code


def test_share_groups_are_listed_counted_and_described_as_such(bench: GroupBench) -> None:
    bench.share_heartbeat("crew", "ann")
    bench.consumer_heartbeat("new")
    assert bench.listed(types=("Share",)) == [("crew", "share", "Stable", "share")]
    assert [group[0] for group in bench.listed()] == ["crew", "new"]
    assert bench.machine.statistics() == {("consumer", "Stable"): 1, ("share", "Stable"): 1}
    assert dict(bench.machine.member_counts()) == {"new": 1, "crew": 1}
    described = bench.described_share_group("crew")
    assert (described.group_state, [member.member_id for member in described.members]) == ("Stable", ["ann"])
    assert (bench.described("crew").group_state, bench.described("crew").error_code) == ("Dead", 69)
    assert code_of(bench.described_consumer_group, "crew") is ErrorCode.GROUP_ID_NOT_FOUND
    assert code_of(bench.described_share_group, "new") is ErrorCode.GROUP_ID_NOT_FOUND


def test_other_protocols_find_no_group_of_theirs_in_a_share_group(bench: GroupBench) -> None:
    bench.share_heartbeat()
    bench.share_heartbeat("g", "m", -1)
    assert code_of(bench.begin_join) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code_of(bench.consumer_heartbeat) is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.refusal_of_commit() == ErrorCode.GROUP_ID_NOT_FOUND
    assert code_of(bench.delete_offset) is ErrorCode.GROUP_ID_NOT_FOUND
    assert [group[3] for group in bench.listed()] == ["share"]


@pytest.mark.parametrize("kind", ["classic", "consumer", "simple"])
def test_a_share_group_does_not_take_the_name_of_another_kind(bench: GroupBench, kind: str) -> None:
    if kind == "classic":
        bench.leave(bench.stable())
    elif kind == "consumer":
        bench.consumer_heartbeat()
    else:
        bench.commit()
    assert code_of(bench.share_heartbeat) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_share_group_stays_until_it_is_deleted(bench: GroupBench) -> None:
    bench.share_heartbeat()
    assert bench.delete() == ErrorCode.NON_EMPTY_GROUP
    bench.share_heartbeat("g", "m", -1)
    bench.context.advance(2 * RETENTION_MS)
    bench.context.compact()
    bench.context.reload()
    assert bench.listed() == [("g", "share", "Empty", "share")]
    assert bench.delete() == 0
    bench.context.reload()
    assert bench.listed() == []
    assert bench.consumer_heartbeat().member_epoch == 1, "the name is free again"


def test_a_member_that_is_not_heard_leaves_its_share_group(bench: GroupBench) -> None:
    bench.share_heartbeat()
    bench.context.advance(46_000)
    assert bench.listed() == [("g", "share", "Empty", "share")]


def test_a_share_group_keeps_in_mind_where_it_may_stand_until_the_topic_goes(bench: GroupBench) -> None:
    bench.share_heartbeat("g", "ann", 0, "orders", "clicks")
    bench.share_heartbeat("g", "ann", -1)
    orders = TopicPartitions(topic_id("orders"), "orders", (0, 1, 2, 3))
    clicks = TopicPartitions(topic_id("clicks"), "clicks", (0,))
    bench.context.reload()
    assert dict(bench.machine.share.groups["g"].known) == {orders.topic_id: orders, clicks.topic_id: clicks}
    bench.topics_deleted("orders")
    assert list(bench.machine.share.groups["g"].known.values()) == [clicks]
    bench.topics.counts.pop("clicks")
    bench.context.reload()
    assert not bench.machine.share.groups["g"].known, "it was deleted while no broker led the group"
