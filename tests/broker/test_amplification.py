"""Small requests that ask for the same thing tens of thousands of times: one client's wish keeps no other waiting.

A frame of one or two megabytes may name one topic eighty thousand times. Answered naively that is a minute of work and
gigabytes of answer, on the one event loop that serves everybody.
"""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import FetchPartition, encode_fetch_request
from martlet.wire.message_codec import encode
from martlet.wire.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    join_group,
    leave_group,
    list_groups,
    list_partition_reassignments,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    update_features,
)
from martlet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from martlet.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from martlet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from martlet.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from martlet.wire.messages.find_coordinator import FindCoordinatorRequest
from martlet.wire.messages.list_config_resources import ListConfigResourcesRequest
from martlet.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from martlet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from martlet.wire.produce import encode_produce_request
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import ConnectionClosed, RawClient
from tests.broker.requests import batch_of, create_topic, fetch_request, now_ms, publish, publish_values

TIMES = 80_000
MEBIBYTE = 1 << 20
WAIT_SECONDS_MAX = 2.0
GROWTH_BYTES_MAX = 150 * MEBIBYTE


def _metadata(topic: str) -> Any:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)] * TIMES)


def _describe_configs(topic: str) -> Any:
    return DescribeConfigsRequest([DescribeConfigsResource(2, topic, None)] * TIMES, True, True)


def _list_offsets(topic: str) -> Any:
    asked = [ListOffsetsPartition(0, -1, now_ms() - 1000)] * TIMES
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic, asked)])


def _create_topics(topic: str) -> Any:
    asked = [CreatableTopic(f"{topic}-{number}", 1, 1) for number in range(TIMES)]
    return CreateTopicsRequest(topics=asked, validate_only=True)


def _delete_records(topic: str) -> Any:
    return DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 0)] * TIMES)], 1000)


def _describe_producers(topic: str) -> Any:
    return DescribeProducersRequest([TopicRequest(topic, [0] * TIMES)])


def _find_coordinator(topic: str) -> Any:
    return FindCoordinatorRequest(0, [topic] * TIMES)


def _offset_commit(topic: str) -> Any:
    partition = offset_commit.OffsetCommitRequestPartition(0, 1, -1, "x" * 100)
    return offset_commit.OffsetCommitRequest(
        "g", topics=[offset_commit.OffsetCommitRequestTopic(topic, partitions=[partition] * TIMES)]
    )


def _offset_fetch(topic: str) -> Any:
    asked = [offset_fetch.OffsetFetchRequestTopics(topic, partition_indexes=[0])] * TIMES
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=asked)])


def _offset_fetch_of_groups(topic: str) -> Any:
    groups = [offset_fetch.OffsetFetchRequestGroup(f"g{number}", topics=None) for number in range(TIMES)]
    return offset_fetch.OffsetFetchRequest(groups=groups)


def _offset_delete(topic: str) -> Any:
    partitions = [offset_delete.OffsetDeleteRequestPartition(0)] * TIMES
    return offset_delete.OffsetDeleteRequest("g", [offset_delete.OffsetDeleteRequestTopic(topic, partitions)])


def _join_group(topic: str) -> Any:
    protocols = [join_group.JoinGroupRequestProtocol(f"p{number}", b"m") for number in range(TIMES)]
    return join_group.JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", protocols)


def _sync_group(topic: str) -> Any:
    assignments = [sync_group.SyncGroupRequestAssignment("m", b"a")] * TIMES
    return sync_group.SyncGroupRequest("g", 1, "m", assignments=assignments)


def _consumer_group_heartbeat(topic: str) -> Any:
    owned = [consumer_group_heartbeat.TopicPartitions(bytes(16), [0, 1, 2])] * TIMES
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "M" * 22, 0, None, None, 10_000, [topic] * TIMES, topic_partitions=owned
    )


def _leave_group(topic: str) -> Any:
    return leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity("m")] * TIMES)


def _elect_leaders(topic: str) -> Any:
    return elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions(topic, [*range(TIMES)])])


def _alter_partition_reassignments(topic: str) -> Any:
    # Each is refused, but only after it was looked at: there is no broker 7.
    partitions = [
        alter_partition_reassignments.ReassignablePartition(number % 100, [7]) for number in range(TIMES // 2)
    ]
    partitions += [alter_partition_reassignments.ReassignablePartition(number, None) for number in range(TIMES // 2)]
    wish = alter_partition_reassignments.ReassignableTopic(topic, partitions)
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(1_000, topics=[wish])


def _list_partition_reassignments(topic: str) -> Any:
    asked = [list_partition_reassignments.ListPartitionReassignmentsTopics(topic, [0])] * TIMES
    return list_partition_reassignments.ListPartitionReassignmentsRequest(1_000, asked)


def _alter_replica_log_dirs(topic: str) -> Any:
    asked = alter_replica_log_dirs.AlterReplicaLogDirTopic(topic, [*range(TIMES)])
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest([alter_replica_log_dirs.AlterReplicaLogDir("/", [asked])])


def _describe_quorum(topic: str) -> Any:
    metadata = describe_quorum.TopicData("__cluster_metadata", [describe_quorum.PartitionData(0)] * TIMES)
    other = describe_quorum.TopicData(topic, [describe_quorum.PartitionData(number) for number in range(TIMES // 2)])
    return describe_quorum.DescribeQuorumRequest([metadata, other])


MESSAGES: dict[ApiKey, tuple[int, Callable[[str], Any]]] = {
    ApiKey.METADATA: (12, _metadata),
    ApiKey.DESCRIBE_CONFIGS: (4, _describe_configs),
    ApiKey.LIST_OFFSETS: (7, _list_offsets),
    ApiKey.CREATE_TOPICS: (7, _create_topics),
    ApiKey.DELETE_RECORDS: (2, _delete_records),
    ApiKey.DESCRIBE_PRODUCERS: (0, _describe_producers),
    ApiKey.LIST_CONFIG_RESOURCES: (1, lambda topic: ListConfigResourcesRequest([2, 4, 32] * TIMES)),
    ApiKey.FIND_COORDINATOR: (4, _find_coordinator),
    ApiKey.ELECT_LEADERS: (2, _elect_leaders),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (1, _alter_partition_reassignments),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (2, _alter_replica_log_dirs),
    ApiKey.DESCRIBE_LOG_DIRS: (
        4,
        lambda topic: describe_log_dirs.DescribeLogDirsRequest(
            [describe_log_dirs.DescribableLogDirTopic(topic, [*range(TIMES)])]
        ),
    ),
    ApiKey.DESCRIBE_QUORUM: (2, _describe_quorum),
    ApiKey.UPDATE_FEATURES: (
        1,
        lambda topic: update_features.UpdateFeaturesRequest(
            feature_updates=[update_features.FeatureUpdateKey("group.version", 1)] * TIMES
        ),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, _list_partition_reassignments),
    ApiKey.OFFSET_COMMIT: (9, _offset_commit),
    ApiKey.OFFSET_FETCH: (9, _offset_fetch),
    ApiKey.OFFSET_DELETE: (0, _offset_delete),
    ApiKey.JOIN_GROUP: (2, _join_group),
    ApiKey.SYNC_GROUP: (4, _sync_group),
    ApiKey.LEAVE_GROUP: (5, _leave_group),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (1, _consumer_group_heartbeat),
    ApiKey.DESCRIBE_GROUPS: (6, lambda topic: describe_groups.DescribeGroupsRequest(many_names())),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        1,
        lambda topic: consumer_group_describe.ConsumerGroupDescribeRequest(many_names()),
    ),
    ApiKey.DELETE_GROUPS: (2, lambda topic: delete_groups.DeleteGroupsRequest(many_names())),
    ApiKey.LIST_GROUPS: (5, lambda topic: list_groups.ListGroupsRequest(many_names(), many_names())),
}


def many_names() -> list[str]:
    return [f"g{number}" for number in range(TIMES)]


def _peak_bytes(process: BrokerProcess) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def _send_and_watch(process: BrokerProcess, good: RawClient, key: ApiKey, version: int, body: bytes) -> float:
    """Send the request on a connection of its own; the longest an ordinary client waits until it is done with."""
    with RawClient(process.address, timeout_seconds=90) as greedy, ThreadPoolExecutor(1) as thread:
        greedy.send(key, version, body)
        answered = thread.submit(_receive_or_lose, greedy)
        longest = 0.0
        while not answered.done():
            started = time.monotonic()
            good.api_versions()
            longest = max(longest, time.monotonic() - started)
            time.sleep(0.005)
        return longest


def _receive_or_lose(connection: RawClient) -> None:
    with contextlib.suppress(ConnectionClosed):
        connection.receive_frame()


@pytest.mark.parametrize("key", MESSAGES, ids=lambda key: key.name)
def test_asking_for_one_thing_many_times_holds_up_no_other_client(
    make_process: Callable[..., BrokerProcess], key: ApiKey
) -> None:
    version, make = MESSAGES[key]
    process = make_process()
    with RawClient(process.address, timeout_seconds=90) as good:
        topic = create_topic(good, 100)
        for _ in range(20):
            publish(good, topic, batch_of(*[b"x" * 100] * 100))
        body = encode(make(topic), version)
        before = _peak_bytes(process)
        waited = _send_and_watch(process, good, key, version, body)
        assert waited < WAIT_SECONDS_MAX, f"an ordinary client waited {waited:.1f} s for {len(body)} bytes"
        grown = _peak_bytes(process) - before
        assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MiB for {len(body)} bytes"


def test_asking_for_very_many_groups_holds_up_no_other_client(make_process: Callable[..., BrokerProcess]) -> None:
    process = make_process()
    with RawClient(process.address, timeout_seconds=90) as good:
        body = encode(_offset_fetch_of_groups("t"), 9)
        assert _send_and_watch(process, good, ApiKey.OFFSET_FETCH, 9, body) < WAIT_SECONDS_MAX


def test_a_fetch_that_names_one_partition_many_times_does_not_slow_its_publishers(
    make_process: Callable[..., BrokerProcess],
) -> None:
    process = make_process()
    with RawClient(process.address) as good, RawClient(process.address) as greedy:
        topic = create_topic(good)
        asked = [FetchPartition(0)] * TIMES
        request = fetch_request(topic, *asked, max_wait_ms=60_000, min_bytes=1 << 30)
        greedy.send(ApiKey.FETCH, 4, encode_fetch_request(4, request))
        time.sleep(0.5)
        started = time.monotonic()
        for _ in range(10):
            publish_values(good, topic, b"x")
        assert time.monotonic() - started < WAIT_SECONDS_MAX


def test_a_publish_that_names_one_partition_many_times_is_refused_or_quick(
    make_process: Callable[..., BrokerProcess],
) -> None:
    process = make_process()
    with RawClient(process.address) as good:
        topic = create_topic(good)
        batches = [(0, batch_of(b"x"))] * (TIMES // 4)
        body = b"".join(encode_produce_request(9, topics=[(topic, None, batches)], acks=1, timeout_ms=1000))
        assert _send_and_watch(process, good, ApiKey.PRODUCE, 9, body) < WAIT_SECONDS_MAX
        assert publish(good, topic, batch_of(b"x")).error_code == ErrorCode.NONE
