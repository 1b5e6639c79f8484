"""A machine with classic groups for unit tests: requests in a line, answers as they come."""

from typing import Any

from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.randomness import IdSource
from martlet.groups.classic.classic_group import ClassicGroup
from martlet.groups.classic.classic_protocol import ClassicProtocol
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.record_codec import GroupRecordCodec
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from martlet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.machine_context import MachineContext, Pending

QUICK = GroupsOptions(initial_rebalance_delay_ms=0)


class GroupRoom(MachineContext[ClassicProtocol]):
    """The group is "g" unless said otherwise. A refused request gives the error's code."""

    def __init__(self, options: GroupsOptions = QUICK) -> None:
        self.options = options
        ids = IdSource(SimRandomness(7))
        super().__init__(lambda: ClassicProtocol(self.options, ids), GroupRecordCodec())

    @property
    def group(self) -> ClassicGroup:
        return self.machine.groups["g"]

    def ask(self, name: str, request: object, version: int, client: str = "client") -> Any:
        try:
            caller = Caller(client, "/10.0.0.9", version)
            return self.call(lambda machine, now_ms: getattr(machine, name)(request, caller, now_ms))
        except ApiError as error:
            return error.code

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 3,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"m"),),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        group_id: str = "g",
        client: str = "client",
    ) -> Any:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols],
        )
        return self.ask("join_group", request, version, client)

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None) -> Any:
        given = [SyncGroupRequestAssignment(who, what) for who, what in (assignments or {}).items()]
        return self.ask("sync_group", SyncGroupRequest("g", generation, member_id, assignments=given), 3)

    def heartbeat(self, member_id: str, generation: int) -> Any:
        answer = self.ask("heartbeat", HeartbeatRequest("g", generation, member_id), 4)
        return answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)

    def leave(self, *members: MemberIdentity) -> Any:
        return self.ask("leave_group", LeaveGroupRequest("g", members=list(members)), 5)

    def stable_group(self, count: int, **of_members: Any) -> list[str]:
        """A Stable group with this many members, all of whom have synced; the first leads."""
        waiting = [self.join(**of_members) for _ in range(count)]
        self.advance(0)
        ids = [parked.response.member_id for parked in waiting]
        generation = self.group.generation
        assignments = {member_id: f"p{number}".encode() for number, member_id in enumerate(ids)}
        for member_id in (*ids[1:], ids[0]):
            self.sync(member_id, generation, assignments if member_id == ids[0] else None)
        return ids


def answer_of(parked: Any) -> Any:
    """The answer to a request that was parked and has been answered since."""
    assert isinstance(parked, Pending)
    assert parked.done, "it was not answered"
    return parked.response
