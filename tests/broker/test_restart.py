"""What a broker keeps over a clean stop and over a crash: messages, topics, ids, settings, starts, and its epochs."""

from collections.abc import Callable

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from martlet.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from martlet.wire.messages.delete_topics import DeleteTopicsRequest
from martlet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from martlet.wire.messages.metadata import MetadataRequest
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import RawClient
from tests.broker.requests import (
    batch_of,
    create_topic,
    describe,
    leader_epoch,
    list_offset,
    new_producer_id,
    publish,
    publish_values,
    read_all,
    values_of,
)
from tests.broker.scrape import wait_until

MakeProcess = Callable[..., BrokerProcess]
ENDINGS = pytest.mark.parametrize("ending", ["stop", "kill"])


def _restart(process: BrokerProcess, ending: str) -> None:
    getattr(process, ending)()
    process.start()


@ENDINGS
def test_messages_and_topics_are_kept(make_process: MakeProcess, ending: str) -> None:
    process = make_process()
    with RawClient(process.address) as client:
        topic = create_topic(client, 2, retention_ms="123456789")
        cluster_id = client.call(MetadataRequest(topics=[]), 12).cluster_id
        topic_id = describe(client, topic).topic_id
        for number in range(20):
            publish_values(client, topic, b"%d" % number, partition=number % 2)
        grown = CreatePartitionsRequest([CreatePartitionsTopic(topic, 3)], timeout_ms=1000)
        assert client.call(grown, 3).results[0].error_code == ErrorCode.NONE
        deleted = create_topic(client)
        publish_values(client, deleted, b"x")
        client.call(DeleteTopicsRequest(topic_names=[deleted]), 5)
    _restart(process, ending)
    with RawClient(process.address) as client:
        assert client.call(MetadataRequest(topics=[]), 12).cluster_id == cluster_id
        found = describe(client, topic)
        assert (found.topic_id, len(found.partitions)) == (topic_id, 3)
        for partition in (0, 1):
            expected = [b"%d" % number for number in range(partition, 20, 2)]
            assert values_of(read_all(client, topic, partition=partition)) == expected
        assert publish_values(client, topic, b"next") == 10
        request = DescribeConfigsRequest([DescribeConfigsResource(2, topic, ["retention.ms"])])
        assert client.call(request, 4).results[0].configs[0].value == "123456789"
        assert describe(client, deleted).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@ENDINGS
def test_every_start_has_a_greater_leader_epoch(make_process: MakeProcess, ending: str) -> None:
    process = make_process()
    epochs: list[int] = []
    with RawClient(process.address) as client:
        topic = create_topic(client, 3)
    for _ in range(3):
        with RawClient(process.address) as client:
            found = describe(client, topic)
            assert len({partition.leader_epoch for partition in found.partitions}) == 1
            epochs.append(found.partitions[0].leader_epoch)
            assert list_offset(client, topic, -1).leader_epoch == epochs[-1]
        _restart(process, ending)
    assert epochs == sorted(set(epochs))


@ENDINGS
def test_deleted_records_do_not_come_back(make_process: MakeProcess, ending: str) -> None:
    process = make_process()
    with RawClient(process.address) as client:
        topic = create_topic(client)
        for number in range(5):
            publish_values(client, topic, b"%d" % number)
        asked = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, 3)])
        assert client.call(DeleteRecordsRequest([asked], 1000), 2).topics[0].partitions[0].low_watermark == 3
    _restart(process, ending)
    with RawClient(process.address) as client:
        assert list_offset(client, topic, -2).offset == 3
        assert values_of(read_all(client, topic, offset=3)) == [b"3", b"4"]


@ENDINGS
def test_producer_ids_are_never_given_twice(make_process: MakeProcess, ending: str) -> None:
    process = make_process()
    given: list[int] = []
    for _ in range(3):
        with RawClient(process.address) as client:
            given += [new_producer_id(client) for _ in range(20)]
        _restart(process, ending)
    assert len(set(given)) == len(given)


def test_an_acknowledged_message_survives_a_crash_right_after_it(make_process: MakeProcess) -> None:
    process = make_process()
    published: list[bytes] = []
    with RawClient(process.address) as client:
        topic = create_topic(client)
    for round_number in range(5):
        with RawClient(process.address) as client:
            for number in range(20):
                value = b"%d %d" % (round_number, number)
                assert publish(client, topic, batch_of(value)).error_code == ErrorCode.NONE
                published.append(value)
            process.kill()
        process.start()
    with RawClient(process.address) as client:
        assert values_of(read_all(client, topic)) == published


def test_a_crashed_broker_serves_again_after_less_than_two_seconds_of_work(make_process: MakeProcess) -> None:
    process = make_process()
    with RawClient(process.address) as client:
        topic = create_topic(client, martlet_flush="never", max_message_bytes="2000000")
        for _ in range(64):
            assert publish(client, topic, batch_of(bytes(1 << 20))).error_code == ErrorCode.NONE
    process.kill()
    process.start()
    with RawClient(process.address) as client:
        assert leader_epoch(client, topic) >= 0
        assert process.cpu_seconds() < 2, "the machine may be busy with others, so this counts the broker's own time"
        assert list_offset(client, topic, -1).offset == 64


def test_a_second_broker_on_the_same_data_is_refused(make_process: MakeProcess) -> None:
    process = make_process()
    second = BrokerProcess(process.data)
    with pytest.raises(AssertionError, match="did not start"):
        second.start()
    second.kill()
    with RawClient(process.address) as client:
        assert client.api_versions().error_code == ErrorCode.NONE


def test_what_a_crash_left_is_checked_once_and_not_at_every_later_start(make_process: MakeProcess) -> None:
    process = make_process(checkpoint_interval_ms=3_600_000)
    with RawClient(process.address) as client:
        topic = create_topic(client)
        publish_values(client, topic, b"a", b"b", b"c")
    _restart(process, "kill")
    recovery_points = process.data / "broker-1" / "recovery-point-offset-checkpoint"
    wait_until(lambda: f"{topic} 0 3\n" in recovery_points.read_text(), "the recovery point is written after the start")
