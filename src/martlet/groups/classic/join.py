"""JoinGroup: members enter a group, or come back for the next generation.

How it works: a new dynamic member is given an id first and comes back with it (v4 on), a static one whose instance id
is known takes over from its former self, every other member waits until the join phase ends. A member whose metadata
has not changed is answered with the current generation at once, unless it leads: a leader that joins wants a rebalance.
"""

from dataclasses import dataclass, replace

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.result import Parked, Result
from martlet.groups.classic import answers
from martlet.groups.classic.checks import GROUP_BYTES_MAX, check_member, check_supported
from martlet.groups.classic.classic_draft import ClassicDraft, join_key, pending_key, session_key
from martlet.groups.classic.classic_events import MemberIdGiven, MemberJoined, MemberRejoined, StaticMemberReplaced
from martlet.groups.classic.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    ClassicState,
    subscribed_topics_of,
)
from martlet.groups.classic.member import Member, Protocols
from martlet.groups.classic.rebalance import complete_join_if_all_came, prepare_rebalance, rebalance_or_complete
from martlet.groups.ports import Caller
from martlet.wire.messages.join_group import JoinGroupRequest

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a member may wait in its first Join. Its client may be gone without a sign, and come back as yet another."""

_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9


@dataclass(frozen=True, slots=True)
class Join:
    """One attempt to join: the request, who sent it, and its protocols."""

    request: JoinGroupRequest
    caller: Caller
    protocols: Protocols

    def member(self, member_id: str) -> Member:
        """The member this attempt describes."""
        request = self.request
        # The first version has no rebalance timeout: the session timeout serves for both.
        rebalance_timeout_ms = request.rebalance_timeout_ms if self.caller.version else request.session_timeout_ms
        return Member(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=self.caller.client_id,
            client_host=self.caller.client_host,
            rebalance_timeout_ms=max(rebalance_timeout_ms, 0),
            session_timeout_ms=request.session_timeout_ms,
            protocols=self.protocols,
        )


def join_group(draft: ClassicDraft, join: Join) -> Result[object]:
    """The group exists, or the member is new."""
    request = join.request
    if not _has_room(draft, request):
        return _refuse_as_full(draft, request.member_id)
    check_supported(draft.state, request.protocol_type, join.protocols)
    if request.member_id:
        return _join_with_id(draft, join)
    if request.group_instance_id is None:
        return _join_dynamic(draft, join)
    known_id = draft.state.instances.get(request.group_instance_id)
    new_id = draft.new_member_id(request.group_instance_id)
    return _add(draft, join, new_id) if known_id is None else _take_over(draft, join, known_id, new_id)


def _has_room(draft: ClassicDraft, request: JoinGroupRequest) -> bool:
    """Who waits in Join already, or takes over its own place, needs none."""
    group, members_max = draft.state, draft.options.group_max_size
    member_id = request.member_id
    if not member_id and request.group_instance_id is not None:
        member_id = group.instances.get(request.group_instance_id, "")
    if group.state is ClassicState.EMPTY:
        return True
    if group.state is ClassicState.PREPARING_REBALANCE:
        # Counting those who wait lets a group that became too large shrink to its limit in one rebalance.
        return member_id in group.joining or len(group.joining) < members_max
    return member_id in group.members or len(group.members) < members_max


def _refuse_as_full(draft: ClassicDraft, member_id: str) -> Result[object]:
    if member_id in draft.state.members or member_id in draft.state.pending:
        draft.remove([member_id])
        complete_join_if_all_came(draft)
    return draft.result(answers.join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED))


def _join_dynamic(draft: ClassicDraft, join: Join) -> Result[object]:
    group = draft.state
    member_id = draft.new_member_id(join.caller.client_id)
    if join.caller.version < _MEMBER_ID_REQUIRED_SINCE:
        return _add(draft, join, member_id)
    if len(group.pending) >= draft.options.group_max_size:
        # What ends a client: after a retriable error it would find the coordinator and join again, at once.
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"{len(group.pending)} clients are about to join group {group.group_id!r}"
        )
    draft.record(MemberIdGiven(group.group_id, member_id, draft.now_ms))
    draft.set_timer(pending_key(group.group_id, member_id), join.request.session_timeout_ms)
    return draft.result(answers.join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _join_with_id(draft: ClassicDraft, join: Join) -> Result[object]:
    group, request = draft.state, join.request
    member_id = request.member_id
    if member_id in group.pending and request.group_instance_id is None:
        return _add(draft, join, member_id)
    check_member(group, member_id, request.group_instance_id)
    is_changed = join.protocols != group.members[member_id].protocols
    if group.state is ClassicState.PREPARING_REBALANCE or is_changed:
        return _rejoin(draft, join)
    if group.state is ClassicState.STABLE and group.leader == member_id:
        return _rejoin(draft, join)
    draft.watch(group.members[member_id])
    return draft.result(answers.joined(group, member_id))


def _rejoin(draft: ClassicDraft, join: Join) -> Result[object]:
    member = _with_instance_of(draft.state, join.member(join.request.member_id))
    _check_bytes(draft.state, member)
    draft.record(MemberRejoined(draft.state.group_id, member))
    rebalance_or_complete(draft)
    return _parked(draft, member.member_id)


def _with_instance_of(group: ClassicGroup, member: Member) -> Member:
    """A static member that leaves out its instance id when it joins again is static still."""
    known_id = group.members[member.member_id].instance_id
    return member if known_id == member.instance_id else replace(member, instance_id=known_id)


def _add(draft: ClassicDraft, join: Join, member_id: str) -> Result[object]:
    group = draft.state
    member = join.member(member_id)
    _check_bytes(group, member)
    if member_id in group.pending:
        draft.cancel_timers(pending_key(group.group_id, member_id))
    draft.record(MemberJoined(group.group_id, join.request.protocol_type, member, draft.now_ms))
    draft.watch(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance_or_complete(draft)
    return _parked(draft, member_id)


def _take_over(draft: ClassicDraft, join: Join, old_id: str, new_id: str) -> Result[object]:
    """A static member has restarted: it gets a new id, and its former self is fenced."""
    group = draft.state
    old_leader, old_member, member = group.leader, group.members[old_id], join.member(new_id)
    _check_bytes(group, member, old_member)
    draft.refuse_waiting(old_id, ErrorCode.FENCED_INSTANCE_ID, named_id=old_id)
    draft.cancel_timers(session_key(group.group_id, old_id))
    draft.record(StaticMemberReplaced(group.group_id, old_id, member))
    draft.watch(member)
    if group.state is ClassicState.STABLE and not _needs_rebalance(group, old_member, member):
        draft.record_last(group.stored(draft.now_ms, group.assignments))
        return draft.result(_taken_over(group, join, new_id, old_leader))
    draft.record(MemberRejoined(group.group_id, member))
    if group.state is ClassicState.PREPARING_REBALANCE:
        complete_join_if_all_came(draft)
    else:
        # Also in CompletingRebalance: the leader may be making an assignment for the id that is no more.
        prepare_rebalance(draft)
    return _parked(draft, new_id)


def _needs_rebalance(group: ClassicGroup, old: Member, new: Member) -> bool:
    """Metadata as a whole is no measure: it may hold what the member owned, which a restart forgets."""
    if group.select_protocol() != group.protocol_name:
        return True
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    old_topics = subscribed_topics_of(old, group.protocol_name)
    new_topics = subscribed_topics_of(new, group.protocol_name)
    return None not in (old_topics, new_topics) and old_topics != new_topics


def _taken_over(group: ClassicGroup, join: Join, member_id: str, old_leader: str | None) -> object:
    """The generation goes on. A leader must not assign again: its answer says so, or does not say that it leads."""
    answer = answers.joined(group, member_id)
    if join.caller.version >= _SKIP_ASSIGNMENT_SINCE:
        answer.skip_assignment = group.leader == member_id
    else:
        answer.leader, answer.members = old_leader or "", []
    return answer


def _check_bytes(group: ClassicGroup, member: Member, replaced: Member | None = None) -> None:
    known = replaced or group.members.get(member.member_id)
    known_bytes = known.size_bytes if known is not None else 0
    if group.members_bytes - known_bytes + member.size_bytes > GROUP_BYTES_MAX:
        detail = f"the members of group {group.group_id!r} would take more than {GROUP_BYTES_MAX} bytes"
        raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, detail)


def _parked(draft: ClassicDraft, member_id: str) -> Result[object]:
    replaced = answers.join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member_id)
    return draft.result(Parked(join_key(draft.state.group_id, member_id), replaced))
