"""Members of a consumer group that speak the classic protocol: their requests, played on the consumer group.

How it works: JoinGroup does what a full heartbeat does and is answered at once, with the member epoch as generation and
no leader, since the broker assigns. SyncGroup hands out what the member has been assigned. Heartbeat says 27 when the
member should join again: the group has a new epoch, it has partitions to give back, or some it waited for are free.
An eager member owns nothing when it joins; a cooperative one says what it owns, and gives back in a round of its own.

Each time a member has to act (join after a 27, sync after a join) it has its rebalance timeout to do so.

Proved by: tests/unit/groups/migration/test_migration.py, tests/scenarios/migration
"""

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.randomness import IdSource
from martlet.coordinator.result import CancelTimer, Result, SetTimer
from martlet.groups.classic.checks import check_group_id, check_metadata, check_protocol_named, check_session_timeout
from martlet.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE
from martlet.groups.classic.leave import identities, response_of
from martlet.groups.classic.member import Protocols, protocols_of
from martlet.groups.consumer.consumer_group import Awaited, ClassicMemberAwaited, ConsumerGroup, Member
from martlet.groups.consumer.consumer_group_protocol import ConsumerProtocol
from martlet.groups.consumer.departure import static_member, unknown_member
from martlet.groups.consumer.heartbeat import MemberUpdate
from martlet.groups.consumer.reconciliation import waits_for_others
from martlet.groups.consumer.subscriptions import ConsumerDraft
from martlet.groups.consumer.validation import check_member_id
from martlet.groups.migration.conversion import Conversion, assignment_bytes, partitions_of
from martlet.groups.ports import Caller, GroupsOptions, TopicsView
from martlet.groups.records import ClassicProtocolStored, ConsumerMemberStored, MemberState
from martlet.wire.consumer_protocol import Subscription, read_subscription
from martlet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from martlet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_MEMBER_ID_REQUIRED_SINCE = 4


class ClassicMembers:
    """The classic requests on consumer groups of one shard."""

    def __init__(
        self,
        options: GroupsOptions,
        topics: TopicsView,
        ids: IdSource,
        consumer: ConsumerProtocol,
        conversion: Conversion,
    ) -> None:
        self._options = options
        self._topics = topics
        self._ids = ids
        self._consumer = consumer
        self._conversion = conversion

    def join_group(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        """Take in what the member says and answer at once."""
        check_group_id(request.group_id, self._options)
        check_session_timeout(request.session_timeout_ms, self._options)
        protocols = protocols_of(request.protocols)
        check_metadata(request, protocols, self._options)
        check_member_id(request.member_id)
        self._check_room(group, request)
        _check_protocols(group, request, protocols)
        is_dynamic = request.group_instance_id is None
        if not request.member_id and is_dynamic and caller.version >= _MEMBER_ID_REQUIRED_SINCE:
            return Result(
                JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=self._new_id(request, caller))
            )
        subscription = read_subscription(protocols[0][1])
        if subscription is None:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"The metadata of protocol {protocols[0][0]!r} is not the subscription of a consumer.",
            )
        known, replaced = _find(group, request)
        member_id = request.member_id or self._new_id(request, caller)
        draft = ConsumerDraft(group, self._topics, now_ms)
        after = _stored(request, caller, member_id, subscription)
        update = MemberUpdate(draft, self._options, known, replaced)
        current = update.run(after, partitions_of(subscription.owned, self._topics))
        draft.record(ClassicMemberAwaited(group.group_id, member_id, Awaited.SYNC))
        draft.set_timer(("session", group.group_id, member_id), request.session_timeout_ms)
        draft.set_timer(("revoke", group.group_id, member_id), after.rebalance_timeout_ms)
        response = JoinGroupResponse(
            generation_id=current.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocols[0][0],
            member_id=member_id,
        )
        if replaced is not None:
            turned = self._conversion.replace_last(group, replaced, (after, current), response, now_ms)
            if turned is not None:
                return turned
        return draft.result(response)

    def sync_group(
        self, group: ConsumerGroup, request: SyncGroupRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        """Hand out what the member has been assigned."""
        check_protocol_named(request, caller.version)
        member, spoken = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        _check_same_protocol(spoken, request)
        if member.current.epoch < group.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            return self._send_back(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        timers: list[SetTimer | CancelTimer] = [
            SetTimer(("session", group.group_id, member.member_id), spoken.session_timeout_ms)
        ]
        if member.current.state is not MemberState.UNREVOKED_PARTITIONS:
            timers.append(CancelTimer(("revoke", group.group_id, member.member_id)))
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(member.current.assigned, spoken, self._topics),
        )
        events = [ClassicMemberAwaited(group.group_id, member.member_id, Awaited.NOTHING)]
        return Result(response, events if member.awaited is not Awaited.NOTHING else [], timers)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, caller: Caller, now_ms: int) -> Result[object]:
        """Note that the member lives, and say so when it should join again."""
        member, spoken = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        session = SetTimer(("session", group.group_id, member.member_id), spoken.session_timeout_ms)
        if not _should_rejoin(group, member):
            return Result(HeartbeatResponse(), timers=[session])
        sent_back = self._send_back(member, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        return Result(sent_back.response, sent_back.records, [session, *sent_back.timers])

    def leave_group(
        self, group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        """Members leave, each with an answer of its own."""
        check_group_id(request.group_id, self._options)
        leaving: dict[str, Member] = {}
        outcomes: list[MemberResponse] = []
        for identity in identities(request, caller.version):
            code = ErrorCode.NONE
            try:
                member = _leaving(group, identity)
                if member.member_id in leaving:
                    raise unknown_member(group, member.member_id)
                leaving[member.member_id] = member
            except ApiError as error:
                code = error.code
            outcomes.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
        response = response_of(outcomes, caller.version)
        if not leaving:
            return Result(response)
        return self._consumer.remove_members(group, list(leaving.values()), response, now_ms)

    def _send_back(self, member: Member, response: object) -> Result[object]:
        """The member must join again, within its rebalance timeout since the first answer that said so."""
        if member.awaited is not Awaited.NOTHING:
            return Result(response)
        group_id, member_id = member.stored.group_id, member.member_id
        return Result(
            response,
            [ClassicMemberAwaited(group_id, member_id, Awaited.JOIN)],
            [SetTimer(("revoke", group_id, member_id), member.stored.rebalance_timeout_ms)],
        )

    def _check_room(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        is_known = request.member_id in group.members or request.group_instance_id in group.instances
        if not is_known and len(group.members) >= self._options.consumer_max_size:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self._options.consumer_max_size} members.",
            )

    def _new_id(self, request: JoinGroupRequest, caller: Caller) -> str:
        return f"{(request.group_instance_id or caller.client_id)[:255]}-{self._ids.text_id()}"


def _find(group: ConsumerGroup, request: JoinGroupRequest) -> tuple[Member | None, Member | None]:
    """The member that joins and the one whose place it takes."""
    if request.group_instance_id is None:
        return group.members.get(request.member_id), None
    if request.member_id:
        return static_member(group, request.group_instance_id, request.member_id), None
    return None, group.static_member(request.group_instance_id)


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    if identity.group_instance_id is not None and not identity.member_id:
        # An administrator removes a static member by its instance id.
        member = group.static_member(identity.group_instance_id)
        if member is None or not member.is_classic:
            raise unknown_member(group, identity.group_instance_id)
        return member
    return _classic_member(group, identity.member_id, identity.group_instance_id)[0]


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[Member, ClassicProtocolStored]:
    if instance_id is not None:
        member: Member | None = static_member(group, instance_id, member_id)
    else:
        member = group.members.get(member_id)
    if member is None or member.stored.classic is None:
        raise unknown_member(group, member_id)
    return member, member.stored.classic


def _check_generation(member: Member, generation: int) -> None:
    if member.current.epoch != generation:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"Member {member.member_id} is at generation {member.current.epoch}, not {generation}.",
        )


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest, protocols: Protocols) -> None:
    """A classic member must be able to go on in a classic group, with all the other classic members."""
    itself = group.members.get(request.member_id)
    own = {name for name, _ in itself.stored.classic.protocols} if itself and itself.stored.classic else set()
    others = group.classic_count - bool(own)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
        group.classic_protocols.get(name, 0) - (name in own) == others for name, _ in protocols
    ):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Group {group.group_id!r} has no protocol in common with the member's, of type {request.protocol_type!r}.",
        )


def _check_same_protocol(spoken: ClassicProtocolStored, request: SyncGroupRequest) -> None:
    expected = (CONSUMER_PROTOCOL_TYPE, spoken.protocols[0][0])
    for asked, chosen in zip((request.protocol_type, request.protocol_name), expected, strict=True):
        if asked is not None and asked != chosen:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The join was answered with {chosen!r}, not {asked!r}."
            )


def _should_rejoin(group: ConsumerGroup, member: Member) -> bool:
    current = member.current
    if current.epoch < group.epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    lacks_some = current.state is MemberState.UNRELEASED_PARTITIONS
    return lacks_some and not waits_for_others(current, group.target_of(member.member_id), group.owners)


def _stored(
    request: JoinGroupRequest, caller: Caller, member_id: str, subscription: Subscription
) -> ConsumerMemberStored:
    return ConsumerMemberStored(
        request.group_id,
        member_id,
        request.group_instance_id,
        subscription.rack,
        caller.client_id,
        caller.client_host,
        tuple(sorted(set(subscription.topics))),
        None,
        request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms,
        None,
        ClassicProtocolStored(request.session_timeout_ms, protocols_of(request.protocols)),
    )
