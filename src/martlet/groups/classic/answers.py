"""The responses of the classic protocol, made from a group's state.

Refusals here are for requests that were parked, or that come with a change of state; a request refused at once raises
`ApiError` instead.
"""

from martlet.base.errors import ErrorCode
from martlet.groups.classic.classic_group import ClassicGroup, ClassicState
from martlet.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from martlet.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from martlet.wire.messages.sync_group import SyncGroupResponse


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The generation, with all its members when it goes to the leader."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member_id,
        members=_members(group) if member_id == group.leader else [],
    )


def _members(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata(group.protocol_name) or b"")
        for member in group.members.values()
    ]


def join_refused(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id)


def synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    """What is assigned to a member."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def described(group: ClassicGroup) -> DescribedGroup:
    """The group as tools show it; metadata and the protocol's name only while they are agreed on."""
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=(member.metadata(group.protocol_name) or b"") if is_stable else b"",
                member_assignment=group.assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
