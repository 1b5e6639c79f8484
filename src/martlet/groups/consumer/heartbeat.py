"""A heartbeat of a member that joins or stays: the one request by which KIP-848 works.

The life of a heartbeat: find the member and compare its epoch; take over what it changed about itself; bump the group
epoch when that matters to others; make a new target when the epoch is newer than the target (see `target.py` for when);
lead the member one step towards its target; answer. A member to which nothing new happened causes no record, and costs
no more than its request is long.

Deliberate deviations from Kafka, all towards members that did nothing wrong: a known member that joins again (epoch 0)
is let in whatever its epoch was, since it says that it owns nothing; one whose group is gone is asked to join again; a
member that lost an answer may still own what it is just asked to give back; a static member may replace itself in a
full group.
"""

from dataclasses import dataclass, replace

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.coordinator.result import Result, SetTimer
from martlet.groups.consumer.consumer_group import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    AssignmentDue,
    ConsumerGroup,
    Member,
)
from martlet.groups.consumer.departure import member_removal, member_timers, static_member, unknown_member
from martlet.groups.consumer.reconciliation import reconcile
from martlet.groups.consumer.subscriptions import ConsumerDraft, raise_epoch, remove_if_unused, resolve_if_new
from martlet.groups.consumer.target import ASSIGN_DELAY_MS, AT_ONCE_MEMBERS_MAX, make_target
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.records import (
    NO_PARTITIONS,
    ConsumerMemberStored,
    CurrentAssigned,
    MemberState,
    Partitions,
    TargetAssigned,
)
from martlet.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


@dataclass(slots=True)
class MemberUpdate:
    """One member's step through the group: what it says now, and what follows from that.

    Shared by heartbeats and by JoinGroup of members that speak the classic protocol (`groups/migration`).
    """

    draft: ConsumerDraft
    options: GroupsOptions
    known: Member | None
    """The member as it was; None: it is new, or it takes a static member's place."""
    replaced: Member | None
    """The static member whose place it takes."""

    @property
    def before(self) -> Member | None:
        return self.known or self.replaced

    def run(self, after: ConsumerMemberStored, owned: Partitions | None) -> CurrentAssigned:
        """Lead the member to `after`; returns where it stands then."""
        self._store(after)
        target_epoch, target = self._assign(after.member_id)
        start, owners = self._start(after.member_id), self.draft.before.owners
        current = reconcile(start, target=target, target_epoch=target_epoch, owned=owned, owners=owners)
        if self.known is None or current is not self.known.current:
            self.draft.record(current)
            self._watch_revocation(after, current)
        return current

    def _store(self, after: ConsumerMemberStored) -> None:
        """Note what the member says, and raise the epoch when its subscription is new to the group."""
        draft, group = self.draft, self.draft.before
        before = None if self.before is None else self.before.stored
        if self.replaced is not None:
            draft.record(*member_removal(group.group_id, self.replaced.member_id))
            draft.cancel_timers(*member_timers(group.group_id, self.replaced.member_id))
        if before is None or after != before:
            draft.record(after)
        is_same = before is not None and same_subscription(before, after)
        # Without a hash, as after a conversion, the group's topics have not been checked yet.
        if is_same and group.metadata_hash != 0:
            return
        if not is_same:
            resolve_if_new(draft, after.topic_regex)
            remove_if_unused(draft, None if before is None else before.topic_regex)
        raise_epoch(draft)
        if draft.state.regexes and not group.regexes:
            draft.set_timer(("regex", group.group_id), self.options.consumer_regex_refresh_ms)

    def _assign(self, member_id: str) -> tuple[int, Partitions]:
        """The epoch and the partitions to lead the member to; makes a new target when it is time for one."""
        draft, group = self.draft, self.draft.state
        inherited = NO_PARTITIONS
        if self.replaced is not None:
            inherited = draft.before.target_of(self.replaced.member_id)
        if group.epoch > group.target_epoch:
            interval_ms = self.options.consumer_times(group.group_id).assignment_interval_ms
            may_be_at_once = interval_ms == 0 or group.target_epoch == 0
            if may_be_at_once and len(group.members) <= AT_ONCE_MEMBERS_MAX:
                target = make_target(group, draft.topics, self.options, {member_id: inherited})
                draft.record(*target.records)
                return group.epoch, target.partitions[member_id]
            if not group.assignment_due:
                draft.record(AssignmentDue(group.group_id))
                draft.set_timer(("assign", group.group_id), interval_ms or ASSIGN_DELAY_MS)
        if self.replaced is not None:
            draft.record(TargetAssigned(group.group_id, member_id, inherited))
        return group.target_epoch, group.target_of(member_id)

    def _start(self, member_id: str) -> CurrentAssigned:
        """Where the member stands before this step: one that comes back or takes a place inherits what was owned."""
        before = self.before
        if before is None:
            return CurrentAssigned(self.draft.state.group_id, member_id, 0, 0, MemberState.STABLE)
        if self.replaced is not None or before.current.epoch == AWAY_EPOCH:
            return replace(before.current, member_id=member_id, epoch=0, previous_epoch=0)
        return before.current

    def _watch_revocation(self, after: ConsumerMemberStored, current: CurrentAssigned) -> None:
        """A member that has to give something back has its rebalance timeout to do so."""
        key = ("revoke", after.group_id, after.member_id)
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            self.draft.set_timer(key, after.rebalance_timeout_ms)
        elif self.known is not None and self.known.current.state is MemberState.UNREVOKED_PARTITIONS:
            self.draft.cancel_timers(key)


def heartbeat(
    update: MemberUpdate, request: ConsumerGroupHeartbeatRequest, caller: Caller, member_id: str
) -> Result[object, ConsumerGroupHeartbeatResponse]:
    """Apply a checked heartbeat of a member that joins or stays."""
    draft = update.draft
    current = update.run(_stored_after(update, request, caller, member_id), owned_partitions(request))
    times = update.options.consumer_times(draft.state.group_id)
    draft.set_timer(("session", draft.state.group_id, member_id), times.session_timeout_ms)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=current.epoch,
        heartbeat_interval_ms=times.heartbeat_interval_ms,
    )
    if _is_full(request) or update.known is None or current.assigned != update.known.current.assigned:
        response.assignment = Assignment([TopicPartitions(*one) for one in by_topic(current.assigned)])
    return draft.result(response)


def is_usual(group: ConsumerGroup, member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> bool:
    """Whether this is the heartbeat that nearly all are: neither the member nor the group has anything new to say."""
    current = member.current
    return (
        current.state is MemberState.STABLE
        and request.member_epoch == current.epoch == group.target_epoch == group.epoch
        and group.metadata_hash != 0
        and _says_nothing_new(member.stored, request, caller)
    )


def usual_heartbeat(
    group: ConsumerGroup, member: Member, options: GroupsOptions
) -> Result[object, ConsumerGroupHeartbeatResponse]:
    """The same for a heartbeat that `is_usual`, without a draft: the session goes on."""
    times = options.consumer_times(group.group_id)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.current.epoch,
        heartbeat_interval_ms=times.heartbeat_interval_ms,
    )
    session = SetTimer(("session", group.group_id, member.member_id), times.session_timeout_ms)
    return Result(response, timers=(session,))


def find_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, options: GroupsOptions
) -> tuple[Member | None, Member | None]:
    """The member that speaks and the one it replaces, either of which there may not be; refuses the wrong ones."""
    joins = request.member_epoch == JOINING_EPOCH
    if request.instance_id is None:
        known = group.members.get(request.member_id)
        if known is None and not joins:
            raise unknown_member(group, request.member_id)
    elif joins:
        known = group.static_member(request.instance_id)
        if known is not None and known.member_id != request.member_id:
            if not known.is_classic and known.current.epoch != AWAY_EPOCH:
                raise ApiError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {request.member_id} with instance id {request.instance_id!r} cannot join the group "
                    f"because the instance id is owned by member {known.member_id}.",
                )
            return None, known
        known = known or group.members.get(request.member_id)
    else:
        known = static_member(group, request.instance_id, request.member_id)
    if known is not None:
        _check_epoch(known.current, request)
    elif len(group.members) >= options.consumer_max_size:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {options.consumer_max_size} members.",
        )
    return known, None


def _check_epoch(current: CurrentAssigned, request: ConsumerGroupHeartbeatRequest) -> None:
    epoch = request.member_epoch
    if epoch in (JOINING_EPOCH, current.epoch):
        return
    if epoch == current.previous_epoch and epoch < current.epoch:
        owned = owned_partitions(request)
        if owned is not None and owned <= current.assigned | current.pending_revocation:
            return  # The answer with the newer epoch got lost.
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member has epoch {epoch}, the group coordinator knows it with epoch {current.epoch}. "
        "It must abandon all its partitions and rejoin.",
    )


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """What the member says it owns; None when it does not say."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        (TopicId(topic.topic_id), partition) for topic in request.topic_partitions for partition in topic.partitions
    )


def by_topic(partitions: Partitions) -> list[tuple[TopicId, list[int]]]:
    """Partitions as messages carry them: gathered by topic, in order."""
    numbers: dict[TopicId, list[int]] = {}
    for topic_id, number in sorted(partitions):
        numbers.setdefault(topic_id, []).append(number)
    return list(numbers.items())


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member has said everything, as it does when it is unsure what the broker knows."""
    return request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _says_nothing_new(before: ConsumerMemberStored, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> bool:
    """Whether this is the usual heartbeat of a member to which nothing happened."""
    return (
        request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms == -1
        and request.server_assignor is None
        and request.rack_id is None
        and (request.instance_id is None or request.instance_id == before.instance_id)
        and caller.client_id == before.client_id
        and caller.client_host == before.client_host
        and before.classic is None
    )


def same_subscription(one: ConsumerMemberStored, other: ConsumerMemberStored) -> bool:
    return one.topic_names == other.topic_names and one.topic_regex == other.topic_regex


def _stored_after(
    update: MemberUpdate, request: ConsumerGroupHeartbeatRequest, caller: Caller, member_id: str
) -> ConsumerMemberStored:
    """What the member has said so far; fields it leaves out stay as they were."""
    before = update.before.stored if update.before is not None else None
    base = before or ConsumerMemberStored(request.group_id, member_id)
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    after = ConsumerMemberStored(
        base.group_id,
        member_id,
        base.instance_id if request.instance_id is None else request.instance_id,
        base.rack_id if request.rack_id is None else request.rack_id,
        caller.client_id,
        caller.client_host,
        base.topic_names if names is None else tuple(sorted(set(names))),
        # The empty expression takes a subscription by expression back.
        base.topic_regex if regex is None else regex or None,
        base.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        base.assignor if request.server_assignor is None else request.server_assignor,
    )
    return before if before is not None and after == before else after
