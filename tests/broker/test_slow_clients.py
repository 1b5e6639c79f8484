"""Clients that drip, idle or do not read: cut off after their time, while patient and busy ones are left alone."""

import struct
import time
from collections.abc import Callable

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import FetchPartition
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import ConnectionClosed, RawClient
from tests.broker.requests import batch_of, create_topic, fetch_request, publish, publish_values
from tests.broker.scrape import CONNECTIONS, scrape, wait_until

MakeBroker = Callable[..., RunningBroker]
MEBIBYTE = 1 << 20


def _drip(connection: RawClient, data: bytes, *, every_seconds: float) -> float:
    """Send byte by byte until the broker closes; returns how long that took."""
    started = time.monotonic()
    for byte in data:
        try:
            connection.send_bytes(bytes((byte,)))
        except ConnectionError:
            return time.monotonic() - started
        time.sleep(every_seconds)
    raise AssertionError("the connection was never closed")


@pytest.mark.parametrize("ahead", [0, 4, 14], ids=["length", "header", "body"])
def test_a_request_that_drips_in_is_cut_off(make_broker: MakeBroker, ahead: int) -> None:
    running = make_broker(receive_timeout_ms=400)
    with RawClient(running.bootstrap_servers) as good, RawClient(running.bootstrap_servers) as slow:
        _, frame = slow.frame(ApiKey.METADATA, 1, struct.pack(">i", 4000) + bytes(8000))
        if ahead:
            slow.send_bytes(frame[:ahead])
        assert _drip(slow, frame[ahead:], every_seconds=0.1) < 5
        assert good.api_versions().error_code == ErrorCode.NONE


def test_a_silent_connection_is_closed_and_a_used_one_is_not(make_broker: MakeBroker) -> None:
    running = make_broker(idle_timeout_ms=1500)
    with RawClient(running.bootstrap_servers) as idle, RawClient(running.bootstrap_servers) as used:
        idle.api_versions()
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            used.api_versions()
            time.sleep(0.2)
        assert idle.wait_closed(2) == b""
        used.api_versions()


def test_a_fetch_that_waits_longer_than_the_idle_time_is_answered(make_broker: MakeBroker) -> None:
    running = make_broker(idle_timeout_ms=1000)
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client)
        response = client.fetch(fetch_request(topic, FetchPartition(0), max_wait_ms=3500))
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_a_busy_connection_is_never_taken_for_a_slow_one(make_broker: MakeBroker) -> None:
    running = make_broker(receive_timeout_ms=400)
    with RawClient(running.bootstrap_servers) as client:
        _, frame = client.frame(ApiKey.API_VERSIONS, 0, b"")
        client.send_bytes(frame[:9])
        deadline = time.monotonic() + 4
        count = 0
        # Every write ends inside a request, so there is always one under way, but never the same.
        while time.monotonic() < deadline:
            client.send_bytes(frame[9:] + frame[:9])
            client.receive(ApiKey.API_VERSIONS, 0)
            count += 1
            time.sleep(0.01)
        assert count > 50


def test_a_client_that_reads_nothing_is_cut_off(make_broker: MakeBroker) -> None:
    running = make_broker(write_buffer_bytes_max=4 * MEBIBYTE, stalled_write_timeout_ms=800)
    with RawClient(running.bootstrap_servers) as good:
        topic = _fill(good, mebibytes=16)
        with RawClient(running.bootstrap_servers, receive_buffer_bytes=8192) as deaf:
            deaf.send_fetch(fetch_request(topic, FetchPartition(0, partition_max_bytes=50 << 20)), 12)
            wait_until(
                lambda: scrape(running.operations_url)[CONNECTIONS] == 1, "the connection is closed", within_seconds=10
            )
        assert good.api_versions().error_code == ErrorCode.NONE


def test_a_client_that_reads_slowly_but_steadily_is_served(make_broker: MakeBroker) -> None:
    running = make_broker(write_buffer_bytes_max=4 * MEBIBYTE, stalled_write_timeout_ms=800)
    with RawClient(running.bootstrap_servers) as good:
        topic = _fill(good, mebibytes=12)
        with RawClient(running.bootstrap_servers, receive_buffer_bytes=65536) as slow:
            slow.send_fetch(fetch_request(topic, FetchPartition(0, partition_max_bytes=50 << 20)), 12)
            size = int.from_bytes(slow.socket.recv(4), "big")
            assert size > 11 * MEBIBYTE
            received = 0
            while received < size:
                chunk = slow.socket.recv(128 * 1024)
                assert chunk, f"cut off after {received} of {size} bytes"
                received += len(chunk)
                time.sleep(0.03)


def test_clients_that_never_read_cost_a_bounded_amount_of_memory(make_process: Callable[..., BrokerProcess]) -> None:
    process = make_process(write_buffer_bytes_max=2 * MEBIBYTE)
    with RawClient(process.address) as good:
        topic = _fill(good, mebibytes=8)
        good.fetch(fetch_request(topic, FetchPartition(0, partition_max_bytes=MEBIBYTE)))
        before = process.rss_bytes()
        deaf = [RawClient(process.address, receive_buffer_bytes=8192) for _ in range(10)]
        for connection in deaf:
            for _ in range(200):
                connection.send_fetch(fetch_request(topic, FetchPartition(0, partition_max_bytes=MEBIBYTE)), 12)
        time.sleep(1)
        grown = process.rss_bytes() - before
        assert grown < 60 * MEBIBYTE, f"{grown >> 20} MiB for ten clients with two hundred fetches each"
        started = time.monotonic()
        good.api_versions()
        assert time.monotonic() - started < 1
        for connection in deaf:
            connection.close()
        wait_until(lambda: scrape(process.operations_url)[CONNECTIONS] == 1, "the connections are forgotten")


def test_half_sent_large_requests_cost_only_the_bytes_that_came(make_process: Callable[..., BrokerProcess]) -> None:
    process = make_process()
    with RawClient(process.address) as good:
        good.api_versions()
        before = process.rss_bytes()
        liars = [RawClient(process.address) for _ in range(100)]
        for connection in liars:
            connection.send_bytes(struct.pack(">i", 100 * MEBIBYTE) + bytes(1000))
        good.api_versions()
        time.sleep(0.3)
        grown = process.rss_bytes() - before
        assert grown < 20 * MEBIBYTE, f"{grown >> 20} MiB for a hundred declared frames of 100 MiB"
        for connection in liars:
            connection.close()


def test_two_hundred_dripping_clients_do_not_slow_a_good_one(make_broker: MakeBroker) -> None:
    running = make_broker(receive_timeout_ms=60_000)
    with RawClient(running.bootstrap_servers) as good:
        topic = create_topic(good)
        _, frame = good.frame(ApiKey.METADATA, 1, bytes(100))
        slow = [RawClient(running.bootstrap_servers) for _ in range(200)]
        try:
            longest = 0.0
            for round_number in range(40):
                for connection in slow[round_number % 4 :: 4]:
                    connection.send_bytes(frame[round_number // 4 : round_number // 4 + 1])
                started = time.monotonic()
                publish_values(good, topic, b"x")
                longest = max(longest, time.monotonic() - started)
            assert longest < 1.0
        finally:
            for connection in slow:
                connection.close()


def test_a_stopping_broker_answers_what_was_asked_and_closes_the_rest(make_broker: MakeBroker) -> None:
    running = make_broker()
    with RawClient(running.bootstrap_servers) as idle, RawClient(running.bootstrap_servers) as busy:
        idle.api_versions()
        topic = create_topic(busy)
        busy.send_produce([(topic, None, [(0, batch_of(b"last"))])], 9)
        time.sleep(0.05)
        running.stop()
        _, response = busy.receive_produce(9)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        with pytest.raises(ConnectionClosed):
            busy.receive_frame()
        assert idle.wait_closed() == b""


def _fill(client: RawClient, *, mebibytes: int) -> str:
    """A topic with so much in it."""
    topic = create_topic(client, max_message_bytes="2000000", martlet_flush="never")
    for _ in range(mebibytes):
        assert publish(client, topic, batch_of(bytes(MEBIBYTE))).error_code == ErrorCode.NONE
    return topic
