"""What a described group looks like whichever protocol its members speak, made from either API's answer. No I/O."""

from typing import NamedTuple

from martlet.base.ids import TopicPartition
from martlet.wire import consumer_protocol
from martlet.wire.messages import consumer_group_describe, describe_groups


class MemberIdentity(NamedTuple):
    """As whom a member of a consumer group speaks of offsets."""

    member_id: str
    epoch: int
    instance_id: str | None = None


class GroupMember(NamedTuple):
    """One member; `epoch` and `target` are known of consumer groups only."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack: str | None
    topics: tuple[str, ...]
    topic_regex: str | None
    epoch: int | None
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] | None


class GroupDescription(NamedTuple):
    """One group; epochs are known of consumer groups only, the generation of classic ones is not reported."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    epoch: int | None
    assignment_epoch: int | None
    members: tuple[GroupMember, ...]
    coordinator: int = -1

    def owners(self) -> dict[TopicPartition, GroupMember]:
        """Who reads each partition."""
        return {partition: member for member in self.members for partition in member.assigned}


def described_consumer_group(group: consumer_group_describe.DescribedGroup) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            _host(member.client_host),
            member.rack_id,
            tuple(member.subscribed_topic_names),
            member.subscribed_topic_regex or None,
            member.member_epoch,
            _partitions(member.assignment),
            _partitions(member.target_assignment),
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    )
    return GroupDescription(
        group.group_id,
        "consumer",
        group.group_state,
        "consumer",
        group.assignor_name,
        group.group_epoch,
        group.assignment_epoch,
        members,
    )


def described_classic_group(group: describe_groups.DescribedGroup) -> GroupDescription:
    members = tuple(
        _classic_member(member, group.protocol_type) for member in sorted(group.members, key=lambda m: m.member_id)
    )
    return GroupDescription(
        group.group_id, "classic", group.group_state, group.protocol_type, group.protocol_data, None, None, members
    )


def _classic_member(member: describe_groups.DescribedGroupMember, protocol_type: str) -> GroupMember:
    """What the members of a classic group tell each other is opaque unless they are consumers."""
    subscription = assignment = None
    if protocol_type == "consumer":
        subscription = consumer_protocol.read_subscription(member.member_metadata)
        assignment = consumer_protocol.read_assignment(member.member_assignment)
    assigned = assignment.partitions if assignment is not None else {}
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        _host(member.client_host),
        subscription.rack if subscription is not None else None,
        subscription.topics if subscription is not None else (),
        None,
        None,
        tuple(sorted(TopicPartition(topic, number) for topic, numbers in assigned.items() for number in numbers)),
        None,
    )


def _host(announced: str) -> str:
    """Brokers write a host as Java does: with its name, if any, before a slash."""
    return announced.removeprefix("/")


def _partitions(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(entry.topic_name, number)
            for entry in assignment.topic_partitions
            for number in entry.partitions
        )
    )
