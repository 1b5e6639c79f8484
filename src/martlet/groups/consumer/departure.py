"""How members leave a consumer group: by their own wish, for a while, or because their time has run out.

Rules: every way out ends in `remove_members`, which bumps the group epoch; the new target is made by the next heartbeat
of those who stay. A static member that leaves for a while keeps its partitions until its session runs out.
"""

from collections.abc import Sequence
from dataclasses import replace

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.result import CancelTimer, Result, TimerKey
from martlet.groups.consumer.consumer_group import AWAY_EPOCH, JOINING_EPOCH, ConsumerGroup, GroupRecord, Member
from martlet.groups.consumer.subscriptions import ConsumerDraft, raise_epoch, remove_if_unused
from martlet.groups.ports import TopicsView
from martlet.groups.records import (
    NO_PARTITIONS,
    ConsumerMemberRemoved,
    CurrentRemoved,
    TargetRemoved,
)
from martlet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Member:
    """The member that a heartbeat with epoch -1 or -2 speaks for."""
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown_member(group, request.member_id)
        return member
    return static_member(group, request.instance_id, request.member_id)


def static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """The static member of this instance id, if it is the one that asks."""
    member = group.static_member(instance_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id!r} is unknown.")
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id!r} was fenced by member {member.member_id}.",
        )
    return member


def unknown_member(group: ConsumerGroup, member_id: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id!r} is not a member of group {group.group_id}.")


def no_such_group(request: ConsumerGroupHeartbeatRequest) -> ApiError:
    """The refusal of a heartbeat that does not join, to a group that does not exist, or is not of this kind.

    A member that stays has slept until its group was forgotten or had turned classic. Kafka answers
    GROUP_ID_NOT_FOUND, which ends its client for good; as an unknown member it joins again.
    """
    code = ErrorCode.UNKNOWN_MEMBER_ID if request.member_epoch > JOINING_EPOCH else ErrorCode.GROUP_ID_NOT_FOUND
    return ApiError(code, f"There is no consumer group {request.group_id!r}.")


def leave_for_a_while(group: ConsumerGroup, member: Member) -> Result[object]:
    """Epoch -2: the session goes on running, and what the member had still to give back is given back."""
    away = replace(
        member.current,
        epoch=AWAY_EPOCH,
        previous_epoch=member.current.epoch,
        pending_revocation=NO_PARTITIONS,
    )
    return Result(
        ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=AWAY_EPOCH),
        [away],
        [CancelTimer(("revoke", group.group_id, member.member_id))],
    )


def member_removal(group_id: str, member_id: str) -> list[GroupRecord]:
    """The tombstones of one member."""
    return [
        CurrentRemoved(group_id, member_id),
        TargetRemoved(group_id, member_id),
        ConsumerMemberRemoved(group_id, member_id),
    ]


def member_timers(group_id: str, member_id: str) -> list[TimerKey]:
    """The timers that end with a member."""
    return [("session", group_id, member_id), ("revoke", group_id, member_id)]


def remove_members(
    group: ConsumerGroup, members: Sequence[Member], topics: TopicsView, response: object, now_ms: int
) -> Result[object]:
    """Remove these members and raise the group epoch."""
    draft = ConsumerDraft(group, topics, now_ms)
    for member in members:
        draft.record(*member_removal(group.group_id, member.member_id))
        draft.cancel_timers(*member_timers(group.group_id, member.member_id))
    for member in members:
        remove_if_unused(draft, member.stored.topic_regex)
    raise_epoch(draft)
    return draft.result(response)
