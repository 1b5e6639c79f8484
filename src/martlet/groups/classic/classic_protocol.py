"""The classic protocol's part of the groups machine: its groups, its requests, its timers.

Requests are checked and routed here and decided in `join.py`, `sync.py` and `leave.py`. Nothing but `replay` changes
`groups`: handlers work on drafts and return what shall be replayed.

Deliberate deviations from Kafka, all of them milder: a static member takes over its own place in a full group; a
removed member's parked Sync is answered; ids given to clients that never come back are limited in number; a static
member that restarts with another subscription causes a rebalance; leaving before having joined does not; the last one
to come to a group that is too large does not hold up the others.

Proved by: tests/scenarios/classic, tests/unit/groups/classic, tests/properties/test_classic_group.py
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.randomness import IdSource
from martlet.coordinator.result import Answer, CancelTimer, Result, SetTimer, TimerKey
from martlet.groups.classic import answers
from martlet.groups.classic import join as joining
from martlet.groups.classic import leave as leaving
from martlet.groups.classic import sync as syncing
from martlet.groups.classic.checks import (
    check_generation,
    check_group_id,
    check_member,
    check_metadata,
    check_protocol_named,
    check_session_timeout,
)
from martlet.groups.classic.classic_draft import (
    ClassicDraft,
    join_key,
    pending_key,
    rebalance_key,
    session_key,
    sync_key,
    sync_phase_key,
)
from martlet.groups.classic.classic_events import ClassicEvent, MemberDescribed, MemberIdGiven, MemberJoined
from martlet.groups.classic.classic_group import ClassicGroup, ClassicState
from martlet.groups.classic.member import Protocols, protocols_of
from martlet.groups.classic.rebalance import (
    end_wait,
    expire_member,
    expire_pending_member,
    expire_sync_phase,
    is_excused,
    prepare_rebalance,
    watch_loaded_members,
)
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.records import ClassicGroupRemoved, ClassicGroupStored
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest
from martlet.wire.messages.leave_group import LeaveGroupRequest
from martlet.wire.messages.sync_group import SyncGroupRequest


class ClassicProtocol:
    """All classic groups of one shard."""

    def __init__(self, options: GroupsOptions, ids: IdSource) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self._options = options
        self._ids = ids

    def join_group(self, request: JoinGroupRequest, caller: Caller, now_ms: int) -> Result[object]:
        check_group_id(request.group_id, self._options)
        check_session_timeout(request.session_timeout_ms, self._options)
        protocols = protocols_of(request.protocols)
        check_metadata(request, protocols, self._options)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise _no_such_group(request.group_id)
            group = ClassicGroup(request.group_id, now_ms)
        return joining.join_group(self._draft(group, now_ms), joining.Join(request, caller, protocols))

    def sync_group(self, request: SyncGroupRequest, caller: Caller, now_ms: int) -> Result[object]:
        check_protocol_named(request, caller.version)
        group = self._group(request.group_id)
        return syncing.sync_group(self._draft(group, now_ms), request)

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now_ms: int) -> Result[object]:
        return syncing.heartbeat(self._group(request.group_id), request)

    def leave_group(self, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> Result[object]:
        check_group_id(request.group_id, self._options)
        group = self.groups.get(request.group_id)
        if group is None:
            return Result(leaving.refuse_all(request, caller.version))
        return leaving.leave_group(self._draft(group, now_ms), request, caller.version)

    def check_commit(self, group: ClassicGroup, *, member_id: str, generation: int, instance_id: str | None) -> None:
        """Whether this member may commit offsets now; without a generation only while the group is empty."""
        if generation < 0 and group.is_empty:
            return
        if generation >= 0 or member_id or instance_id is not None:
            check_member(group, member_id, instance_id)
            check_generation(group, generation)
        else:
            detail = f"group {group.group_id!r} has members, and the commit names none of them"
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, detail)
        if group.state is ClassicState.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!r} is rebalancing; sync first")

    @staticmethod
    def check_txn_commit(group: ClassicGroup, *, member_id: str, generation: int, instance_id: str | None) -> None:
        """Whether this member may commit in a transaction; a rebalance does not stop it."""
        if generation >= 0 or not group.is_empty:
            check_member(group, member_id, instance_id)
            check_generation(group, generation)

    def commit_timers(self, group: ClassicGroup, member_id: str) -> list[SetTimer]:
        """A valid commit shows that the member is alive."""
        member = group.members.get(member_id)
        if member is None or member_id in group.fresh:
            return []
        return [SetTimer(session_key(group.group_id, member_id), member.session_timeout_ms)]

    def removal(self, group: ClassicGroup) -> list[object]:
        """What forgets the group."""
        return [ClassicGroupRemoved(group.group_id)]

    def adoption(
        self, record: ClassicGroupStored, protocols: Mapping[str, Protocols], now_ms: int, *, rebalance: bool
    ) -> Result[object]:
        """A consumer group goes on as this classic one; `protocols`: all those of members, by their ids."""
        draft = self._draft(ClassicGroup(record.group_id, now_ms), now_ms)
        return _adoption(draft, record, protocols, rebalance=rebalance)

    def on_loaded(self, now_ms: int) -> Result[object]:
        records: list[object] = []
        timers: list[SetTimer | CancelTimer] = []
        for group in self.groups.values():
            draft = self._draft(group, now_ms)
            watch_loaded_members(draft)
            records += draft.records
            timers += draft.timers
        return Result(None, records, timers)

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[object]:
        """Timers may come late: whether there is still something to do is checked first."""
        kind, group_id, *rest = key
        group = self.groups.get(group_id)
        if group is None:
            return Result()
        draft = self._draft(group, now_ms)
        if kind == "session" and rest[0] in group.members and not is_excused(draft, rest[0]):
            expire_member(draft, rest[0])
        elif kind == "pending" and rest[0] in group.pending:
            expire_pending_member(draft, rest[0])
        elif kind == "rebalance" and group.state is ClassicState.PREPARING_REBALANCE:
            end_wait(draft)
        elif kind == "sync" and group.unsynced:
            expire_sync_phase(draft)
        return draft.result()

    def live_records(self) -> Iterator[list[ClassicGroupStored]]:
        """What the log says about all groups, one at each step; groups may come and go between the steps."""
        for group_id in tuple(self.groups):
            group = self.groups.get(group_id)
            if group is not None and group.last_stored is not None:
                yield [group.last_stored]

    def replay(self, record: ClassicEvent | ClassicGroupStored | ClassicGroupRemoved) -> None:
        if isinstance(record, ClassicGroupRemoved):
            self.groups.pop(record.group_id, None)
            return
        group = self.groups.get(record.group_id)
        if isinstance(record, ClassicGroupStored):
            group = group or ClassicGroup(record.group_id, record.changed_at_ms)
        else:
            if isinstance(record, MemberIdGiven | MemberJoined):
                group = group or ClassicGroup(record.group_id, record.at_ms)
            if group is None:
                return
        group.replay(record)
        if group.is_needless:
            self.groups.pop(record.group_id, None)
        else:
            self.groups[record.group_id] = group

    def _group(self, group_id: str) -> ClassicGroup:
        check_group_id(group_id, self._options)
        group = self.groups.get(group_id)
        if group is None:
            raise _no_such_group(group_id)
        return group

    def _draft(self, group: ClassicGroup, now_ms: int) -> ClassicDraft:
        return ClassicDraft(group, self._options, self._ids, now_ms)


def _no_such_group(group_id: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}, so it has no members")


def dismissal(group: ClassicGroup, code: ErrorCode) -> tuple[list[Answer], list[CancelTimer]]:
    """What a group with members needs, besides its removal, when it becomes a consumer group: answers, no timers."""
    group_id = group.group_id
    parked = [Answer(join_key(group_id, who), answers.join_refused(code, who)) for who in group.joining]
    parked += [Answer(sync_key(group_id, who), answers.sync_refused(code)) for who in group.syncing]
    keys: list[TimerKey] = [session_key(group_id, member_id) for member_id in group.members]
    keys += [pending_key(group_id, member_id) for member_id in group.pending]
    keys += [rebalance_key(group_id), sync_phase_key(group_id)]
    return parked, [CancelTimer(key) for key in keys]


def _adoption(
    draft: ClassicDraft, record: ClassicGroupStored, protocols: Mapping[str, Protocols], *, rebalance: bool
) -> Result[object]:
    """Begin with the members of the record, Stable, or at once with a rebalance."""
    group = draft.state
    draft.record(record)
    for member in list(group.members.values()):
        if member.member_id in protocols:
            draft.record(MemberDescribed(group.group_id, replace(member, protocols=protocols[member.member_id])))
        draft.watch(member)
    if rebalance:
        prepare_rebalance(draft)
    return draft.result()
