"""The way in to consumer groups (KIP-848): every request, timer and topic update that concerns them, and their state.

Rules: methods read the state and return a `Result`; only `replay` changes anything. Nothing here knows classic groups:
`groups/migration` turns one kind into the other and hangs itself in at `downgrade`.

Timers: ("session", group, member) since a member was last heard; ("revoke", group, member) while it has something to
give back; ("assign", group) while a group waits for a new target; ("regex", group) to match expressions again.

Invariants: GRP-7 and GRP-8 of `consumer_group.py`, and
GRP-9 Epochs never go back.

Proved by: tests/unit/groups/consumer, tests/scenarios/consumer, tests/properties/test_consumer_group.py
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.randomness import IdSource
from martlet.coordinator.result import Result, SetTimer, TimerKey
from martlet.groups.consumer import description
from martlet.groups.consumer.consumer_group import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    AssignmentDue,
    Awaited,
    ConsumerGroup,
    ConsumerRecord,
    ExpressionsDue,
    GroupRecord,
    Member,
    TopicIndex,
)
from martlet.groups.consumer.departure import (
    leave_for_a_while,
    leaving_member,
    member_removal,
    no_such_group,
    remove_members,
)
from martlet.groups.consumer.heartbeat import MemberUpdate, find_member, heartbeat, is_usual, usual_heartbeat
from martlet.groups.consumer.subscriptions import (
    NEXT_TURN_MS,
    ConsumerDraft,
    UpdateBudget,
    raise_epoch_if_topics_changed,
    refresh_all,
    refresh_some,
)
from martlet.groups.consumer.target import ASSIGN_DELAY_MS, AT_ONCE_MEMBERS_MAX, make_target
from martlet.groups.consumer.validation import check_heartbeat
from martlet.groups.ports import Caller, GroupsOptions, TopicsView
from martlet.groups.records import (
    ConsumerGroupRemoved,
    ConsumerMemberRemoved,
    CurrentRemoved,
    MemberState,
    RegexRemoved,
    RegexResolved,
    TargetEpochRemoved,
    TargetRemoved,
)
from martlet.wire.messages import consumer_group_describe
from martlet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_REGEX_SPREAD_MS = 100
_MODERN_OFFSET_COMMIT = 9
"""The first version of OffsetCommit that carries a member epoch."""

Downgrade = Callable[[ConsumerGroup, Sequence[Member], object, int], Result[object] | None]
"""Given the members that go and the response: the group turned classic without them, or None when it stays."""


class ConsumerProtocol:
    """All consumer groups of one shard."""

    def __init__(self, options: GroupsOptions, topics: TopicsView, ids: IdSource) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.downgrade: Downgrade | None = None
        self._options = options
        self._topics = topics
        self._ids = ids
        self._index = TopicIndex()
        self._with_regex: dict[str, None] = {}
        """Ids of the groups that have expressions."""

    # Requests

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int) -> Result[object]:
        """ConsumerGroupHeartbeat: join, stay or leave."""
        check_heartbeat(request, caller.version, self._options)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_epoch != JOINING_EPOCH:
                raise no_such_group(request)
            group = ConsumerGroup(request.group_id)
        return self.heartbeat_in(group, request, caller, now_ms)

    def heartbeat_in(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        """The same on this group, which need not be in `groups` yet; the request has been checked."""
        if request.member_epoch < JOINING_EPOCH:
            return self._leave(group, request, now_ms)
        known, replaced = find_member(group, request, self._options)
        if known is not None and is_usual(group, known, request, caller):
            return usual_heartbeat(group, known, self._options)
        update = MemberUpdate(ConsumerDraft(group, self._topics, now_ms), self._options, known, replaced)
        return heartbeat(update, request, caller, request.member_id or self._ids.text_id())

    def check_commit(self, group: ConsumerGroup, *, member_id: str, epoch: int, version: int) -> None:
        """Refuse an OffsetCommit by a client that is not a member, or is one in another epoch."""
        if epoch < 0 and group.is_empty:
            return  # A tool that sets the offsets of an empty group.
        member = self._member(group, member_id)
        if not member.is_classic and version < _MODERN_OFFSET_COMMIT:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Members of consumer groups commit with version {_MODERN_OFFSET_COMMIT} or newer, not {version}.",
            )
        _check_member_epoch(member, epoch)

    def check_txn_commit(self, group: ConsumerGroup, *, member_id: str, epoch: int) -> None:
        """The same in a transaction, where an epoch that is out of date has the name that its clients know."""
        try:
            self.check_commit(group, member_id=member_id, epoch=epoch, version=_MODERN_OFFSET_COMMIT)
        except ApiError as error:
            if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                raise
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, error.detail) from error

    def check_fetch(self, group: ConsumerGroup, *, member_id: str | None, epoch: int) -> None:
        """Refuse an OffsetFetch that names a member which is unknown or in another epoch."""
        if not member_id and epoch < 0:
            return
        _check_member_epoch(self._member(group, member_id or ""), epoch)

    def describe(self, group: ConsumerGroup) -> consumer_group_describe.DescribedGroup:
        return description.describe(group, self._topics, self._options)

    def removal(self, group: ConsumerGroup) -> list[object]:
        """The tombstones of everything the group has."""
        group_id = group.group_id
        records: list[object] = []
        for member_id in group.members:
            records += member_removal(group_id, member_id)
        records += [TargetRemoved(group_id, id_) for id_ in group.targets if id_ not in group.members]
        records += [RegexRemoved(group_id, regex) for regex in group.regexes]
        return [*records, TargetEpochRemoved(group_id), ConsumerGroupRemoved(group_id)]

    def remove_members(
        self, group: ConsumerGroup, members: Sequence[Member], response: object, now_ms: int
    ) -> Result[object]:
        """Take members out; the group turns classic when only members that speak the classic protocol stay."""
        turned = self.downgrade(group, members, response, now_ms) if self.downgrade is not None else None
        return turned or remove_members(group, members, self._topics, response, now_ms)

    # Topic updates

    def topics_changed(self, names: Collection[str], now_ms: int) -> Result[object]:
        """Topics of these names were created, have grown or were deleted."""
        concerned = dict.fromkeys(sorted({group for name in names for group in self._index.groups_of(name)}))
        concerned.update(self._with_regex)
        records: list[object] = []
        timers: list[SetTimer] = []
        budget = UpdateBudget()
        for group_id in concerned:
            group = self.groups[group_id]
            if group.is_empty:
                continue
            draft = ConsumerDraft(group, self._topics, now_ms)
            if not budget.is_spent and refresh_some(draft, names, budget):
                budget.take_records(draft.records)
                records += draft.records
                continue
            if group.regexes:
                records.append(ExpressionsDue(group_id, group.expressions_due[0], len(group.regexes)))
            timers.append(SetTimer(("regex", group_id), NEXT_TURN_MS))
        return Result(records=records, timers=timers)

    def on_loaded(self, now_ms: int) -> Result[object]:
        """Give every member its full time again, and make up for what happened to topics in the meantime."""
        records: list[object] = []
        timers: list[SetTimer] = []
        with_regex = 0
        budget = UpdateBudget()
        for group in self.groups.values():
            if group.is_empty:
                continue
            if budget.is_spent:
                timers.append(SetTimer(("regex", group.group_id), NEXT_TURN_MS))
            else:
                draft = ConsumerDraft(group, self._topics, now_ms)
                raise_epoch_if_topics_changed(draft)
                budget.take_records(draft.records)
                records += draft.records
            for member in group.members.values():
                timers += self._timers_after_loading(group, member)
            if group.regexes:
                # Soon, since topics may have come in the meantime; one group after the other, since it takes a while.
                with_regex += 1
                timers.append(SetTimer(("regex", group.group_id), with_regex * _REGEX_SPREAD_MS))
            if group.epoch > group.target_epoch and len(group.members) > AT_ONCE_MEMBERS_MAX:
                records.append(AssignmentDue(group.group_id))
                timers.append(SetTimer(("assign", group.group_id), ASSIGN_DELAY_MS))
        return Result(records=records, timers=timers)

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[object]:
        """A session, a revocation, a wait for a target or the life of resolved expressions is over."""
        group = self.groups.get(key[1])
        if group is None or group.is_empty:
            return Result()
        if key[0] == "assign":
            if group.epoch == group.target_epoch:
                return Result()
            return Result(records=make_target(group, self._topics, self._options).records)
        if key[0] == "regex":
            return self._check_topics(group, key, now_ms)
        member = group.members.get(key[2])
        if member is None:
            return Result()
        if key[0] == "revoke" and not _is_awaited(member):
            return Result()
        return self.remove_members(group, [member], None, now_ms)

    def _check_topics(self, group: ConsumerGroup, key: TimerKey, now_ms: int) -> Result[object]:
        """Expressions were matched long ago, or an update of topics did not reach the group at once."""
        draft = ConsumerDraft(group, self._topics, now_ms)
        if group.regexes:
            is_more = refresh_all(draft)
            draft.set_timer(key, NEXT_TURN_MS if is_more else self._options.consumer_regex_refresh_ms)
        else:
            raise_epoch_if_topics_changed(draft)
        return draft.result()

    # The log

    def live_records(self) -> Iterator[list[GroupRecord]]:
        """What the log says about all groups, some at each step; groups may come and go between the steps."""
        for group_id in tuple(self.groups):
            group = self.groups.get(group_id)
            for step in group.live_records() if group is not None else ():
                if self.groups.get(group_id) is not group:
                    break  # it is gone, and one that has taken its name since is in the log behind it
                yield step

    def replay(self, record: ConsumerRecord) -> None:
        """Change the state by one record."""
        group = self.groups.get(record.group_id)
        if isinstance(record, ConsumerGroupRemoved):
            if group is not None:
                group.leave_index()
                del self.groups[record.group_id]
                self._with_regex.pop(record.group_id, None)
            return
        if group is None:
            if isinstance(record, _TOMBSTONES):
                return
            group = self.groups[record.group_id] = ConsumerGroup(record.group_id, self._index)
        group.replay(record)
        if isinstance(record, RegexResolved | RegexRemoved):
            if group.regexes:
                self._with_regex[group.group_id] = None
            else:
                self._with_regex.pop(group.group_id, None)

    def _leave(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Result[object]:
        member = leaving_member(group, request)
        if request.member_epoch == AWAY_EPOCH:
            return leave_for_a_while(group, member)
        response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        return self.remove_members(group, [member], response, now_ms)

    def _member(self, group: ConsumerGroup, member_id: str) -> Member:
        member = group.members.get(member_id)
        if member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id!r} is not a member of group {group.group_id}."
            )
        return member

    def _timers_after_loading(self, group: ConsumerGroup, member: Member) -> list[SetTimer]:
        session_timeout_ms = self._options.consumer_times(group.group_id).session_timeout_ms
        if member.stored.classic is not None:
            session_timeout_ms = member.stored.classic.session_timeout_ms
        timers = [SetTimer(("session", group.group_id, member.member_id), session_timeout_ms)]
        if member.current.state is MemberState.UNREVOKED_PARTITIONS and member.current.epoch != AWAY_EPOCH:
            key = ("revoke", group.group_id, member.member_id)
            timers.append(SetTimer(key, member.stored.rebalance_timeout_ms))
        return timers


_TOMBSTONES = (ConsumerMemberRemoved, CurrentRemoved, TargetRemoved, TargetEpochRemoved, RegexRemoved)
"""What is left of a group that is gone; nothing to do when the group is not known."""


def _is_awaited(member: Member) -> bool:
    """Whether the member still owes something that it had a rebalance timeout for."""
    owes_partitions = member.current.state is MemberState.UNREVOKED_PARTITIONS and member.current.epoch != AWAY_EPOCH
    return owes_partitions or member.awaited is not Awaited.NOTHING


def _check_member_epoch(member: Member, epoch: int) -> None:
    if epoch == member.current.epoch:
        return
    code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    raise ApiError(
        code, f"Member {member.member_id} has epoch {member.current.epoch}; the request came with epoch {epoch}."
    )
