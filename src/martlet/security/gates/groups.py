"""Gates of the APIs of consumer groups: membership, committed offsets, descriptions.

Proved by: tests/unit/security/test_gates.py, tests/unit/security/test_filtering_gates.py
"""

from dataclasses import replace
from typing import Any, Final

from martlet.base.errors import ErrorCode
from martlet.security.gates.gate import (
    GROUP,
    GROUP_REFUSED,
    ID_REFUSED,
    TOPIC,
    TOPIC_REFUSED,
    TRANSACTIONAL_ID,
    Admission,
    Asker,
    group_error,
    on_group,
    one_by_one,
    split,
)
from martlet.security.rules import CLUSTER_NAME, Operation, ResourceKind
from martlet.wire.messages import consumer_group_describe as consumer_messages
from martlet.wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED
from martlet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from martlet.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from martlet.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from martlet.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from martlet.wire.messages.heartbeat import HeartbeatResponse
from martlet.wire.messages.join_group import JoinGroupResponse
from martlet.wire.messages.leave_group import LeaveGroupResponse
from martlet.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from martlet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from martlet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from martlet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from martlet.wire.messages.sync_group import SyncGroupResponse

_COORDINATOR_OF_GROUP: Final = 0
_COORDINATOR_OF_TRANSACTION: Final = 1
_FIRST_WITH_MANY_COORDINATORS: Final = 4
_FIRST_OF_MANY_GROUPS: Final = 8
_NO_OFFSET: Final = -1

join_group: Final = on_group(group_error(JoinGroupResponse))
sync_group: Final = on_group(group_error(SyncGroupResponse))
heartbeat: Final = on_group(group_error(HeartbeatResponse))
leave_group: Final = on_group(group_error(LeaveGroupResponse))

delete_groups: Final = one_by_one(
    "groups_names",
    "results",
    DeleteGroupsResponse,
    lambda name, asker: asker.may(Operation.DELETE, GROUP, name),
    lambda name: DeletableGroupResult(name, GROUP_REFUSED),
)
_describe_groups: Final = one_by_one(
    "groups",
    "groups",
    DescribeGroupsResponse,
    lambda name, asker: asker.may(Operation.DESCRIBE, GROUP, name),
    lambda name: DescribedGroup(GROUP_REFUSED, group_id=name),
)
_consumer_group_describe: Final = one_by_one(
    "group_ids",
    "groups",
    consumer_messages.ConsumerGroupDescribeResponse,
    lambda name, asker: asker.may(Operation.DESCRIBE, GROUP, name),
    lambda name: consumer_messages.DescribedGroup(GROUP_REFUSED, group_id=name),
)


def describe_groups(request: Any, asker: Asker) -> Admission:
    """DESCRIBE of each group."""
    return finish_groups(_describe_groups(request, asker), lambda group: shown_operations(group, asker))


def consumer_group_describe(request: Any, asker: Asker) -> Admission:
    """DESCRIBE of each group and of every topic that its members have."""
    return finish_groups(
        _consumer_group_describe(request, asker),
        lambda group: shown_operations(_without_hidden_topics(group, asker), asker),
    )


def finish_groups(admission: Admission, finish_group: Any) -> Admission:
    """The same, with something done to every group of the handler's answer."""
    if admission.answer is not None:
        return admission

    def finish(answer: Any) -> Any:
        answer = replace(answer, groups=[finish_group(group) for group in answer.groups])
        return admission.finish(answer) if admission.finish is not None else answer

    return Admission(admission.request, finish)


def shown_operations(group: Any, asker: Asker) -> Any:
    """The group as described, with what the client may do to it if that was asked for."""
    if group.authorized_operations == OPERATIONS_NOT_REQUESTED:
        return group
    return replace(group, authorized_operations=asker.viewer.authorized_operations(GROUP, group.group_id))


def _without_hidden_topics(group: consumer_messages.DescribedGroup, asker: Asker) -> consumer_messages.DescribedGroup:
    topics = {
        topic
        for member in group.members
        for topic in (
            *member.subscribed_topic_names,
            *(part.topic_name for part in member.assignment.topic_partitions),
            *(part.topic_name for part in member.target_assignment.topic_partitions),
        )
    }
    if all(asker.sees_topic(topic) for topic in topics):
        return group
    return consumer_messages.DescribedGroup(TOPIC_REFUSED, group_id=group.group_id)


def list_groups(request: ListGroupsRequest, asker: Asker) -> Admission:
    """DESCRIBE of the cluster shows all groups; others see those that they may describe."""
    if asker.sees(Operation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
        return Admission(request)

    def finish(answer: ListGroupsResponse) -> ListGroupsResponse:
        seen = [group for group in answer.groups if asker.sees(Operation.DESCRIBE, GROUP, group.group_id)]
        return replace(answer, groups=seen)

    return Admission(request, finish)


def consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, asker: Asker) -> Admission:
    """READ of the group, DESCRIBE of every topic subscribed to."""
    code = None
    if not asker.may(Operation.READ, GROUP, request.group_id):
        code = GROUP_REFUSED
    elif not all(asker.may(Operation.DESCRIBE, TOPIC, name) for name in request.subscribed_topic_names or ()):
        code = TOPIC_REFUSED
    return Admission(request) if code is None else Admission(answer=ConsumerGroupHeartbeatResponse(error_code=code))


def find_coordinator(request: FindCoordinatorRequest, asker: Asker) -> Admission:
    """DESCRIBE of the groups or transactional ids; of what else there is a coordinator, CLUSTER_ACTION."""
    if asker.version < _FIRST_WITH_MANY_COORDINATORS:
        code = _refusal_of_key(request.key_type, request.key, asker)
        if code is None:
            return Admission(request)
        return Admission(answer=FindCoordinatorResponse(error_code=code, node_id=-1, port=-1))
    allowed = []
    refusals = []
    for key in request.coordinator_keys:
        code = _refusal_of_key(request.key_type, key, asker)
        if code is None:
            allowed.append(key)
        else:
            refusals.append(Coordinator(key, -1, "", -1, code))
    if not refusals:
        return Admission(request)
    if not allowed:
        return Admission(answer=FindCoordinatorResponse(coordinators=refusals))
    return Admission(
        replace(request, coordinator_keys=allowed),
        lambda answer: replace(answer, coordinators=[*answer.coordinators, *refusals]),
    )


def _refusal_of_key(key_type: int, key: str, asker: Asker) -> ErrorCode | None:
    if key_type == _COORDINATOR_OF_GROUP:
        return None if asker.may(Operation.DESCRIBE, GROUP, key) else GROUP_REFUSED
    if key_type == _COORDINATOR_OF_TRANSACTION:
        return None if asker.may(Operation.DESCRIBE, TRANSACTIONAL_ID, key) else ID_REFUSED
    return None if asker.may_on_cluster(Operation.CLUSTER_ACTION) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def offset_commit(request: OffsetCommitRequest, asker: Asker) -> Admission:
    """READ of the group, and READ of each topic."""
    if not asker.may(Operation.READ, GROUP, request.group_id):
        return Admission(answer=OffsetCommitResponse(topics=_refused_commits(request.topics, GROUP_REFUSED)))
    allowed, denied = split(request.topics, lambda topic: _may_read(topic, asker))
    if not denied:
        return Admission(request)
    refusals = _refused_commits(denied, TOPIC_REFUSED)
    if not allowed:
        return Admission(answer=OffsetCommitResponse(topics=refusals))
    return Admission(
        replace(request, topics=allowed), lambda answer: replace(answer, topics=[*answer.topics, *refusals])
    )


def _may_read(topic: Any, asker: Asker) -> bool:
    name = topic.name or asker.topics.name_of(topic.topic_id)
    return not name or asker.may(Operation.READ, TOPIC, name)


def _refused_commits(topics: list[Any], code: ErrorCode) -> list[OffsetCommitResponseTopic]:
    return [
        OffsetCommitResponseTopic(
            topic.name,
            topic.topic_id,
            [OffsetCommitResponsePartition(asked.partition_index, code) for asked in topic.partitions],
        )
        for topic in topics
    ]


def offset_delete(request: OffsetDeleteRequest, asker: Asker) -> Admission:
    """DELETE of the group, and READ of each topic."""
    if not asker.may(Operation.DELETE, GROUP, request.group_id):
        return Admission(answer=OffsetDeleteResponse(GROUP_REFUSED))
    allowed, denied = split(request.topics, lambda topic: asker.may(Operation.READ, TOPIC, topic.name))
    if not denied:
        return Admission(request)
    refusals = [
        OffsetDeleteResponseTopic(
            topic.name,
            [OffsetDeleteResponsePartition(part.partition_index, TOPIC_REFUSED) for part in topic.partitions],
        )
        for topic in denied
    ]
    if not allowed:
        return Admission(answer=OffsetDeleteResponse(topics=refusals))
    return Admission(
        replace(request, topics=allowed), lambda answer: replace(answer, topics=[*answer.topics, *refusals])
    )


def offset_fetch(request: OffsetFetchRequest, asker: Asker) -> Admission:
    """DESCRIBE of the group; of topics those named are refused without DESCRIBE, others are left out."""
    if asker.version < _FIRST_OF_MANY_GROUPS:
        return _fetch_of_one_group(request, asker)
    allowed_groups = []
    refusals: list[OffsetFetchResponseGroup] = []
    refused_topics: dict[str, list[OffsetFetchResponseTopics]] = {}
    for group in request.groups:
        if not asker.may(Operation.DESCRIBE, GROUP, group.group_id):
            refusals.append(OffsetFetchResponseGroup(group.group_id, error_code=GROUP_REFUSED))
            continue
        if group.topics is not None:
            allowed, denied = split(group.topics, lambda topic: _may_see(topic, asker))
            if denied:
                refused_topics[group.group_id] = [_refused_topic_of_group(topic) for topic in denied]
                group = replace(group, topics=allowed)
        allowed_groups.append(group)

    def finish(answer: OffsetFetchResponse) -> OffsetFetchResponse:
        groups = [
            replace(
                group,
                topics=[
                    *(topic for topic in group.topics if _is_seen(topic, asker)),
                    *refused_topics.get(group.group_id, ()),
                ],
            )
            for group in answer.groups
        ]
        return replace(answer, groups=[*groups, *refusals])

    if not allowed_groups:
        return Admission(answer=OffsetFetchResponse(groups=refusals))
    return Admission(replace(request, groups=allowed_groups), finish)


def _may_see(topic: Any, asker: Asker) -> bool:
    name = topic.name or asker.topics.name_of(topic.topic_id)
    return not name or asker.may(Operation.DESCRIBE, TOPIC, name)


def _is_seen(topic: Any, asker: Asker) -> bool:
    name = topic.name or asker.topics.name_of(topic.topic_id)
    return not name or asker.sees_topic(name)


def _refused_topic_of_group(topic: Any) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(index, _NO_OFFSET, metadata="", error_code=TOPIC_REFUSED)
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)


def _fetch_of_one_group(request: OffsetFetchRequest, asker: Asker) -> Admission:
    if not asker.may(Operation.DESCRIBE, GROUP, request.group_id):
        return Admission(answer=_refused_group(request))
    refusals: list[OffsetFetchResponseTopic] = []
    admitted = request
    if request.topics is not None:
        allowed, denied = split(request.topics, lambda topic: asker.may(Operation.DESCRIBE, TOPIC, topic.name))
        refusals = [_refused_topic(topic, TOPIC_REFUSED) for topic in denied]
        admitted = replace(request, topics=allowed) if denied else request

    def finish(answer: OffsetFetchResponse) -> OffsetFetchResponse:
        seen = [topic for topic in answer.topics if asker.sees_topic(topic.name)]
        return replace(answer, topics=[*seen, *refusals])

    return Admission(admitted, finish)


def _refused_group(request: OffsetFetchRequest) -> OffsetFetchResponse:
    topics = [_refused_topic(topic, GROUP_REFUSED) for topic in request.topics or ()]
    return OffsetFetchResponse(topics=topics, error_code=GROUP_REFUSED)


def _refused_topic(topic: Any, code: ErrorCode) -> OffsetFetchResponseTopic:
    partitions = [
        OffsetFetchResponsePartition(index, _NO_OFFSET, metadata="", error_code=code)
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopic(topic.name, partitions)
