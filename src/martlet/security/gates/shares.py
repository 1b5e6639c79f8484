"""Gates of the APIs of share groups: membership, descriptions, where groups stand, and the brokers' own words on that.

Proved by: tests/unit/security/test_gates.py, tests/unit/security/test_filtering_gates.py
"""

from dataclasses import replace
from typing import Any, Final

from martlet.base.errors import ErrorCode
from martlet.security.gates.gate import GROUP, TOPIC, Admission, Asker, on_cluster, one_by_one, split
from martlet.security.gates.groups import finish_groups, shown_operations
from martlet.security.rules import Operation
from martlet.wire.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state_summary,
    share_group_describe,
)
from martlet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

_GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def share_group_heartbeat(request: ShareGroupHeartbeatRequest, asker: Asker) -> Admission:
    """READ of the group, DESCRIBE of every topic subscribed to."""
    code = None
    if not asker.may(Operation.READ, GROUP, request.group_id):
        code = _GROUP_REFUSED
    elif not all(asker.may(Operation.DESCRIBE, TOPIC, name) for name in request.subscribed_topic_names or ()):
        code = _TOPIC_REFUSED
    return Admission(request) if code is None else Admission(answer=ShareGroupHeartbeatResponse(error_code=code))


_share_group_describe: Final = one_by_one(
    "group_ids",
    "groups",
    share_group_describe.ShareGroupDescribeResponse,
    lambda name, asker: asker.may(Operation.DESCRIBE, GROUP, name),
    lambda name: share_group_describe.DescribedGroup(_GROUP_REFUSED, group_id=name),
)


def describe_share_groups(request: Any, asker: Asker) -> Admission:
    """DESCRIBE of each group and of every topic that its members have."""
    return finish_groups(
        _share_group_describe(request, asker),
        lambda group: shown_operations(_without_hidden_topics(group, asker), asker),
    )


def _without_hidden_topics(group: share_group_describe.DescribedGroup, asker: Asker) -> Any:
    topics = {
        topic
        for member in group.members
        for topic in (
            *member.subscribed_topic_names,
            *(part.topic_name for part in member.assignment.topic_partitions),
        )
    }
    if all(asker.sees_topic(topic) for topic in topics):
        return group
    return share_group_describe.DescribedGroup(_TOPIC_REFUSED, group_id=group.group_id)


def describe_offsets(request: describe_share_group_offsets.DescribeShareGroupOffsetsRequest, asker: Asker) -> Admission:
    """DESCRIBE of each group; topics that were named are refused without DESCRIBE, others are left out."""
    messages = describe_share_group_offsets
    allowed, denied = split(request.groups, lambda group: asker.may(Operation.DESCRIBE, GROUP, group.group_id))
    refused = [messages.DescribeShareGroupOffsetsResponseGroup(group.group_id, [], _GROUP_REFUSED) for group in denied]
    refused_topics: dict[str, list[messages.DescribeShareGroupOffsetsResponseTopic]] = {}
    groups = []
    for group in allowed:
        if group.topics is not None:
            seen, hidden = split(group.topics, lambda topic: asker.may(Operation.DESCRIBE, TOPIC, topic.topic_name))
            refused_topics[group.group_id] = [
                messages.DescribeShareGroupOffsetsResponseTopic(
                    topic.topic_name,
                    partitions=[
                        messages.DescribeShareGroupOffsetsResponsePartition(index, -1, error_code=_TOPIC_REFUSED)
                        for index in topic.partitions
                    ],
                )
                for topic in hidden
            ]
            group = replace(group, topics=seen) if hidden else group
        groups.append(group)
    if not groups:
        return Admission(answer=messages.DescribeShareGroupOffsetsResponse(groups=refused))

    def finish(answer: messages.DescribeShareGroupOffsetsResponse) -> messages.DescribeShareGroupOffsetsResponse:
        shown = [
            replace(
                group,
                topics=[
                    *(topic for topic in group.topics if asker.sees_topic(topic.topic_name)),
                    *refused_topics.get(group.group_id, ()),
                ],
            )
            for group in answer.groups
        ]
        return replace(answer, groups=[*shown, *refused])

    return Admission(replace(request, groups=groups), finish)


def alter_offsets(request: alter_share_group_offsets.AlterShareGroupOffsetsRequest, asker: Asker) -> Admission:
    """READ of the group and of each topic."""
    messages = alter_share_group_offsets
    if not asker.may(Operation.READ, GROUP, request.group_id):
        return Admission(answer=messages.AlterShareGroupOffsetsResponse(error_code=_GROUP_REFUSED))
    allowed, denied = split(request.topics, lambda topic: asker.may(Operation.READ, TOPIC, topic.topic_name))
    refused = [
        messages.AlterShareGroupOffsetsResponseTopic(
            topic.topic_name,
            partitions=[
                messages.AlterShareGroupOffsetsResponsePartition(part.partition_index, _TOPIC_REFUSED)
                for part in topic.partitions
            ],
        )
        for topic in denied
    ]
    return _with_refused(request, allowed, refused, messages.AlterShareGroupOffsetsResponse)


def delete_offsets(request: delete_share_group_offsets.DeleteShareGroupOffsetsRequest, asker: Asker) -> Admission:
    """DELETE of the group, READ of each topic."""
    messages = delete_share_group_offsets
    if not asker.may(Operation.DELETE, GROUP, request.group_id):
        return Admission(answer=messages.DeleteShareGroupOffsetsResponse(error_code=_GROUP_REFUSED))
    allowed, denied = split(request.topics, lambda topic: asker.may(Operation.READ, TOPIC, topic.topic_name))
    refused = [
        messages.DeleteShareGroupOffsetsResponseTopic(topic.topic_name, error_code=_TOPIC_REFUSED) for topic in denied
    ]
    return _with_refused(request, allowed, refused, messages.DeleteShareGroupOffsetsResponse)


def _with_refused(request: Any, allowed: list[Any], refused: list[Any], response: type[Any]) -> Admission:
    if not refused:
        return Admission(request)
    if not allowed:
        return Admission(answer=response(responses=refused))
    return Admission(
        replace(request, topics=allowed), lambda answer: replace(answer, responses=[*answer.responses, *refused])
    )


def _refused_state(response: type[Any], of_topic: type[Any], of_partition: type[Any]) -> Any:
    """An answer that refuses every partition to a client that is no broker of this cluster."""

    def refuse(request: Any, version: int) -> Any:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return response(
            [
                of_topic(topic.topic_id, [of_partition(one.partition, code) for one in topic.partitions])
                for topic in request.topics
            ]
        )

    return refuse


initialize_state: Final = on_cluster(
    Operation.CLUSTER_ACTION,
    _refused_state(
        initialize_share_group_state.InitializeShareGroupStateResponse,
        initialize_share_group_state.InitializeStateResult,
        initialize_share_group_state.PartitionResult,
    ),
)
read_state_summary: Final = on_cluster(
    Operation.CLUSTER_ACTION,
    _refused_state(
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        read_share_group_state_summary.ReadStateSummaryResult,
        read_share_group_state_summary.PartitionResult,
    ),
)
