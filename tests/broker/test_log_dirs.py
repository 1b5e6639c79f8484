"""The one log directory of a broker: what lies in it, and what becomes of the wish to keep it elsewhere."""

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from martlet.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, publish_values


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_tell_the_sizes_of_partitions(client: RawClient, version: int) -> None:
    topic = create_topic(client, 2)
    publish_values(client, topic, bytes(5000))
    (some,) = client.call(DescribeLogDirsRequest([DescribableLogDirTopic(topic, [0])]), version).results
    assert some.error_code == ErrorCode.NONE
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in some.topics] == [(topic, [0])]
    assert some.topics[0].partitions[0].partition_size > 5000
    (everything,) = client.call(DescribeLogDirsRequest(None), version).results
    assert topic in [found.name for found in everything.topics]
    if version >= 4:
        assert everything.total_bytes > everything.usable_bytes > 0


@pytest.mark.parametrize("version", range(1, 6))
def test_partitions_that_were_never_used_are_listed_with_size_0(client: RawClient, version: int) -> None:
    topic = create_topic(client, 3)
    publish_values(client, topic, b"x", partition=1)
    for asked in (None, [DescribableLogDirTopic(topic, [2, 0, 1, 3, 0]), DescribableLogDirTopic("no-such-topic", [0])]):
        (directory,) = client.call(DescribeLogDirsRequest(asked), version).results
        (found,) = [each for each in directory.topics if each.name == topic]
        sizes = [(each.partition_index, each.partition_size > 0, each.offset_lag) for each in found.partitions]
        assert sizes == [(0, False, 0), (1, True, 0), (2, False, 0)]


def _directory(client: RawClient) -> str:
    (directory,) = client.call(DescribeLogDirsRequest([]), 5).results
    path: str = directory.log_dir
    return path


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_can_be_kept_where_it_lies_and_nowhere_else(
    broker: RunningBroker, client: RawClient, version: int
) -> None:
    topic, path = create_topic(client, 2), _directory(client)

    def move(*wishes: tuple[str, str, list[int]]) -> list[tuple[str, list[tuple[int, int]]]]:
        dirs = [AlterReplicaLogDir(to, [AlterReplicaLogDirTopic(name, indexes)]) for to, name, indexes in wishes]
        results = client.call(AlterReplicaLogDirsRequest(dirs), version).results
        return [
            (each.topic_name, [(one.partition_index, one.error_code) for one in each.partitions]) for each in results
        ]

    absent, unknown = ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move((path, topic, [0, 1, 2])) == [(topic, [(0, 0), (1, 0), (2, unknown)])]
    assert move((path, "no-such-topic", [0])) == [("no-such-topic", [(0, unknown)])]
    for elsewhere in ("/no/such/directory", path + "/", ""):
        assert move((elsewhere, topic, [0, 7])) == [(topic, [(0, absent), (7, absent)])]
    assert move((path, topic, [0, 0, 1]), ("/no/such/directory", topic, [0])) == [(topic, [(0, absent), (1, 0)])]
    assert move() == []
