"""Groups as the groups machine shows, lists, deletes and converts them."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.ports import GroupsOptions

from .group_bench import GroupBench


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


def three_kinds(bench: GroupBench) -> None:
    bench.commit("simple")
    bench.stable("classic")
    bench.consumer_heartbeat("new")


def test_groups_of_all_kinds_are_listed_by_name(bench: GroupBench) -> None:
    three_kinds(bench)
    assert bench.listed() == [
        ("classic", "consumer", "Stable", "classic"),
        ("new", "consumer", "Stable", "consumer"),
        ("simple", "", "Empty", "classic"),
    ]
    assert bench.machine.statistics() == {
        ("classic", "Stable"): 1,
        ("consumer", "Stable"): 1,
        ("classic", "Empty"): 1,
    }
    assert dict(bench.machine.member_counts()) == {"classic": 1, "new": 1}


@pytest.mark.parametrize(
    ("states", "types", "names"),
    [
        (("STABLE",), (), ["classic", "new"]),
        (("empty", "Dead"), (), ["simple"]),
        ((), ("Classic",), ["classic", "simple"]),
        (("stable",), ("consumer",), ["new"]),
        (("Sleeping",), (), []),
        ((), ("share",), []),
    ],
)
def test_groups_are_filtered_without_regard_to_case(
    bench: GroupBench, states: tuple[str, ...], types: tuple[str, ...], names: list[str]
) -> None:
    three_kinds(bench)
    assert [group[0] for group in bench.listed(states, types)] == names


def test_a_simple_group_is_described_as_empty(bench: GroupBench) -> None:
    bench.commit()
    group = bench.described()
    assert (group.error_code, group.group_state, group.protocol_type, group.members) == (0, "Empty", "", [])


def test_a_classic_group_is_described_with_its_members(bench: GroupBench) -> None:
    joined = bench.stable()
    group = bench.described()
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    assert [(member.member_id, member.member_assignment) for member in group.members] == [(joined.member_id, b"mine")]


@pytest.mark.parametrize(("version", "code"), [(5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_no_classic_one_is_dead_to_old_tools(bench: GroupBench, version: int, code: int) -> None:
    bench.consumer_heartbeat("new")
    for name in ("new", "nothing"):
        group = bench.described(name, version)
        assert (group.group_id, group.group_state, group.error_code) == (name, "Dead", code)


def test_only_a_consumer_group_is_described_as_one(bench: GroupBench) -> None:
    three_kinds(bench)
    assert bench.described_consumer_group("new").group_state == "Stable"
    for name, code in (("classic", 69), ("simple", 69), ("nothing", 69), ("", 24)):
        with pytest.raises(ApiError) as refusal:
            bench.described_consumer_group(name)
        assert refusal.value.code == code


# Deleting


def test_a_group_is_deleted_with_all_it_has_committed(bench: GroupBench) -> None:
    joined = bench.stable()
    bench.commit(member_id=joined.member_id, generation=joined.generation_id)
    assert bench.delete() == ErrorCode.NON_EMPTY_GROUP
    bench.leave(joined)
    assert bench.delete() == 0
    assert (bench.listed(), bench.fetch()) == ([], -1)
    assert bench.delete() == ErrorCode.GROUP_ID_NOT_FOUND
    bench.context.reload()
    assert (bench.listed(), bench.fetch()) == ([], -1)


def test_a_simple_and_a_consumer_group_are_deleted_likewise(bench: GroupBench) -> None:
    bench.commit("simple")
    assert bench.delete("simple") == 0
    epoch = bench.consumer_heartbeat("new").member_epoch
    bench.commit("new", member_id="m", generation=epoch, version=9)
    assert bench.delete("new") == ErrorCode.NON_EMPTY_GROUP
    bench.consumer_heartbeat("new", "m", -1)
    assert bench.delete("new") == 0
    assert bench.listed() == []
    bench.context.reload()
    assert bench.listed() == []


def test_a_group_with_very_many_offsets_is_deleted_by_asking_again() -> None:
    bench = GroupBench(GroupsOptions())
    name = "x" * 4_000
    bench.topics.counts = {f"t{number}": 1 for number in range(600)}
    for topic in bench.topics.counts:
        bench.commit(name, topic=topic)
    answers = [bench.delete(name) for _ in range(3)]
    assert answers == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2 + [0]
    assert bench.listed() == []


# Changing the kind


def test_an_empty_consumer_group_becomes_classic_by_a_join(bench: GroupBench) -> None:
    epoch = bench.consumer_heartbeat().member_epoch
    bench.commit(member_id="m", generation=epoch, offset=8, version=9)
    bench.consumer_heartbeat("g", "m", -1)
    bench.stable()
    assert bench.listed() == [("g", "consumer", "Stable", "classic")]
    assert bench.fetch() == 8
    bench.context.reload()
    assert [group[3] for group in bench.listed()] == ["classic"]


def test_an_empty_classic_group_becomes_a_consumer_group_by_a_heartbeat(bench: GroupBench) -> None:
    joined = bench.stable()
    bench.commit(member_id=joined.member_id, generation=joined.generation_id, offset=8)
    bench.leave(joined)
    assert bench.consumer_heartbeat().member_epoch > 0
    assert bench.listed() == [("g", "consumer", "Stable", "consumer")]
    assert bench.fetch() == 8
    bench.context.reload()
    bench.context.compact()
    bench.context.reload()
    assert [group[3] for group in bench.listed()] == ["consumer"]


def test_a_heartbeat_that_does_not_join_leaves_a_classic_group_as_it_is(bench: GroupBench) -> None:
    bench.leave(bench.stable())
    for epoch, code in ((3, ErrorCode.UNKNOWN_MEMBER_ID), (-1, ErrorCode.GROUP_ID_NOT_FOUND)):
        with pytest.raises(ApiError) as refusal:
            bench.consumer_heartbeat("g", "m", epoch)
        assert refusal.value.code is code
    assert bench.listed() == [("g", "consumer", "Empty", "classic")]


def test_classic_requests_need_a_name(bench: GroupBench) -> None:
    with pytest.raises(ApiError) as refusal:
        bench.join("")
    assert refusal.value.code is ErrorCode.INVALID_GROUP_ID
