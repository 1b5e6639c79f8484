"""Changes of a group's protocol that the stories do not tell: limits, restarts in between, and administrators."""

from typing import Any

import pytest
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.randomness import IdSource
from martlet.groups.consumer.consumer_group import ConsumerGroup
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.record_codec import GroupRecordCodec
from martlet.wire.consumer_protocol import Subscription, read_assignment, write_subscription
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from martlet.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.machine_context import MachineContext
from tests.unit.groups.consumer.bench import join_request
from tests.unit.groups.consumer.sim_topics import SimTopics
from tests.unit.groups.migration.honest_classic_member import HonestClassicMember
from tests.unit.groups.migration.two_protocols import TwoProtocols


class MigrationBench:
    """Both protocols, with short words for what members of both kinds do."""

    def __init__(self, options: GroupsOptions | None = None) -> None:
        self.topics = SimTopics(one=2, two=2)
        self.options = options or GroupsOptions(initial_rebalance_delay_ms=0)
        ids = IdSource(SimRandomness("migration"))
        self.context = MachineContext[TwoProtocols](
            lambda: TwoProtocols(self.options, self.topics, ids), GroupRecordCodec()
        )

    @property
    def group(self) -> ConsumerGroup:
        return self.context.machine.consumer.groups["g"]

    def beat(self, request: ConsumerGroupHeartbeatRequest) -> Any:
        caller = Caller("modern", "/127.0.0.1", 1)
        return self.context.call(lambda machine, now_ms: machine.consumer_group_heartbeat(request, caller, now_ms))

    def join(self, member: str) -> Any:
        return self.beat(join_request(member, ["one", "two"]))

    def classic_join(
        self, member_id: str = "", *, version: int = 3, subscription_version: int = 3, user_data: bytes = b""
    ) -> Any:
        metadata = write_subscription(Subscription(("one", "two"), user_data, version=subscription_version))
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=-1,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("shared", metadata)],
        )
        caller = Caller("classic", "/127.0.0.1", version)
        return self.context.call(lambda machine, now_ms: machine.join_group(request, caller, now_ms))

    def sync(self, joined: JoinGroupResponse) -> SyncGroupResponse:
        request = SyncGroupRequest("g", joined.generation_id, joined.member_id)
        caller = Caller("classic", "/127.0.0.1", 3)
        response = self.context.call(lambda machine, now_ms: machine.sync_group(request, caller, now_ms))
        assert isinstance(response, SyncGroupResponse)
        return response

    def leave(self, *identities: MemberIdentity, version: int = 5) -> LeaveGroupResponse:
        request = LeaveGroupRequest("g", identities[0].member_id, list(identities))
        caller = Caller("classic", "/127.0.0.1", version)
        response = self.context.call(lambda machine, now_ms: machine.leave_group(request, caller, now_ms))
        assert isinstance(response, LeaveGroupResponse)
        return response

    def classic_members(self, count: int) -> list[HonestClassicMember]:
        """So many members in a classic group that is stable."""
        members = [HonestClassicMember(f"c{number}", self.context, self.topics, eager=True) for number in range(count)]
        self.settle(members)
        return members

    def settle(self, members: list[HonestClassicMember]) -> None:
        for _ in range(12):
            for member in members:
                member.step()
            self.context.advance(1_000)


def test_a_classic_group_that_is_too_large_for_the_other_kind_stays_classic() -> None:
    bench = MigrationBench(GroupsOptions(initial_rebalance_delay_ms=0, consumer_max_size=1))
    members = bench.classic_members(2)
    before = repr(bench.context.machine.classic.groups)
    with pytest.raises(ApiError) as refusal:
        bench.join("a")
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert repr(bench.context.machine.classic.groups) == before
    assert sum(len(member.owned) for member in members) == 4


def test_an_upgrade_that_the_new_group_has_no_room_for_changes_nothing() -> None:
    bench = MigrationBench(GroupsOptions(initial_rebalance_delay_ms=0, consumer_max_size=2))
    bench.classic_members(2)
    bench.context.take_records()
    with pytest.raises(ApiError) as refusal:
        bench.join("a")
    assert refusal.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.context.take_records() == []


def test_an_upgraded_group_survives_a_restart() -> None:
    bench = MigrationBench()
    members = bench.classic_members(2)
    bench.join("a")
    bench.context.compact()
    bench.context.reload()
    assert bench.group.classic_count == 2
    assert {one.member_id for one in members} < set(bench.group.members)
    assert sum(len(member.current.assigned) for member in bench.group.members.values()) == 4
    assert ("session", "g", members[0].member_id) in bench.context.timers


def test_a_restart_in_the_middle_of_a_downgrade_leaves_no_partition_without_owner() -> None:
    bench = MigrationBench()
    members = bench.classic_members(1)
    bench.join("a")
    bench.settle(members)
    bench.beat(ConsumerGroupHeartbeatRequest("g", "a", bench.group.members["a"].current.epoch))
    bench.settle(members)
    bench.beat(ConsumerGroupHeartbeatRequest("g", "a", -1))
    assert "g" in bench.context.machine.classic.groups
    bench.context.reload()
    bench.settle(members)
    assert len(members[0].owned) == 4


def test_a_group_that_would_not_fit_into_one_record_does_not_turn_classic() -> None:
    bench = MigrationBench()
    bench.join("a")
    for _ in range(7):
        bench.classic_join(user_data=bytes(1_000_000))
    bench.beat(ConsumerGroupHeartbeatRequest("g", "a", -1))
    assert bench.group.classic_count == len(bench.group.members) == 7


def test_a_classic_member_of_an_old_version_gets_its_assignment_in_that_version() -> None:
    bench = MigrationBench()
    bench.join("a")
    joined = bench.classic_join(subscription_version=0)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 2, "")
    assert bench.group.members[joined.member_id].stored.rebalance_timeout_ms == 10_000
    assignment = read_assignment(bench.sync(joined).assignment)
    assert assignment is not None
    assert assignment.version == 0


def test_a_dynamic_member_is_given_its_id_before_it_is_let_in() -> None:
    bench = MigrationBench()
    bench.join("a")
    refused = bench.classic_join(version=4)
    assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert set(bench.group.members) == {"a"}
    joined = bench.classic_join(refused.member_id, version=4)
    assert joined.error_code == 0
    assert set(bench.group.members) == {"a", refused.member_id}


def test_a_classic_member_cannot_bring_an_id_of_any_length() -> None:
    bench = MigrationBench()
    bench.join("a")
    with pytest.raises(ApiError, match="MemberId has 513 characters") as refusal:
        bench.classic_join("m" * 513)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_classic_requests_of_strangers_are_refused() -> None:
    bench = MigrationBench()
    bench.join("a")
    caller = Caller("classic", "/127.0.0.1", 3)
    for name in ("a", "stranger"):
        request = HeartbeatRequest("g", 1, name)
        with pytest.raises(ApiError) as refusal:
            bench.context.call(lambda machine, now_ms, request=request: machine.heartbeat(request, caller, now_ms))  # type: ignore[misc]
        assert refusal.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_everybody_who_leaves_has_an_answer_of_its_own() -> None:
    bench = MigrationBench()
    bench.join("a")
    joined = bench.classic_join()
    gone = MemberIdentity(joined.member_id)
    response = bench.leave(gone, gone, MemberIdentity("a"), MemberIdentity("", "nobody"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [member.error_code for member in response.members] == [0, unknown, unknown, unknown]
    assert set(bench.group.members) == {"a"}
    assert bench.leave(MemberIdentity("stranger"), version=1).error_code == unknown


def test_a_full_group_takes_no_classic_members_either() -> None:
    bench = MigrationBench(GroupsOptions(consumer_max_size=1))
    bench.join("a")
    with pytest.raises(ApiError) as refusal:
        bench.classic_join()
    assert refusal.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
