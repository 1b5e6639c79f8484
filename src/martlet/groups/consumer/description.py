"""The description of a consumer group for tools: its state, its members, what they own and what they shall own."""

from martlet.groups.consumer.consumer_group import ConsumerGroup, Member
from martlet.groups.consumer.heartbeat import by_topic
from martlet.groups.consumer.target import preferred_assignor
from martlet.groups.ports import GroupsOptions, TopicsView
from martlet.groups.records import Partitions
from martlet.wire.messages import consumer_group_describe

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def state_name(group: ConsumerGroup) -> str:
    """Empty, Assigning (the target is behind), Reconciling (members are) or Stable."""
    if group.is_empty:
        return "Empty"
    if group.epoch > group.target_epoch:
        return "Assigning"
    return "Stable" if group.has_reconciled else "Reconciling"


def describe(
    group: ConsumerGroup, topics: TopicsView, options: GroupsOptions
) -> consumer_group_describe.DescribedGroup:
    """The answer of ConsumerGroupDescribe."""
    return consumer_group_describe.DescribedGroup(
        group_id=group.group_id,
        group_state=state_name(group),
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group.assignor_votes, options),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def numbers_by_name(partitions: Partitions, topics: TopicsView) -> dict[str, list[int]]:
    """Partition numbers by topic name; topics that are gone are left out."""
    named: dict[str, list[int]] = {}
    for topic_id, numbers in by_topic(partitions):
        view = topics.topic_by_id(topic_id)
        if view is not None:
            named[view.name] = numbers
    return named


def _member(group: ConsumerGroup, member: Member, topics: TopicsView) -> consumer_group_describe.Member:
    stored = member.stored
    return consumer_group_describe.Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        member_epoch=member.current.epoch,
        client_id=stored.client_id,
        client_host=stored.client_host,
        subscribed_topic_names=list(stored.topic_names),
        subscribed_topic_regex=stored.topic_regex,
        assignment=_assignment(member.current.assigned, topics),
        target_assignment=_assignment(group.target_of(stored.member_id), topics),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(partitions: Partitions, topics: TopicsView) -> consumer_group_describe.Assignment:
    listed: list[consumer_group_describe.TopicPartitions] = []
    for topic_id, numbers in by_topic(partitions):
        view = topics.topic_by_id(topic_id)
        if view is not None:
            listed.append(consumer_group_describe.TopicPartitions(topic_id, view.name, numbers))
    return consumer_group_describe.Assignment(listed)
