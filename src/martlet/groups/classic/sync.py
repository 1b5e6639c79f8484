"""SyncGroup and Heartbeat: what the members of a generation send until the next rebalance.

The leader's Sync carries the assignments and makes the group Stable and durable; the others wait for it. A heartbeat
finds one member and sets one timer, however large the group is.
"""

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.result import Parked, Result, SetTimer
from martlet.groups.classic import answers
from martlet.groups.classic.checks import (
    check_assignments,
    check_generation,
    check_member,
    check_protocol_agrees,
)
from martlet.groups.classic.classic_draft import ClassicDraft, session_key, sync_key, sync_phase_key
from martlet.groups.classic.classic_events import MemberSynced
from martlet.groups.classic.classic_group import ClassicGroup, ClassicState
from martlet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from martlet.wire.messages.sync_group import SyncGroupRequest


def sync_group(draft: ClassicDraft, request: SyncGroupRequest) -> Result[object]:
    group = draft.state
    check_member(group, request.member_id, request.group_instance_id)
    check_generation(group, request.generation_id)
    check_protocol_agrees(group, request)
    if group.state is ClassicState.PREPARING_REBALANCE:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} is rebalancing; join again")
    if group.state is ClassicState.STABLE:
        return _answer_from_stable(draft, request.member_id)
    if group.leader == request.member_id:
        return _take_assignments(draft, request)
    return _wait_for_leader(draft, request.member_id)


def _answer_from_stable(draft: ClassicDraft, member_id: str) -> Result[object]:
    _note_synced(draft, member_id, waits=False)
    draft.watch(draft.state.members[member_id])
    return draft.result(answers.synced(draft.state, draft.state.assignments.get(member_id, b"")))


def _wait_for_leader(draft: ClassicDraft, member_id: str) -> Result[object]:
    _note_synced(draft, member_id, waits=True)
    replaced = answers.sync_refused(ErrorCode.REBALANCE_IN_PROGRESS)
    return draft.result(Parked(sync_key(draft.state.group_id, member_id), replaced))


def _note_synced(draft: ClassicDraft, member_id: str, *, waits: bool) -> None:
    group = draft.state
    if member_id not in group.unsynced:
        return
    draft.record(MemberSynced(group.group_id, member_id, waits))
    if not group.unsynced:
        draft.cancel_timers(sync_phase_key(group.group_id))


def _take_assignments(draft: ClassicDraft, request: SyncGroupRequest) -> Result[object]:
    """The leader has spoken: store the generation, then answer every member that waits."""
    group = draft.state
    assignments = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
    check_assignments(group, assignments, draft.options)
    waiting = list(group.syncing)
    _note_synced(draft, request.member_id, waits=False)
    draft.record_last(group.stored(draft.now_ms, assignments))
    for member_id in waiting:
        answer = answers.synced(group, assignments.get(member_id, b""))
        draft.answer(sync_key(group.group_id, member_id), answer)
    # A session that ran out while its member waited was let pass, so it starts again here.
    for member_id in (request.member_id, *waiting):
        draft.watch(group.members[member_id])
    return draft.result(answers.synced(group, assignments.get(request.member_id, b"")))


def heartbeat(group: ClassicGroup, request: HeartbeatRequest) -> Result[object]:
    """Changes no state and so needs no draft."""
    check_member(group, request.member_id, request.group_instance_id)
    check_generation(group, request.generation_id)
    is_rebalancing = group.state is ClassicState.PREPARING_REBALANCE
    code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE
    timeout_ms = group.members[request.member_id].session_timeout_ms
    timer = SetTimer(session_key(group.group_id, request.member_id), timeout_ms)
    return Result(HeartbeatResponse(error_code=code), timers=(timer,))
