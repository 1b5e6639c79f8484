"""A groups machine with short words for what clients ask of it."""

from typing import Any

from sim.randomness import SimRandomness

from martlet.base.errors import ApiError
from martlet.base.randomness import IdSource
from martlet.groups.machine import GroupsMachine
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.record_codec import KINDS, GroupRecordCodec
from martlet.groups.share.record_kinds import SHARE_KINDS
from martlet.wire.consumer_protocol import Subscription, write_subscription
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from martlet.wire.messages.leave_group import LeaveGroupRequest
from martlet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from martlet.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from martlet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.machine_context import MachineContext
from tests.unit.groups.offsets.offset_cases import SomeTopics, commit_request

RETENTION_MS = 1_000_000
SESSION_MS = 10_000


def caller(version: int) -> Caller:
    return Caller("client", "/127.0.0.1", version)


class GroupBench:
    """One machine, its log and its clock. What is refused raises ApiError."""

    def __init__(self, options: GroupsOptions | None = None) -> None:
        self.topics = SomeTopics(orders=4, clicks=1)
        self.options = options or GroupsOptions(initial_rebalance_delay_ms=0, offsets_retention_ms=RETENTION_MS)
        randomness = SimRandomness(1)
        self.context = MachineContext[GroupsMachine](
            lambda: GroupsMachine(self.options, self.topics, IdSource(randomness)),
            GroupRecordCodec((*KINDS, *SHARE_KINDS)),
        )
        self.context.reload()

    @property
    def machine(self) -> GroupsMachine:
        return self.context.machine

    # The classic protocol

    def begin_join(self, group: str = "g", *topics: str, protocol_type: str = "consumer") -> Any:
        """Join as a new member; the answer, or what will have it."""
        metadata = write_subscription(Subscription(topics or ("orders",)))
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol("range", metadata)],
        )
        return self.context.call(lambda machine, now_ms: machine.join_group(request, caller(3), now_ms))

    def join(self, group: str = "g", *topics: str, protocol_type: str = "consumer") -> JoinGroupResponse:
        """Join as the only member; the group owes a sync then."""
        answer = self.begin_join(group, *topics, protocol_type=protocol_type)
        if not isinstance(answer, JoinGroupResponse):
            self.context.advance(1)  # the first rebalance of an empty group is a timer's
            answer = answer.response
        assert isinstance(answer, JoinGroupResponse)
        return answer

    def sync(self, joined: JoinGroupResponse, group: str = "g") -> None:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(joined.member_id, b"mine")],
        )
        answer = self.context.call(lambda machine, now_ms: machine.sync_group(request, caller(3), now_ms))
        assert answer.error_code == 0

    def stable(self, group: str = "g", *topics: str, protocol_type: str = "consumer") -> JoinGroupResponse:
        """A group of one, at work."""
        joined = self.join(group, *topics, protocol_type=protocol_type)
        self.sync(joined, group)
        return joined

    def heartbeat(self, joined: JoinGroupResponse, group: str = "g") -> int:
        request = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
        answer = self.context.call(lambda machine, now_ms: machine.heartbeat(request, caller(3), now_ms))
        return int(answer.error_code)

    def leave(self, joined: JoinGroupResponse, group: str = "g") -> None:
        request = LeaveGroupRequest(group_id=group, member_id=joined.member_id)
        self.context.call(lambda machine, now_ms: machine.leave_group(request, caller(1), now_ms))

    # The consumer protocol

    def consumer_heartbeat(self, group: str = "g", member: str = "m", epoch: int = 0, *topics: str) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
        if epoch == 0:
            request.rebalance_timeout_ms = SESSION_MS
            request.subscribed_topic_names = list(topics or ("orders",))
            request.topic_partitions = []
        return self.context.call(lambda machine, now_ms: machine.consumer_group_heartbeat(request, caller(1), now_ms))

    # The share protocol

    def share_heartbeat(self, group: str = "g", member: str = "m", epoch: int = 0, *topics: str) -> Any:
        names = list(topics or ("orders",)) if epoch == 0 else None
        request = ShareGroupHeartbeatRequest(group, member, epoch, None, names)
        return self.context.call(lambda machine, now_ms: machine.share_group_heartbeat(request, caller(1), now_ms))

    # Offsets

    def commit(self, group: str = "g", *, version: int = 8, instance_id: str | None = None, **words: Any) -> int:
        """Commit one partition; the partition's error code."""
        request = commit_request(group, **words)
        request.group_instance_id = instance_id
        answer = self.context.call(lambda machine, now_ms: machine.offset_commit(request, caller(version), now_ms))
        return int(answer.topics[0].partitions[0].error_code)

    def refusal_of_commit(self, group: str = "g", **words: Any) -> int:
        """The code with which the group as a whole refuses a commit; 0 if it does not."""
        try:
            return self.commit(group, **words)
        except ApiError as error:
            return int(error.code)

    def fetch_group(self, asked: OffsetFetchRequestGroup, version: int = 9) -> Any:
        return self.context.call(lambda machine, now_ms: machine.offset_fetch(asked, True, caller(version), now_ms))

    def fetch(self, group: str = "g", topic: str = "orders", partition: int = 0) -> int:
        asked = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[partition])])
        return int(self.fetch_group(asked).topics[0].partitions[0].committed_offset)

    def delete_offset(self, group: str = "g", topic: str = "orders", partition: int = 0) -> int:
        topics = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(partition)])]
        request = OffsetDeleteRequest(group, topics)
        answer = self.context.call(lambda machine, now_ms: machine.offset_delete(request, caller(0), now_ms))
        return int(answer.topics[0].partitions[0].error_code)

    # Groups as a whole

    def delete(self, group: str = "g") -> int:
        return int(self.context.call(lambda machine, now_ms: machine.delete_group(group, now_ms)).error_code)

    def listed(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[tuple[str, str, str, str]]:
        groups = self.context.call(lambda machine, now_ms: machine.list_groups(states, types, now_ms))
        return [(group.group_id, group.protocol_type, group.group_state, group.group_type) for group in groups]

    def described(self, group: str = "g", version: int = 6) -> Any:
        return self.context.call(lambda machine, now_ms: machine.describe_group(group, caller(version), now_ms))

    def described_consumer_group(self, group: str = "g") -> Any:
        return self.context.call(lambda machine, now_ms: machine.describe_consumer_group(group, caller(1), now_ms))

    def described_share_group(self, group: str = "g") -> Any:
        return self.context.call(lambda machine, now_ms: machine.describe_share_group(group, caller(1), now_ms))

    def topics_deleted(self, *topics: str) -> None:
        for topic in topics:
            self.topics.counts.pop(topic, None)
        self.context.call(lambda machine, now_ms: machine.topics_changed([], topics, now_ms))
