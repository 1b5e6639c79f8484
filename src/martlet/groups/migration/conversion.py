"""How a group changes its protocol: to consumer when a KIP-848 member joins, to classic when the last one goes.

Both directions are one result that removes the group of one kind and creates that of the other, so a conversion happens
whole or not at all. The two protocols do not know each other; only this package knows both.

Classic to consumer: the generation becomes the epoch, and each member's assignment becomes both what it owns and its
target. What members said at their last join is kept, so that they can be answered in their own protocol. Members that
wait for an answer are sent back to join. A group that cannot be read (another protocol type, malformed metadata)
refuses the heartbeat and stays as it is.

Consumer to classic: the epoch becomes the generation, and the members that stay are sent back to join at once, so that
the partitions of the one that left find an owner. The record names no leader: the rebalance chooses one.

Proved by: tests/unit/groups/migration/test_migration.py, tests/properties/test_migration.py, tests/scenarios/migration
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.coordinator.result import CancelTimer, Result, SetTimer
from martlet.groups.classic.checks import GROUP_BYTES_MAX
from martlet.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from martlet.groups.classic.classic_protocol import ClassicProtocol, dismissal
from martlet.groups.classic.member import Member as ClassicMember
from martlet.groups.classic.member import Protocols, protocols_bytes
from martlet.groups.consumer.consumer_group import JOINING_EPOCH, ConsumerGroup, GroupRecord, Member
from martlet.groups.consumer.consumer_group_protocol import ConsumerProtocol
from martlet.groups.consumer.departure import member_timers
from martlet.groups.consumer.description import numbers_by_name
from martlet.groups.consumer.validation import check_heartbeat
from martlet.groups.ports import Caller, GroupsOptions, TopicsView
from martlet.groups.records import (
    ClassicGroupStored,
    ClassicMemberStored,
    ClassicProtocolStored,
    ConsumerGroupStored,
    ConsumerMemberStored,
    CurrentAssigned,
    MemberState,
    Partitions,
    TargetAssigned,
    TargetEpochStored,
)
from martlet.wire.consumer_protocol import read_assignment, read_subscription, write_assignment
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MemberRecords: TypeAlias = tuple[ConsumerMemberStored, CurrentAssigned]
"""What a member subscribes to and what it owns."""


class Conversion:
    """Converts the groups of one shard between the two protocols."""

    def __init__(
        self, options: GroupsOptions, topics: TopicsView, classic: ClassicProtocol, consumer: ConsumerProtocol
    ) -> None:
        self._options = options
        self._topics = topics
        self._classic = classic
        self._consumer = consumer
        consumer.downgrade = self.downgrade

    # Classic to consumer

    def upgrade(
        self, group: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        """The group converted, and the heartbeat of the member that joins it answered."""
        check_heartbeat(request, caller.version, self._options)
        if request.member_epoch != JOINING_EPOCH:
            raise _refusal(group, "it is not a consumer group")
        converted = self._as_consumer_group(group)
        draft = ConsumerGroup(group.group_id)
        for record in converted:
            draft.replay(record)
        joined = self._consumer.heartbeat_in(draft, request, caller, now_ms)
        answers, ended = dismissal(group, ErrorCode.REBALANCE_IN_PROGRESS)
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

    def _as_consumer_group(self, group: ClassicGroup) -> list[GroupRecord]:
        """The records of the consumer group that this classic group becomes."""
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _refusal(group, "its members do not use the protocol of consumers")
        if len(group.members) > self._options.consumer_max_size:
            raise _refusal(group, f"it has more than {self._options.consumer_max_size} members")
        group_id = group.group_id
        # A group in its first rebalance has no generation yet, and an epoch of 0 would make a member join.
        epoch = max(group.generation, 1)
        members: list[GroupRecord] = []
        targets: list[GroupRecord] = []
        currents: list[GroupRecord] = []
        taken: set[tuple[TopicId, int]] = set()
        for member in group.members.values():
            members.append(_as_consumer_member(group, member))
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

    def _assigned(self, group: ClassicGroup, member: ClassicMember) -> Partitions:
        assignment = read_assignment(group.assignments.get(member.member_id, b""))
        if assignment is None:
            raise _refusal(group, f"the assignment of member {member.member_id} cannot be read")
        return partitions_of(assignment.partitions, self._topics)

    # Consumer to classic

    def downgrade(
        self, group: ConsumerGroup, leaving: Sequence[Member], response: object, now_ms: int
    ) -> Result[object] | None:
        """The group without the leaving members as a classic one; None when it stays a consumer group."""
        left = len(group.members) - len(leaving)
        classic_left = group.classic_count - sum(member.is_classic for member in leaving)
        if left == 0 or classic_left < left:
            return None
        gone = {member.member_id for member in leaving}
        stay = [(member.stored, member.current) for member in group.members.values() if member.member_id not in gone]
        return self._as_classic_group(group, stay, response, now_ms)

    def replace_last(
        self, group: ConsumerGroup, replaced: Member, joined: MemberRecords, response: object, now_ms: int
    ) -> Result[object] | None:
        """The same when a static member that speaks the classic protocol replaces the last KIP-848 member."""
        if replaced.is_classic or group.classic_count < len(group.members) - 1:
            return None
        stay = [(one.stored, one.current) for one in group.members.values() if one is not replaced]
        return self._as_classic_group(group, [*stay, joined], response, now_ms)

    def _as_classic_group(
        self, group: ConsumerGroup, stay: Sequence[MemberRecords], response: object, now_ms: int
    ) -> Result[object] | None:
        spoken = {stored.member_id: stored.classic.protocols for stored, _ in stay if stored.classic is not None}
        protocol = _common_protocol(list(spoken.values()))
        size = sum(map(protocols_bytes, spoken.values()))
        if protocol is None or len(stay) > self._options.group_max_size or size > GROUP_BYTES_MAX:
            return None
        record = ClassicGroupStored(
            group.group_id,
            "consumer",
            max(group.epoch, *(current.epoch for _, current in stay)),
            protocol,
            None,
            now_ms,
            tuple(self._as_classic_member(stored, current, protocol) for stored, current in stay),
        )
        adopted = self._classic.adoption(record, spoken, now_ms, rebalance=True)
        return Result(
            response,
            [*self._consumer.removal(group), *adopted.records],
            [*_ended_timers(group), *adopted.timers],
            adopted.answers,
        )

    def _as_classic_member(
        self, stored: ConsumerMemberStored, current: CurrentAssigned, protocol: str
    ) -> ClassicMemberStored:
        spoken = stored.classic or ClassicProtocolStored(0, ())
        return ClassicMemberStored(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            spoken.session_timeout_ms,
            dict(spoken.protocols)[protocol],
            assignment_bytes(current.assigned, spoken, self._topics),
        )


def partitions_of(named: Mapping[str, Sequence[int]], topics: TopicsView) -> Partitions:
    """By topic id, from what classic members write by topic name; partitions that do not exist are left out."""
    found = []
    for name, numbers in named.items():
        view = topics.topic(name)
        if view is not None:
            found += [(view.id, number) for number in numbers if 0 <= number < view.partition_count]
    return frozenset(found)


def assignment_bytes(assigned: Partitions, protocol: ClassicProtocolStored, topics: TopicsView) -> bytes:
    """What a member is assigned, in the version in which it has written its own subscription."""
    subscription = read_subscription(protocol.protocols[0][1]) if protocol.protocols else None
    version = 0 if subscription is None else subscription.version
    return write_assignment(version, numbers_by_name(assigned, topics))


def _as_consumer_member(group: ClassicGroup, member: ClassicMember) -> ConsumerMemberStored:
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


def _common_protocol(spoken: Sequence[Protocols]) -> str | None:
    """The protocol that all members speak and the first member prefers."""
    common = set.intersection(*({name for name, _ in one} for one in spoken))
    return next((name for name, _ in spoken[0] if name in common), None)


def _ended_timers(group: ConsumerGroup) -> list[SetTimer | CancelTimer]:
    ended: list[SetTimer | CancelTimer] = [
        CancelTimer(("assign", group.group_id)),
        CancelTimer(("regex", group.group_id)),
    ]
    for member_id in group.members:
        ended += map(CancelTimer, member_timers(group.group_id, member_id))
    return ended
