"""One connection's answers come in the order of its requests, and one connection's wait is no other's."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import FetchPartition, encode_fetch_request
from martlet.wire.message_codec import encode
from martlet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from martlet.wire.produce import encode_produce_request
from tests.broker.raw_client import ConnectionClosed, RawClient
from tests.broker.requests import (
    batch_of,
    create_topic,
    fetch_request,
    publish_values,
    read_all,
    records_of,
    unique_topic,
    values_of,
)
from tests.broker.sample_requests import sample_body


def test_answers_of_all_kinds_come_in_the_order_of_their_requests(broker: RunningBroker, client: RawClient) -> None:
    topic = create_topic(client)
    produce = b"".join(
        encode_produce_request(9, topics=[(topic, None, [(0, batch_of(b"x"))])], acks=-1, timeout_ms=5000)
    )
    waiting = encode_fetch_request(12, fetch_request(topic, FetchPartition(0, fetch_offset=3), max_wait_ms=300))
    new_topic = encode(CreateTopicsRequest(topics=[CreatableTopic(unique_topic(), 1, 1)]), 5)
    asked = [
        (ApiKey.PRODUCE, 9, produce),
        (ApiKey.CREATE_TOPICS, 5, new_topic),
        (ApiKey.API_VERSIONS, 3, sample_body(ApiKey.API_VERSIONS, 3, topic)),
        (ApiKey.PRODUCE, 9, produce),
        (ApiKey.PRODUCE, 9, produce),
        (ApiKey.FETCH, 12, waiting),
        (ApiKey.METADATA, 12, sample_body(ApiKey.METADATA, 12, topic)),
        (ApiKey.INIT_PRODUCER_ID, 4, sample_body(ApiKey.INIT_PRODUCER_ID, 4, topic)),
        (ApiKey.API_VERSIONS, 0, b""),
    ]
    frames = [client.frame(*one) for one in asked]
    client.send_bytes(b"".join(frame for _, frame in frames))
    answered = [client.receive(key, version)[0] for key, version, _ in asked]
    assert answered == [correlation_id for correlation_id, _ in frames]


def test_a_waiting_fetch_holds_back_what_was_asked_after_it(broker: RunningBroker, client: RawClient) -> None:
    topic = create_topic(client)
    with RawClient(broker.bootstrap_servers) as reader:
        fetch_id = reader.send_fetch(fetch_request(topic, FetchPartition(0), max_wait_ms=20_000), 12)
        later_id = reader.send(ApiKey.API_VERSIONS, 0, b"")
        reader.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            reader.socket.recv(1)
        reader.socket.settimeout(10)
        publish_values(client, topic, b"now")
        assert reader.receive_fetch(12)[0] == fetch_id
        assert reader.receive(ApiKey.API_VERSIONS, 0)[0] == later_id


def test_five_hundred_waiting_fetches_do_not_delay_other_connections(broker: RunningBroker, client: RawClient) -> None:
    quiet, busy = create_topic(client), create_topic(client)
    waiting = [RawClient(broker.bootstrap_servers) for _ in range(500)]
    try:
        for connection in waiting:
            connection.send_fetch(fetch_request(quiet, FetchPartition(0), max_wait_ms=60_000), 12)
        client.api_versions()
        started = time.monotonic()
        for _ in range(50):
            publish_values(client, busy, b"x")
        assert time.monotonic() - started < 5
        publish_values(client, quiet, b"wake up")
        for connection in waiting:
            _, response = connection.receive_fetch(12)
            assert len(response.topics[0].partitions[0].records) > 0
    finally:
        for connection in waiting:
            connection.close()


def test_a_publish_without_acknowledgement_gets_no_answer(client: RawClient) -> None:
    topic = create_topic(client)
    client.send_produce([(topic, None, [(0, batch_of(b"quiet"))])], 9, acks=0)
    sent = client.send(ApiKey.API_VERSIONS, 0, b"")
    received, _ = client.receive(ApiKey.API_VERSIONS, 0)
    assert received == sent
    found = client.fetch(fetch_request(topic, FetchPartition(0), max_wait_ms=5000)).topics[0].partitions[0]
    assert values_of(records_of(found)) == [b"quiet"]


def test_a_publish_without_acknowledgement_that_fails_ends_the_connection(broker: RunningBroker) -> None:
    with RawClient(broker.bootstrap_servers) as connection:
        connection.send_produce([("no-such-topic-at-all", None, [(0, batch_of(b"x"))])], 9, acks=0)
        assert connection.wait_closed() == b""


def test_requests_before_a_bad_one_are_still_answered(broker: RunningBroker, client: RawClient) -> None:
    topic = create_topic(client)
    with RawClient(broker.bootstrap_servers) as connection:
        publish_body = encode_produce_request(9, topics=[(topic, None, [(0, batch_of(b"x"))])], acks=1, timeout_ms=5000)
        frames = [
            connection.frame(ApiKey.API_VERSIONS, 0, b""),
            connection.frame(ApiKey.PRODUCE, 9, b"".join(publish_body)),
            connection.frame(ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"),
        ]
        connection.send_bytes(b"".join(frame for _, frame in frames))
        assert connection.receive(ApiKey.API_VERSIONS, 0)[0] == frames[0][0]
        assert connection.receive_produce(9)[0] == frames[1][0]
        with pytest.raises(ConnectionClosed):
            connection.receive_frame()


def test_publishers_at_the_same_time_each_keep_their_order(broker: RunningBroker, client: RawClient) -> None:
    topic = create_topic(client)

    def publish_all(name: int) -> list[int]:
        with RawClient(broker.bootstrap_servers) as connection:
            for number in range(100):
                connection.send_produce([(topic, None, [(0, batch_of(b"%d %d" % (name, number)))])], 9)
            return [connection.receive_produce(9)[1].topics[0].partitions[0].base_offset for _ in range(100)]

    with ThreadPoolExecutor(8) as pool:
        offsets = list(pool.map(publish_all, range(8)))
    assert sorted(offset for one in offsets for offset in one) == list(range(800))
    stored = values_of(read_all(client, topic))
    for name, own in enumerate(offsets):
        assert own == sorted(own)
        assert [stored[offset] for offset in own] == [b"%d %d" % (name, number) for number in range(100)]


def test_one_refused_partition_does_not_harm_the_others(client: RawClient) -> None:
    topic = create_topic(client, 3)
    bad = bytearray(batch_of(b"damaged"))
    bad[-1] ^= 1
    response = client.produce(
        [(topic, None, [(0, batch_of(b"a")), (1, bad), (7, batch_of(b"x")), (2, batch_of(b"c"))])]
    )
    codes = [result.error_code for result in response.topics[0].partitions]
    assert codes == [0, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert values_of(read_all(client, topic, partition=2)) == [b"c"]
    assert read_all(client, topic, partition=1) == []
