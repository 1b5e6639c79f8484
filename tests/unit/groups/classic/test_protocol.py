"""The classic protocol where stories do not reach: versions, limits, late timers, hand-overs, and its cost."""

from collections.abc import Iterator
from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.result import Answer, CancelTimer, SetTimer
from martlet.groups.classic import answers
from martlet.groups.classic.checks import GROUP_BYTES_MAX
from martlet.groups.classic.classic_events import CLASSIC_EVENTS, MemberSynced, RebalancePrepared
from martlet.groups.classic.classic_group import ClassicState
from martlet.groups.classic.classic_protocol import dismissal
from martlet.groups.classic.member import Member
from martlet.groups.ports import GroupsOptions
from martlet.groups.records import ClassicGroupRemoved, ClassicGroupStored, ClassicMemberStored
from martlet.wire.messages.join_group import JoinGroupResponse
from martlet.wire.messages.leave_group import MemberIdentity
from martlet.wire.messages.sync_group import SyncGroupRequest
from tests.unit.groups.classic.group_room import QUICK, GroupRoom, answer_of


def test_version_0_has_no_rebalance_timeout_and_takes_the_session_timeout() -> None:
    room = GroupRoom()
    room.join(version=0, session_timeout_ms=7_000, rebalance_timeout_ms=-1)
    room.join(version=1, session_timeout_ms=7_000, rebalance_timeout_ms=9_000)
    room.join(version=1, session_timeout_ms=7_000, rebalance_timeout_ms=-5)
    assert [member.rebalance_timeout_ms for member in room.group.members.values()] == [7_000, 9_000, 0]


def test_a_member_id_shows_the_client_and_fits_on_the_wire() -> None:
    room = GroupRoom()
    answer = room.join(version=4, client="x" * 32_000)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("xxx")
    assert len(answer.member_id) == 255 + 1 + 36


def test_a_protocol_named_twice_counts_once() -> None:
    room = GroupRoom()
    room.join(protocols=(("range", b"first"), ("range", b"second")))
    (member,) = room.group.members.values()
    assert member.protocols == (("range", b"first"),)
    assert room.group.protocol_counts == {"range": 1}


def test_from_version_5_on_a_sync_must_name_its_protocol() -> None:
    room = GroupRoom()
    (leader,) = room.stable_group(1)
    for kind, name in ((None, "range"), ("consumer", None)):
        request = SyncGroupRequest("g", 1, leader, protocol_type=kind, protocol_name=name)
        assert room.ask("sync_group", request, 5) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.ask("sync_group", SyncGroupRequest("g", 1, leader), 4).assignment == b"p0"


@pytest.mark.parametrize(
    "fault",
    [
        {"protocols": (("range", b"x" * 2_000_000),)},
        {"protocols": (("n" * 40_000, b""),)},
        {"protocol_type": "t" * 40_000},
        {"instance_id": "i" * 40_000, "version": 9},
    ],
)
def test_what_cannot_be_stored_is_refused_at_the_door(fault: dict[str, Any]) -> None:
    room = GroupRoom()
    assert room.join(**fault) is ErrorCode.INVALID_REQUEST
    assert room.machine.groups == {}


def test_a_group_id_longer_than_allowed_is_refused() -> None:
    assert GroupRoom().join(group_id="ä" * 2_049) is ErrorCode.INVALID_GROUP_ID


def test_members_whose_metadata_together_does_not_fit_the_record_are_refused_and_the_group_goes_on() -> None:
    room = GroupRoom()
    large = (("range", b"x" * 1_000_000),)
    ids = room.stable_group(GROUP_BYTES_MAX // 1_000_200, protocols=large)
    assert room.join(protocols=large) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert room.heartbeat(ids[0], 1) is ErrorCode.NONE
    assert room.join(ids[1], protocols=(("range", b"small"),)).done is False


def test_assignments_that_together_do_not_fit_the_record_are_refused() -> None:
    room = GroupRoom()
    waiting = [room.join() for _ in range(10)]
    room.advance(0)
    ids = [answer_of(parked).member_id for parked in waiting]
    assert room.sync(ids[0], 1, dict.fromkeys(ids, b"x" * 1_000_000)) is ErrorCode.INVALID_REQUEST
    assert room.group.state is ClassicState.COMPLETING_REBALANCE
    assert room.sync(ids[0], 1, dict.fromkeys(ids, b"x")).assignment == b"x"


def test_ids_given_to_clients_that_never_come_back_are_limited_and_a_client_past_the_limit_does_not_ask_on() -> None:
    room = GroupRoom(GroupsOptions(group_max_size=3))
    for _ in range(3):
        assert room.join(version=9).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert room.join(version=9) is ErrorCode.GROUP_MAX_SIZE_REACHED
    room.advance(10_000)
    assert room.join(version=9).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_pending_id_with_an_instance_id_is_nobody() -> None:
    room = GroupRoom()
    given = room.join(version=9).member_id
    assert room.join(given, version=9, instance_id="one") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_leaves_out_its_instance_id_when_it_rejoins_stays_static() -> None:
    room = GroupRoom()
    (leader,) = room.stable_group(1, instance_id="one", version=9)
    room.join(leader)
    assert room.group.members[leader].instance_id == "one"
    assert room.group.instances == {"one": leader}


def test_a_restarted_static_member_shows_where_it_runs_now() -> None:
    room = GroupRoom()
    room.stable_group(1, instance_id="one", version=9)
    room.join(instance_id="one", version=9, client="moved")
    (described,) = answers.described(room.group).members
    assert (described.client_id, described.group_instance_id, described.member_assignment) == ("moved", "one", b"p0")


def test_a_static_restart_that_changes_the_chosen_protocol_rebalances() -> None:
    room = GroupRoom()
    both, reverse = (("range", b""), ("sticky", b"")), (("sticky", b""), ("range", b""))
    room.stable_group(1, instance_id="one", version=9, protocols=both)
    room.join(instance_id="one", version=9, protocols=reverse)
    assert room.group.state is ClassicState.COMPLETING_REBALANCE
    assert (room.group.generation, room.group.protocol_name) == (2, "sticky")


def test_a_static_restart_in_a_group_of_another_type_never_looks_into_metadata() -> None:
    room = GroupRoom()
    room.stable_group(1, instance_id="one", version=9, protocol_type="connect")
    answer = room.join(instance_id="one", version=9, protocol_type="connect", protocols=(("range", b"other"),))
    assert (answer.generation_id, answer.skip_assignment) == (1, True)


def test_tools_see_metadata_only_while_the_group_is_stable() -> None:
    room = GroupRoom()
    room.stable_group(2)
    described = answers.described(room.group)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [(member.member_metadata, member.member_assignment) for member in described.members] == [
        (b"m", b"p0"),
        (b"m", b"p1"),
    ]
    room.join()
    described = answers.described(room.group)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [(member.member_metadata, member.member_assignment) for member in described.members] == [
        (b"", b"p0"),
        (b"", b"p1"),
        (b"", b""),
    ]
    assert room.group.state.value == "PreparingRebalance"


def test_commits_without_a_member_are_for_empty_groups_only() -> None:
    room = GroupRoom()
    ids = room.stable_group(1)

    def code(**given: Any) -> ErrorCode:
        try:
            room.machine.check_commit(room.group, **{"member_id": "", "generation": -1, "instance_id": None, **given})
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    assert code() is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(member_id=ids[0]) is ErrorCode.ILLEGAL_GENERATION
    assert code(instance_id="one") is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(member_id=ids[0], generation=1) is ErrorCode.NONE
    room.leave(MemberIdentity(ids[0]))
    assert code() is ErrorCode.NONE
    assert code(member_id="anybody") is ErrorCode.NONE
    assert code(generation=2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_keeps_a_session_alive_but_not_that_of_who_is_not_in_yet() -> None:
    room = GroupRoom()
    (leader,) = room.stable_group(1)
    assert room.machine.commit_timers(room.group, leader) == [SetTimer(("session", "g", leader), 10_000)]
    room.join()
    newcomer = next(iter(room.group.fresh))
    assert room.machine.commit_timers(room.group, newcomer) == []
    assert room.machine.commit_timers(room.group, "nobody") == []


def test_timers_that_come_late_do_nothing() -> None:
    room = GroupRoom()
    (leader,) = room.stable_group(1)
    before = repr(room.machine.groups)
    for key in (
        ("session", "gone", "a"),
        ("session", "g", "gone"),
        ("pending", "g", leader),
        ("rebalance", "g"),
        ("sync", "g"),
    ):
        result = room.machine.on_timer(key, room.now_ms)
        assert [*result.records, *result.timers, *result.answers] == []
    assert repr(room.machine.groups) == before


def test_events_of_a_group_that_is_gone_are_let_pass() -> None:
    machine = GroupRoom().machine
    machine.replay(RebalancePrepared("g"))
    machine.replay(MemberSynced("g", "a", waits=True))
    machine.replay(ClassicGroupRemoved("g"))
    assert machine.groups == {}


def test_every_event_lives_in_this_process_only() -> None:
    room = GroupRoom()
    assert len(CLASSIC_EVENTS) == 10
    room.stable_group(3)
    assert all(
        room.codec.encode(record) is None for record in room.take_records() if isinstance(record, CLASSIC_EVENTS)
    )
    assert len(room.log) == 1


def test_removing_a_group_forgets_it_for_good() -> None:
    room = GroupRoom()
    (leader,) = room.stable_group(1)
    room.leave(MemberIdentity(leader))
    for record in room.machine.removal(room.group):
        encoded = room.codec.encode(record)
        assert encoded is not None
        assert isinstance(record, ClassicGroupRemoved)
        room.log.append(encoded)
        room.machine.replay(record)
    assert room.machine.groups == {}
    room.reload()
    assert room.machine.groups == {}


def test_a_group_that_becomes_a_consumer_group_dismisses_everybody_who_waits() -> None:
    room = GroupRoom()
    ids = room.stable_group(2)
    room.join(ids[0])
    answers, timers = dismissal(room.group, ErrorCode.REBALANCE_IN_PROGRESS)
    refused = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=ids[0])
    assert answers == [Answer(("join", "g", ids[0]), refused)]
    assert CancelTimer(("session", "g", ids[1])) in timers
    assert CancelTimer(("rebalance", "g")) in timers


def test_a_consumer_group_goes_on_as_a_classic_one_with_all_that_its_members_said() -> None:
    stored = ClassicMemberStored("a", None, "c", "/h", 60_000, 10_000, b"m", b"p0")
    record = ClassicGroupStored("g", "consumer", 7, "range", "a", 5, (stored,))
    room = GroupRoom()
    protocols = {"a": (("range", b"m"), ("sticky", b"s"))}
    room.call(lambda machine, now_ms: machine.adoption(record, protocols, now_ms, rebalance=False))
    assert room.group.state is ClassicState.STABLE
    assert room.group.members["a"].protocols == protocols["a"]
    assert room.heartbeat("a", 7) is ErrorCode.NONE
    assert ("session", "g", "a") in room.timers
    room.call(lambda machine, now_ms: machine.adoption(record, protocols, now_ms, rebalance=True))
    assert room.heartbeat("a", 7) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_taken_over_from_the_consumer_protocol_rebalances_after_a_restart() -> None:
    members = [ClassicMemberStored(name, None, "c", "/h", 60_000, 10_000, b"m", b"p") for name in "ab"]
    record = ClassicGroupStored("g", "consumer", 7, "range", None, 5, tuple(members))
    room = GroupRoom()
    room.call(lambda machine, now_ms: machine.adoption(record, {}, now_ms, rebalance=True))
    room.reload()
    assert room.heartbeat("a", 7) is ErrorCode.REBALANCE_IN_PROGRESS
    first = room.join("a")
    assert room.join("b").generation_id == 8
    assert answer_of(first).generation_id == 8
    room.sync("a", 8, {"a": b"p0", "b": b"p1"})
    room.reload()
    assert room.heartbeat("b", 8) is ErrorCode.NONE


class CountingDict(dict[str, Member]):
    """Counts how many entries were looked through."""

    looked_through = 0

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.looked_through += 1
            yield key


def count_looks(room: GroupRoom) -> CountingDict:
    room.group.members = CountingDict(room.group.members)
    return room.group.members


def test_a_heartbeat_costs_the_same_in_a_group_of_any_size() -> None:
    room = GroupRoom()
    ids = room.stable_group(1_000)
    members = count_looks(room)
    assert room.heartbeat(ids[500], 1) is ErrorCode.NONE
    assert members.looked_through == 0


def test_a_rebalance_looks_through_its_members_a_few_times_and_not_once_for_each_of_them() -> None:
    room = GroupRoom()
    ids = room.stable_group(1_000)
    members = count_looks(room)
    room.join(ids[0])
    assert members.looked_through <= 2 * 1_000
    members.looked_through = 0
    for member_id in ids[1:-1]:
        room.join(member_id)
    assert members.looked_through == 0
    room.join(ids[-1])
    assert members.looked_through <= 8 * 1_000
    assert room.group.generation == 2
    members = count_looks(room)
    for member_id in ids[1:]:
        room.sync(member_id, 2)
    assert members.looked_through == 0
    room.sync(ids[0], 2, dict.fromkeys(ids, b"p"))
    assert room.group.state is ClassicState.STABLE
    assert members.looked_through <= 4 * 1_000


def test_a_thousand_members_leave_in_one_request() -> None:
    room = GroupRoom(QUICK)
    ids = room.stable_group(1_000)
    answer = room.leave(*(MemberIdentity(member_id) for member_id in ids))
    assert {entry.error_code for entry in answer.members} == {0}
    assert room.group.is_empty
    assert len(room.timers) == 0
