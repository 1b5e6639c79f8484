"""The group requests that tests make, in one line each; every answer is returned as it came."""

import itertools
from typing import Any

from martlet.base.errors import ErrorCode
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from martlet.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from martlet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from martlet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.broker.raw_client import RawClient

_numbers = itertools.count()


def unique_group() -> str:
    return f"group-{next(_numbers)}"


def join_request(group: str, member_id: str = "", *, rebalance_ms: int = 60_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"metadata")],
    )


def join(client: RawClient, group: str, member_id: str = "", version: int = 5) -> JoinGroupResponse:
    """Join, coming back with the id that newer versions are given first."""
    response: JoinGroupResponse = client.call(join_request(group, member_id), version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        response = client.call(join_request(group, response.member_id), version)
    return response


def sync(client: RawClient, group: str, joined: JoinGroupResponse, version: int = 3) -> SyncGroupResponse:
    """Sync; the leader gives every member its own id as assignment."""
    assignments = [SyncGroupRequestAssignment(each.member_id, each.member_id.encode()) for each in joined.members]
    request = SyncGroupRequest(group, joined.generation_id, joined.member_id, None, "consumer", "range", assignments)
    response: SyncGroupResponse = client.call(request, version)
    return response


def enter(client: RawClient, group: str) -> JoinGroupResponse:
    """Become the only member of a group, with an assignment."""
    joined = join(client, group)
    assert joined.error_code == ErrorCode.NONE
    assert sync(client, group, joined).error_code == ErrorCode.NONE
    return joined


def heartbeat(client: RawClient, group: str, joined: JoinGroupResponse, version: int = 3) -> int:
    code: int = client.call(HeartbeatRequest(group, joined.generation_id, joined.member_id), version).error_code
    return code


def leave(client: RawClient, group: str, member_id: str, version: int = 3) -> int:
    """The error of the one member, wherever the version has it."""
    response: LeaveGroupResponse = client.call(
        LeaveGroupRequest(group, member_id, [MemberIdentity(member_id)]), version
    )
    return response.error_code or (response.members[0].error_code if response.members else 0)


def commit(
    client: RawClient,
    group: str,
    topic: str | bytes,
    offsets: dict[int, int],
    *,
    version: int = 8,
    member: tuple[str, int] = ("", -1),
    note: str | None = "note",
) -> dict[int, int]:
    """Error codes by partition; the topic is given by id from v10 on."""
    partitions = [OffsetCommitRequestPartition(index, offset, 3, note) for index, offset in offsets.items()]
    asked = OffsetCommitRequestTopic(*_name_and_id(topic), partitions)
    request = OffsetCommitRequest(group, member[1], member[0], topics=[asked])
    (answer,) = client.call(request, version).topics
    return {one.partition_index: one.error_code for one in answer.partitions}


def fetch_offsets(
    client: RawClient, group: str, topic: str | bytes, *partitions: int, version: int = 7
) -> tuple[int, dict[int, Any]]:
    """The group's error and the partitions' answers; the topic is given by id from v10 on."""
    name, topic_id = _name_and_id(topic)
    request = OffsetFetchRequest(
        group,
        [OffsetFetchRequestTopic(name, list(partitions))],
        [OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(name, topic_id, list(partitions))])],
    )
    response = client.call(request, version)
    answer = response.groups[0] if version >= 8 else response
    return answer.error_code, {one.partition_index: one for found in answer.topics for one in found.partitions}


def committed(client: RawClient, group: str, topic: str, partition: int = 0) -> int:
    """The offset, which must be readable without an error; -1 when there is none."""
    code, answers = fetch_offsets(client, group, topic, partition)
    assert (code, answers[partition].error_code) == (0, 0)
    offset: int = answers[partition].committed_offset
    return offset


def consumer_heartbeat(
    client: RawClient, group: str, member_id: str, epoch: int, *topics: str, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat of the consumer protocol; with topics a full one."""
    request = ConsumerGroupHeartbeatRequest(
        group,
        member_id,
        epoch,
        rebalance_timeout_ms=60_000 if topics else -1,
        subscribed_topic_names=list(topics) or None,
        topic_partitions=[] if topics else None,
    )
    response: ConsumerGroupHeartbeatResponse = client.call(request, version)
    return response


def _name_and_id(topic: str | bytes) -> tuple[str, bytes]:
    return (topic, bytes(16)) if isinstance(topic, str) else ("", topic)
