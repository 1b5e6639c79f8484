"""Groups for the fake broker: what they have committed, who is in them, and answers to every question about that."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.wire import message_codec
from martlet.wire.api_keys import ApiKey
from martlet.wire.consumer_protocol import Subscription, write_assignment, write_subscription
from martlet.wire.messages import consumer_group_describe, describe_groups
from martlet.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from martlet.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from martlet.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
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
from tests.unit.client.fake_broker import FakeBroker


@dataclass
class FakeMember:
    """One member and the partitions it reads."""

    member_id: str
    client_id: str
    assigned: dict[str, tuple[int, ...]] = field(default_factory=dict)
    instance_id: str | None = None


@dataclass
class FakeGroup:
    """One group of either type."""

    type: str = "classic"
    state: str = "Empty"
    members: list[FakeMember] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class FakeGroups:
    """The groups of one fake cluster; `coordinator` is the broker that FindCoordinator names."""

    def __init__(self, coordinator: FakeBroker) -> None:
        self.groups: dict[str, FakeGroup] = {}
        self.coordinator = coordinator
        self.serve_at(coordinator)

    def serve_at(self, broker: FakeBroker) -> None:
        """Let a broker answer from here."""
        for key, answer in {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.LIST_GROUPS: self.list_groups,
            ApiKey.DESCRIBE_GROUPS: self.describe_classic,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self.describe_consumer,
            ApiKey.DELETE_GROUPS: self.delete_groups,
            ApiKey.OFFSET_COMMIT: self.offset_commit,
            ApiKey.OFFSET_FETCH: self.offset_fetch,
            ApiKey.OFFSET_DELETE: self.offset_delete,
        }.items():
            broker.scripts[key] = self._script(answer)

    @staticmethod
    def _script(answer: Any) -> Any:
        return lambda request, version: message_codec.encode(answer(request, version), version)

    def find_coordinator(self, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        at = self.coordinator.address
        found = Coordinator(node_id=self.coordinator.broker_id, host=at.host, port=at.port)
        if version < 4:
            return FindCoordinatorResponse(node_id=found.node_id, host=found.host, port=found.port)
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key, found.node_id, found.host, found.port) for key in request.coordinator_keys]
        )

    def list_groups(self, request: ListGroupsRequest, _version: int) -> ListGroupsResponse:
        return ListGroupsResponse(
            groups=[
                ListedGroup(group_id, "consumer", group.state, group.type)
                for group_id, group in self.groups.items()
                if not request.states_filter or group.state in request.states_filter
            ]
        )

    def describe_classic(
        self, request: describe_groups.DescribeGroupsRequest, version: int
    ) -> describe_groups.DescribeGroupsResponse:
        described = []
        for group_id in request.groups:
            group = self.groups.get(group_id)
            if group is None:
                code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0
                described.append(describe_groups.DescribedGroup(error_code=code, group_id=group_id, group_state="Dead"))
                continue
            members = [
                describe_groups.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host="/10.0.0.1",
                    member_metadata=write_subscription(Subscription(tuple(member.assigned))),
                    member_assignment=write_assignment(0, member.assigned),
                )
                for member in group.members
            ]
            described.append(
                describe_groups.DescribedGroup(
                    group_id=group_id,
                    group_state=group.state,
                    protocol_type="consumer",
                    protocol_data="range",
                    members=members,
                )
            )
        return describe_groups.DescribeGroupsResponse(groups=described)

    def describe_consumer(
        self, request: consumer_group_describe.ConsumerGroupDescribeRequest, _version: int
    ) -> consumer_group_describe.ConsumerGroupDescribeResponse:
        described = []
        for group_id in request.group_ids:
            group = self.groups.get(group_id)
            if group is None or group.type != "consumer":
                code = ErrorCode.GROUP_ID_NOT_FOUND if group_id else ErrorCode.INVALID_GROUP_ID
                described.append(
                    consumer_group_describe.DescribedGroup(error_code=code, error_message="not here", group_id=group_id)
                )
                continue
            members = [self._consumer_member(member) for member in group.members]
            described.append(
                consumer_group_describe.DescribedGroup(
                    group_id=group_id,
                    group_state=group.state,
                    group_epoch=7,
                    assignment_epoch=6,
                    assignor_name="uniform",
                    members=members,
                )
            )
        return consumer_group_describe.ConsumerGroupDescribeResponse(groups=described)

    def _consumer_member(self, member: FakeMember) -> consumer_group_describe.Member:
        topics = [
            consumer_group_describe.TopicPartitions(bytes(16), topic, [*numbers])
            for topic, numbers in member.assigned.items()
        ]
        return consumer_group_describe.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host="/10.0.0.1",
            member_epoch=5,
            subscribed_topic_names=[*member.assigned],
            assignment=consumer_group_describe.Assignment(topics),
            target_assignment=consumer_group_describe.Assignment(topics),
            member_type=1,
        )

    def delete_groups(self, request: DeleteGroupsRequest, _version: int) -> DeleteGroupsResponse:
        results = []
        for name in request.groups_names:
            group = self.groups.get(name)
            code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NON_EMPTY_GROUP
            if group is not None and not group.members:
                del self.groups[name]
                code = ErrorCode.NONE
            results.append(DeletableGroupResult(name, code))
        return DeleteGroupsResponse(results=results)

    def offset_commit(self, request: OffsetCommitRequest, _version: int) -> OffsetCommitResponse:
        group = self.groups.setdefault(request.group_id, FakeGroup())
        code = ErrorCode.UNKNOWN_MEMBER_ID if group.members else ErrorCode.NONE
        topics = []
        for topic in request.topics:
            for entry in topic.partitions:
                if not code:
                    group.offsets[TopicPartition(topic.name, entry.partition_index)] = entry.committed_offset
            answers = [OffsetCommitResponsePartition(entry.partition_index, code) for entry in topic.partitions]
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
        return OffsetCommitResponse(topics=topics)

    def offset_fetch(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        if version < 8:
            found = self._offsets(request.group_id, request.topics)
            return OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        name=name,
                        partitions=[OffsetFetchResponsePartition(number, offset) for number, offset in offsets.items()],
                    )
                    for name, offsets in found.items()
                ]
            )
        groups = []
        for asked in request.groups:
            found = self._offsets(asked.group_id, asked.topics)
            topics = [
                OffsetFetchResponseTopics(
                    name=name,
                    partitions=[OffsetFetchResponsePartitions(number, offset) for number, offset in offsets.items()],
                )
                for name, offsets in found.items()
            ]
            groups.append(OffsetFetchResponseGroup(asked.group_id, topics))
        return OffsetFetchResponse(groups=groups)

    def _offsets(self, group_id: str, topics: Any) -> dict[str, dict[int, int]]:
        offsets = self.groups.get(group_id, FakeGroup()).offsets
        wanted = (
            list(offsets)
            if topics is None
            else [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_indexes]
        )
        found: dict[str, dict[int, int]] = defaultdict(dict)
        for partition in wanted:
            found[partition.topic][partition.partition] = offsets.get(partition, -1)
        return found

    def offset_delete(self, request: OffsetDeleteRequest, _version: int) -> OffsetDeleteResponse:
        group = self.groups.get(request.group_id)
        if group is None:
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        topics = []
        for topic in request.topics:
            read = any(topic.name in member.assigned for member in group.members)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if read else ErrorCode.NONE
            for entry in topic.partitions:
                if not read:
                    group.offsets.pop(TopicPartition(topic.name, entry.partition_index), None)
            answers = [OffsetDeleteResponsePartition(entry.partition_index, code) for entry in topic.partitions]
            topics.append(OffsetDeleteResponseTopic(topic.name, answers))
        return OffsetDeleteResponse(topics=topics)
