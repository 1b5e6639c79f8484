"""What a broker does by itself, seen by its clients: retention, compaction, deletion, all while it is in use."""

import threading
from collections.abc import Callable

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.delete_topics import DeleteTopicsRequest
from martlet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.raw_client import RawClient
from tests.broker.requests import (
    batch_of,
    create_topic,
    fetch_one,
    list_offset,
    now_ms,
    publish,
    publish_values,
    read_all,
    unique_topic,
    values_of,
)
from tests.broker.scrape import unexpected_errors, wait_until

MakeBroker = Callable[..., RunningBroker]
BUSY = {"retention_check_interval_ms": 50, "cleaner_interval_ms": 50, "checkpoint_interval_ms": 50}
EARLIEST, LATEST = -2, -1


def test_old_messages_go_and_the_end_stays(make_broker: MakeBroker) -> None:
    running = make_broker(**BUSY)
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client, segment_bytes="10000", retention_ms="3600000", file_delete_delay_ms="0")
        for _ in range(10):
            publish(client, topic, batch_of(bytes(4000), timestamp_ms=now_ms() - 7_200_000))
        publish_values(client, topic, b"young")
        wait_until(lambda: list_offset(client, topic, EARLIEST).offset >= 8, "old segments are gone")
        start = list_offset(client, topic, EARLIEST).offset
        assert fetch_one(client, topic, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert list_offset(client, topic, LATEST).offset == 11
        assert values_of(read_all(client, topic, offset=start))[-1] == b"young"
        assert publish_values(client, topic, b"next") == 11


def test_a_topic_keeps_no_more_bytes_than_it_may(make_broker: MakeBroker) -> None:
    running = make_broker(**BUSY)
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client, segment_bytes="10000", retention_bytes="30000", file_delete_delay_ms="0")
        for _ in range(40):
            publish_values(client, topic, bytes(4000))
        wait_until(lambda: list_offset(client, topic, EARLIEST).offset >= 30, "the log is small")
        start = list_offset(client, topic, EARLIEST).offset
        assert len(read_all(client, topic, offset=start)) == 40 - start


def test_compaction_keeps_the_last_message_of_every_key_at_its_offset(make_broker: MakeBroker) -> None:
    running = make_broker(**BUSY)
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(
            client,
            cleanup_policy="compact",
            segment_bytes="5000",
            min_cleanable_dirty_ratio="0.01",
            file_delete_delay_ms="0",
        )
        last: dict[bytes, tuple[int, bytes]] = {}
        for number in range(200):
            key, value = b"key %d" % (number % 10), b"value %d" % number + bytes(200)
            last[key] = (publish(client, topic, batch_of(value, key=key)).base_offset, value)
        closing = publish(client, topic, batch_of(bytes(4900), key=b"closing")).base_offset

        def survivors() -> dict[bytes, list[int]]:
            found: dict[bytes, list[int]] = {}
            for record in read_all(client, topic):
                found.setdefault(record.key or b"", []).append(record.offset)
            return found

        wait_until(lambda: len(read_all(client, topic)) < 60, "old values are gone", within_seconds=20)
        found = survivors()
        for key, (offset, _) in last.items():
            assert found[key][-1] == offset, "the last value is where it was"
        records = {record.offset: record.value for record in read_all(client, topic)}
        assert all(records[offset] == value for offset, value in last.values())
        assert list_offset(client, topic, LATEST).offset == closing + 1, "the end is still reachable"


def test_the_pause_between_compactions_is_changed_while_the_broker_runs(make_broker: MakeBroker) -> None:
    running = make_broker(cleaner_interval_ms=3_600_000)
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client, cleanup_policy="compact", segment_bytes="5000", min_cleanable_dirty_ratio="0.01")
        for _ in range(50):
            publish(client, topic, batch_of(bytes(400), key=b"one"))
        changes = [AlterableConfig("log.cleaner.backoff.ms", 0, "100")]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(4, "", changes)])
        assert client.call(request, 1).responses[0].error_code == ErrorCode.NONE
        wait_until(lambda: len(read_all(client, topic)) < 25, "old values are gone", within_seconds=20)


def test_a_topic_that_deletes_nothing_and_compacts_nothing_keeps_everything(make_broker: MakeBroker) -> None:
    running = make_broker(**BUSY)
    with RawClient(running.bootstrap_servers) as client:
        kept = create_topic(client, cleanup_policy="", segment_bytes="5000", retention_bytes="5000", retention_ms="1")
        gone = create_topic(client, cleanup_policy="delete", segment_bytes="5000", retention_bytes="5000")
        for topic in (kept, gone):
            for _ in range(20):
                publish(client, topic, batch_of(bytes(1000), key=b"one"))
        wait_until(lambda: list_offset(client, gone, EARLIEST).offset > 0, "retention has been applied")
        assert list_offset(client, kept, EARLIEST).offset == 0
        assert len(read_all(client, kept)) == 20


def test_tombstones_remove_their_keys_in_the_end(make_broker: MakeBroker) -> None:
    running = make_broker(**BUSY)
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(
            client,
            cleanup_policy="compact",
            segment_bytes="2000",
            min_cleanable_dirty_ratio="0.01",
            delete_retention_ms="100",
            file_delete_delay_ms="0",
        )
        publish(client, topic, batch_of(b"value", key=b"gone"))
        publish(client, topic, batch_of(None, key=b"gone"))

        def is_gone() -> bool:
            publish(client, topic, batch_of(bytes(1500), key=b"filler"))
            return all(record.key != b"gone" for record in read_all(client, topic))

        wait_until(is_gone, "the tombstone has done its work", within_seconds=30)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_topics_come_and_go_under_load_without_harm(make_broker: MakeBroker, policy: str) -> None:
    running = make_broker(**BUSY)
    names = [unique_topic("passing") for _ in range(3)]
    over = threading.Event()
    codes: set[int] = set()

    def use(name: str) -> None:
        with RawClient(running.bootstrap_servers) as client:
            while not over.is_set():
                codes.add(publish(client, name, batch_of(bytes(3000), key=b"k")).error_code)
                codes.add(fetch_one(client, name).error_code)

    users = [threading.Thread(target=use, args=(name,)) for name in names]
    with RawClient(running.bootstrap_servers) as client:
        for user in users:
            user.start()
        for _ in range(15):
            for name in names:
                create_topic(
                    client,
                    name=name,
                    cleanup_policy=policy,
                    segment_bytes="4000",
                    min_cleanable_dirty_ratio="0.01",
                    file_delete_delay_ms="0",
                )
            for name in names:
                (deleted,) = client.call(DeleteTopicsRequest(topic_names=[name]), 5).responses
                assert deleted.error_code == ErrorCode.NONE
        over.set()
        for user in users:
            user.join(30)
    allowed = {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR}
    assert codes <= allowed | {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert unexpected_errors(running.operations_url) == 0
