"""A classic group becomes a consumer group, because a KIP-848 member joins it.

How it works: the generation becomes the epoch, what members were assigned becomes what they own and shall own, and what
they said at their last join is kept, so that they can be answered in their own protocol. Those who wait for an answer
are sent back to join. The heartbeat that caused it is then carried out on the new group, all in one result.

A group that cannot be read (another protocol type, malformed metadata) refuses the heartbeat and stays as it is.
"""

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.coordinator.result import CancelTimer, Result, SetTimer
from martlet.groups.caller import Caller
from martlet.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from martlet.groups.classic.member import Member
from martlet.groups.classic.protocol import ClassicProtocol
from martlet.groups.consumer.group import JOINING_EPOCH, ConsumerGroup, GroupRecord
from martlet.groups.consumer.protocol import ConsumerProtocol
from martlet.groups.consumer.validation import check_heartbeat
from martlet.groups.migration.embedded import partitions_of
from martlet.groups.options import GroupsOptions
from martlet.groups.records import (
    ClassicProtocolStored,
    ConsumerGroupStored,
    ConsumerMemberStored,
    CurrentAssigned,
    MemberState,
    Partitions,
    TargetAssigned,
    TargetEpochStored,
)
from martlet.groups.topics import TopicsView
from martlet.wire.consumer_protocol import read_assignment, read_subscription
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class Upgrading:
    """Turns classic groups into consumer groups."""

    def __init__(
        self, options: GroupsOptions, topics: TopicsView, classic: ClassicProtocol, consumer: ConsumerProtocol
    ) -> None:
        self._options = options
        self._topics = topics
        self._classic = classic
        self._consumer = consumer

    def upgrade(
        self, group: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        """The group converted, and the member that asked for it joined."""
        check_heartbeat(request, caller.version, self._options)
        if request.member_epoch != JOINING_EPOCH:
            raise _refusal(group, "it is not a consumer group")
        converted = self._convert(group)
        draft = ConsumerGroup(group.group_id)
        for record in converted:
            draft.replay(record)
        joined = self._consumer.heartbeat_in(draft, request, caller, now_ms)
        answers, ended = self._classic.dismissal(group, ErrorCode.REBALANCE_IN_PROGRESS)
        timers: list[SetTimer | CancelTimer] = list(ended)
        timers += [
            SetTimer(("session", group.group_id, member_id), member.session_timeout_ms)
            for member_id, member in group.members.items()
        ]
        return Result(
            joined.response,
            [*self._classic.removal(group), *converted, *joined.records],
            [*timers, *joined.timers],
            [*answers, *joined.answers],
        )

    def _convert(self, group: ClassicGroup) -> list[GroupRecord]:
        """The records of the consumer group that this classic group becomes."""
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _refusal(group, "its members do not use the protocol of consumers")
        if len(group.members) > self._options.consumer_max_size:
            raise _refusal(group, f"it has more than {self._options.consumer_max_size} members")
        group_id = group.group_id
        # A group in its first rebalance has no generation yet, and an epoch of 0 would tell a member to join.
        epoch = max(group.generation, 1)
        members: list[GroupRecord] = []
        targets: list[GroupRecord] = []
        currents: list[GroupRecord] = []
        taken: set[tuple[TopicId, int]] = set()
        for member in group.members.values():
            members.append(_stored(group, member))
            partitions = self._assigned(group, member) - taken
            taken |= partitions
            targets.append(TargetAssigned(group_id, member.member_id, partitions))
            currents.append(CurrentAssigned(group_id, member.member_id, epoch, epoch, MemberState.STABLE, partitions))
        return [
            *members,
            ConsumerGroupStored(group_id, epoch),
            *targets,
            TargetEpochStored(group_id, epoch),
            *currents,
        ]

    def _assigned(self, group: ClassicGroup, member: Member) -> Partitions:
        assignment = read_assignment(group.assignments.get(member.member_id, b""))
        if assignment is None:
            raise _refusal(group, f"the assignment of member {member.member_id} cannot be read")
        return partitions_of(assignment.partitions, self._topics)


def _stored(group: ClassicGroup, member: Member) -> ConsumerMemberStored:
    metadata = member.metadata(group.protocol_name)
    if metadata is None and member.protocols:
        metadata = member.protocols[0][1]
    subscription = None if metadata is None else read_subscription(metadata)
    if subscription is None:
        raise _refusal(group, f"the subscription of member {member.member_id} cannot be read")
    return ConsumerMemberStored(
        group.group_id,
        member.member_id,
        member.instance_id,
        subscription.rack,
        member.client_id,
        member.client_host,
        tuple(sorted(set(subscription.topics))),
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicProtocolStored(member.session_timeout_ms, member.protocols),
    )


def _refusal(group: ClassicGroup, why: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id!r} cannot become a consumer group: {why}.")
