"""The way in to share groups: heartbeats, descriptions, timers and news of topics, and the state of all groups.

The life of a heartbeat: find the member and compare its epoch; take over what it changed about itself; raise the group
epoch when that matters to others; make a new assignment when the epoch is newer; give the member its part at once,
since members of share groups give nothing back first. Groups are small (200 members), so an assignment is made with the
heartbeat that calls for it.

Rules: methods read the state and return a `Result`; only `replay` changes anything.

Timers: ("session", group, member) since a member was last heard.

Invariants:
GSH-1 Epochs never go back; a member's assignment is that of the newest target it was told of.

Proved by: tests/unit/groups/share/test_share_protocol.py, tests/properties/test_share_group.py
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.coordinator.draft import Draft
from martlet.coordinator.result import Result, SetTimer, TimerKey
from martlet.groups.consumer.heartbeat import by_topic
from martlet.groups.consumer.subscriptions import hash_of_topics
from martlet.groups.ports import Caller, TopicsView
from martlet.groups.records import Partitions
from martlet.groups.share.assignor import assign
from martlet.groups.share.options import ShareOptions
from martlet.groups.share.records import (
    ShareCurrentAssigned,
    ShareCurrentRemoved,
    ShareGroupRemoved,
    ShareGroupStored,
    ShareMemberRemoved,
    ShareMemberStored,
    SharePartitionsRemoved,
    ShareRecord,
    ShareTargetAssigned,
    ShareTargetEpochRemoved,
    ShareTargetEpochStored,
    ShareTargetRemoved,
    TopicPartitions,
)
from martlet.groups.share.share_group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ShareGroup,
    ShareMember,
    partitions_record,
)
from martlet.groups.share.validation import check_heartbeat
from martlet.wire.messages import share_group_describe
from martlet.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from martlet.wire.messages.share_group_heartbeat import TopicPartitions as AssignedPartitions

ASSIGNOR_NAME: Final = "simple"
SHARE_PROTOCOL_TYPE: Final = "share"

ShareDraft = Draft[ShareGroup, ShareRecord]


class ShareProtocol:
    """All share groups of one shard."""

    def __init__(self, options: ShareOptions, topics: TopicsView) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self._options = options
        self._topics = topics

    # Requests

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Result[object, ShareGroupHeartbeatResponse]:
        """ShareGroupHeartbeat: join, stay or leave."""
        check_heartbeat(request, self._options)
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_epoch != JOINING_EPOCH:
                raise _no_such_group(request)
            group = ShareGroup(request.group_id)
        member = group.members.get(request.member_id)
        if member is None and request.member_epoch != JOINING_EPOCH:
            reason = f"Member {request.member_id!r} is not a member of group {group.group_id}."
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, reason)
        if request.member_epoch == LEAVING_EPOCH:
            response = ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVING_EPOCH)
            return self._removed(group, [request.member_id], response, now_ms)
        self._check_member(group, member, request)
        return self._stay(group, member, request, caller, now_ms)

    def _check_member(self, group: ShareGroup, member: ShareMember | None, request: ShareGroupHeartbeatRequest) -> None:
        if member is None:
            if len(group.members) >= self._options.max_size:
                reason = f"The share group has reached its maximum capacity of {self._options.max_size} members."
                raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
            return
        known = member.current
        if request.member_epoch not in (JOINING_EPOCH, known.epoch, known.previous_epoch):
            reason = f"The member has epoch {request.member_epoch}, the group coordinator knows it with {known.epoch}."
            raise ApiError(ErrorCode.FENCED_MEMBER_EPOCH, reason)

    def _stay(
        self,
        group: ShareGroup,
        member: ShareMember | None,
        request: ShareGroupHeartbeatRequest,
        caller: Caller,
        now_ms: int,
    ) -> Result[object, ShareGroupHeartbeatResponse]:
        draft: ShareDraft = Draft(group, now_ms)
        before = None if member is None else member.stored
        after = _stored_after(before, request, caller)
        if after != before:
            draft.record(after)
        if before is None or after.topic_names != before.topic_names or group.metadata_hash == 0:
            self._raise_epoch(draft)
        self._assign(draft)
        current = self._given(draft, request.member_id)
        if member is None or current != member.current:
            draft.record(current)
        times = self._options.times(group.group_id)
        draft.set_timer(("session", group.group_id, request.member_id), times.session_timeout_ms)
        response = ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=current.epoch, heartbeat_interval_ms=times.heartbeat_interval_ms
        )
        says_all = request.member_epoch == JOINING_EPOCH or request.subscribed_topic_names is not None
        has_lost_an_answer = member is not None and request.member_epoch != member.current.epoch
        if says_all or has_lost_an_answer or member is None or current.assigned != member.current.assigned:
            response.assignment = Assignment([AssignedPartitions(*one) for one in by_topic(current.assigned)])
        return draft.result(response)

    def describe(self, group: ShareGroup) -> share_group_describe.DescribedGroup:
        """The answer of ShareGroupDescribe."""
        return share_group_describe.DescribedGroup(
            group_id=group.group_id,
            group_state=self.state_name(group),
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=ASSIGNOR_NAME,
            members=[self._described(member) for member in group.members.values()],
        )

    @staticmethod
    def state_name(group: ShareGroup) -> str:
        return "Empty" if group.is_empty else "Stable"

    def removal(self, group: ShareGroup) -> list[object]:
        """The tombstones of everything the group has."""
        records: list[object] = []
        for member_id in dict.fromkeys((*group.members, *group.targets)):
            records += _member_removal(group.group_id, member_id)
        if group.known:
            records.append(SharePartitionsRemoved(group.group_id))
        return [*records, ShareTargetEpochRemoved(group.group_id), ShareGroupRemoved(group.group_id)]

    def know(self, group: ShareGroup, topics: Iterable[TopicPartitions]) -> list[object]:
        """The record by which the group may stand somewhere in these partitions as well; none when it may already."""
        known = _with_partitions(group.known, topics)
        return [] if known == group.known else [partitions_record(group.group_id, known)]

    def forget(self, group: ShareGroup, topic_ids: Collection[TopicId]) -> list[object]:
        """The record by which the group stands nowhere in these topics."""
        known = {topic_id: entry for topic_id, entry in group.known.items() if topic_id not in topic_ids}
        if len(known) == len(group.known):
            return []
        return [partitions_record(group.group_id, known) if known else SharePartitionsRemoved(group.group_id)]

    def may_fetch(self, group_id: str, member_id: str) -> bool:
        """Whether there is such a member."""
        group = self.groups.get(group_id)
        return group is not None and member_id in group.members

    # News, time and the log

    def topics_changed(self, names: Collection[str], now_ms: int) -> Result[object]:
        """Topics of these names were created, have grown or were deleted."""
        concerned = frozenset(names)
        records: list[object] = []
        for group in self.groups.values():
            if not group.is_empty and not concerned.isdisjoint(group.subscribed_topics()):
                records += self._refreshed(group, now_ms)
            gone = [
                entry.topic_id for entry in group.known.values() if entry.name in concerned and self._is_gone(entry)
            ]
            records += self.forget(group, gone)
        return Result(records=records)

    def on_loaded(self, now_ms: int) -> Result[object]:
        """Give every member its full time again, and make up for what happened to topics in the meantime."""
        records: list[object] = []
        timers: list[SetTimer] = []
        for group in self.groups.values():
            records += self.forget(group, [entry.topic_id for entry in group.known.values() if self._is_gone(entry)])
            if group.is_empty:
                continue
            records += self._refreshed(group, now_ms)
            timeout_ms = self._options.times(group.group_id).session_timeout_ms
            timers += [SetTimer(("session", group.group_id, member_id), timeout_ms) for member_id in group.members]
        return Result(records=records, timers=timers)

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[object]:
        """A member was not heard for its session's time."""
        group = self.groups.get(key[1])
        if group is None or key[2] not in group.members:
            return Result()
        return self._removed(group, [key[2]], None, now_ms)

    def live_records(self) -> Iterator[list[ShareRecord]]:
        """What the log says about all groups, one at each step; groups may come and go between the steps."""
        for group_id in tuple(self.groups):
            group = self.groups.get(group_id)
            if group is not None:
                yield list(group.live_records())

    def replay(self, record: ShareRecord) -> None:
        """Change the state by one record."""
        group = self.groups.get(record.group_id)
        if group is None:
            if isinstance(record, _TOMBSTONES):
                return
            group = self.groups[record.group_id] = ShareGroup(record.group_id)
        if isinstance(record, ShareGroupRemoved):
            del self.groups[record.group_id]
        else:
            group.replay(record)

    # Steps

    def _is_gone(self, entry: TopicPartitions) -> bool:
        return self._topics.topic_by_id(entry.topic_id) is None

    def _raise_epoch(self, draft: ShareDraft) -> None:
        known = hash_of_topics(draft.state.subscribed_topics(), self._topics)
        draft.record(ShareGroupStored(draft.state.group_id, draft.state.epoch + 1, known))

    def _refreshed(self, group: ShareGroup, now_ms: int) -> Sequence[object]:
        """A higher epoch, if the topics of the group are not what they were; members learn it by their heartbeats."""
        draft: ShareDraft = Draft(group, now_ms)
        if hash_of_topics(group.subscribed_topics(), self._topics) != group.metadata_hash:
            self._raise_epoch(draft)
        return draft.records

    def _assign(self, draft: ShareDraft) -> None:
        """Make the assignment of the newest epoch, if it is not made yet."""
        group = draft.state
        if group.epoch == group.target_epoch:
            return
        names = group.subscribed_topics()
        views = {name: view for name in sorted(names) if (view := self._topics.topic(name)) is not None}
        subscriptions = {member_id: member.stored.topic_names for member_id, member in group.members.items()}
        for member_id, partitions in assign(subscriptions, views, group.targets).items():
            if partitions != group.target_of(member_id):
                draft.record(ShareTargetAssigned(group.group_id, member_id, partitions))
        shared = [TopicPartitions(view.id, view.name, tuple(range(view.partition_count))) for view in views.values()]
        known = _with_partitions(group.known, shared)
        if known != group.known:
            draft.record(partitions_record(group.group_id, known))
        draft.record(ShareTargetEpochStored(group.group_id, group.epoch))

    def _given(self, draft: ShareDraft, member_id: str) -> ShareCurrentAssigned:
        """Where the member stands when it has its part of the newest assignment."""
        group = draft.state
        current = group.members[member_id].current
        target = group.target_of(member_id)
        if current.epoch == group.target_epoch and current.assigned == target:
            return current
        return replace(current, epoch=group.target_epoch, previous_epoch=current.epoch, assigned=target)

    def _removed(
        self, group: ShareGroup, member_ids: Sequence[str], response: ShareGroupHeartbeatResponse | None, now_ms: int
    ) -> Result[object, ShareGroupHeartbeatResponse]:
        """Take members out; the others get their parts with their next heartbeats."""
        draft: ShareDraft = Draft(group, now_ms)
        for member_id in member_ids:
            draft.record(*_member_removal(group.group_id, member_id))
            draft.cancel_timers(("session", group.group_id, member_id))
        self._raise_epoch(draft)
        return draft.result(response)

    def _described(self, member: ShareMember) -> share_group_describe.Member:
        stored = member.stored
        return share_group_describe.Member(
            member_id=stored.member_id,
            rack_id=stored.rack_id,
            member_epoch=member.current.epoch,
            client_id=stored.client_id,
            client_host=stored.client_host,
            subscribed_topic_names=list(stored.topic_names),
            assignment=share_group_describe.Assignment(self._named(member.current.assigned)),
        )

    def _named(self, partitions: Partitions) -> list[share_group_describe.TopicPartitions]:
        named = ((self._topics.topic_by_id(topic_id), numbers) for topic_id, numbers in by_topic(partitions))
        return [share_group_describe.TopicPartitions(view.id, view.name, numbers) for view, numbers in named if view]


_TOMBSTONES = (
    ShareMemberRemoved,
    ShareCurrentRemoved,
    ShareTargetRemoved,
    ShareTargetEpochRemoved,
    SharePartitionsRemoved,
    ShareGroupRemoved,
)


def _with_partitions(
    known: Mapping[TopicId, TopicPartitions], topics: Iterable[TopicPartitions]
) -> dict[TopicId, TopicPartitions]:
    united = dict(known)
    for entry in topics:
        before = united[entry.topic_id].partitions if entry.topic_id in united else ()
        united[entry.topic_id] = entry._replace(partitions=tuple(sorted({*before, *entry.partitions})))
    return united


def _member_removal(group_id: str, member_id: str) -> list[ShareRecord]:
    return [
        ShareCurrentRemoved(group_id, member_id),
        ShareTargetRemoved(group_id, member_id),
        ShareMemberRemoved(group_id, member_id),
    ]


def _stored_after(
    before: ShareMemberStored | None, request: ShareGroupHeartbeatRequest, caller: Caller
) -> ShareMemberStored:
    """What the member has said so far; fields it leaves out stay as they were."""
    base = before or ShareMemberStored(request.group_id, request.member_id)
    names = request.subscribed_topic_names
    return replace(
        base,
        rack_id=base.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topic_names=base.topic_names if names is None else tuple(sorted(set(names))),
    )


def _no_such_group(request: ShareGroupHeartbeatRequest) -> ApiError:
    """The refusal of a heartbeat that does not join, to a group that does not exist.

    A member that stays has slept until its group was forgotten. GROUP_ID_NOT_FOUND would end its client for good; as an
    unknown member it joins again.
    """
    code = ErrorCode.UNKNOWN_MEMBER_ID if request.member_epoch > JOINING_EPOCH else ErrorCode.GROUP_ID_NOT_FOUND
    return ApiError(code, f"There is no share group {request.group_id!r}.")
