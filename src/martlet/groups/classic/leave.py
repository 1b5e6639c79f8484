"""LeaveGroup: members leave, or an administrator removes static ones by their instance id.

Every entry of the request has its own answer; the group rebalances once, however many left.
"""

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.result import Result
from martlet.groups.classic.checks import check_member
from martlet.groups.classic.classic_draft import ClassicDraft
from martlet.groups.classic.classic_group import ClassicGroup, ClassicState
from martlet.groups.classic.rebalance import complete_join_if_all_came, prepare_rebalance
from martlet.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

_BATCHES_SINCE = 3


def leave_group(draft: ClassicDraft, request: LeaveGroupRequest, version: int) -> Result[object]:
    group = draft.state
    leaving: dict[str, None] = {}
    outcomes: list[MemberResponse] = []
    for identity in identities(request, version):
        code, member_id = _who_leaves(group, identity, leaving)
        if code is ErrorCode.NONE:
            leaving[member_id] = None
        outcomes.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
    members_before = len(group.members)
    if leaving:
        draft.remove(list(leaving))
    if group.state is ClassicState.PREPARING_REBALANCE:
        complete_join_if_all_came(draft)
    elif len(group.members) < members_before:
        prepare_rebalance(draft)
    return draft.result(response_of(outcomes, version))


def refuse_all(request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
    """There is no such group, so none of these is a member of it."""
    return response_of(
        [
            MemberResponse(identity.member_id, identity.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
            for identity in identities(request, version)
        ],
        version,
    )


def identities(request: LeaveGroupRequest, version: int) -> list[MemberIdentity]:
    """Who leaves; the first versions name one member."""
    return request.members if version >= _BATCHES_SINCE else [MemberIdentity(request.member_id)]


def response_of(outcomes: list[MemberResponse], version: int) -> LeaveGroupResponse:
    if version >= _BATCHES_SINCE:
        return LeaveGroupResponse(members=outcomes)
    return LeaveGroupResponse(error_code=outcomes[0].error_code)


def _who_leaves(group: ClassicGroup, identity: MemberIdentity, leaving: dict[str, None]) -> tuple[ErrorCode, str]:
    """The member meant, or why it cannot leave."""
    member_id = identity.member_id
    if not member_id:
        member_id = group.instances.get(identity.group_instance_id or "", "")
        is_known = identity.group_instance_id is not None and member_id in group.members
        if not is_known or member_id in leaving:
            return ErrorCode.UNKNOWN_MEMBER_ID, ""
        return ErrorCode.NONE, member_id
    if member_id in leaving:
        return ErrorCode.UNKNOWN_MEMBER_ID, ""
    if member_id not in group.pending:
        try:
            check_member(group, member_id, identity.group_instance_id)
        except ApiError as error:
            return error.code, ""
    return ErrorCode.NONE, member_id
