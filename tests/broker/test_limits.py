"""The broker's bounds: connections, request size, bytes and requests in flight, file descriptors."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.api_keys import ApiKey
from martlet.wire.headers import encode_request_frame
from martlet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from martlet.wire.produce import encode_produce_request
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch_of, create_topic, publish, read_all, values_of
from tests.broker.sample_requests import sample_body
from tests.broker.scrape import CONNECTIONS, scrape, wait_until

MakeBroker = Callable[..., RunningBroker]
MEBIBYTE = 1 << 20


@pytest.mark.parametrize("setting", ["connections_max", "connections_per_address_max"])
def test_one_connection_too_many_is_refused_until_another_ends(make_broker: MakeBroker, setting: str) -> None:
    running = make_broker(**{setting: 5})
    served = [RawClient(running.bootstrap_servers) for _ in range(5)]
    try:
        for client in served:
            client.api_versions()
        with RawClient(running.bootstrap_servers) as refused:
            assert refused.wait_closed() == b""
        for client in served:
            assert client.api_versions().error_code == ErrorCode.NONE
        served.pop().close()
        wait_until(lambda: scrape(running.operations_url)[CONNECTIONS] == 4, "the place is free")
        served.append(RawClient(running.bootstrap_servers))
        served[-1].api_versions()
    finally:
        for client in served:
            client.close()


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_the_number_of_connections_is_changed_while_the_broker_runs(make_broker: MakeBroker, name: str) -> None:
    running = make_broker()

    def change(operation: int, value: str | None) -> None:
        resource = AlterConfigsResource(4, "1", [AlterableConfig(name, operation, value)])
        (result,) = first.call(IncrementalAlterConfigsRequest([resource]), 1).responses
        assert result.error_code == ErrorCode.NONE, result.error_message

    with RawClient(running.bootstrap_servers) as first, RawClient(running.bootstrap_servers) as second:
        second.api_versions()
        change(0, "1")
        with RawClient(running.bootstrap_servers) as refused:
            assert refused.wait_closed() == b""
        assert second.api_versions().error_code == ErrorCode.NONE, "those that are there stay"
        change(1, None)
        with RawClient(running.bootstrap_servers) as third:
            assert third.api_versions().error_code == ErrorCode.NONE


def test_a_request_larger_than_the_limit_ends_the_connection(make_broker: MakeBroker) -> None:
    running = make_broker(request_bytes_max=MEBIBYTE)
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client, max_message_bytes="10000000")
        assert publish(client, topic, batch_of(bytes(MEBIBYTE - 1000))).error_code == ErrorCode.NONE
        body = encode_produce_request(9, topics=[(topic, None, [(0, batch_of(bytes(MEBIBYTE)))])], acks=1, timeout_ms=1)
        _, frame = client.frame(ApiKey.PRODUCE, 9, b"".join(body))
        client.send_bytes(frame[:1000])
        assert client.wait_closed() == b""


def test_ten_thousand_requests_in_one_write_are_answered_in_order(broker: RunningBroker) -> None:
    count = 10_000
    asked = [(ApiKey.API_VERSIONS, 0, b""), (ApiKey.METADATA, 1, sample_body(ApiKey.METADATA, 1, "none-such"))]
    frames = [encode_request_frame(*_nth(asked, n)[:2], n, "raw", _nth(asked, n)[2]) for n in range(count)]
    with RawClient(broker.bootstrap_servers) as client:
        client.send_bytes(b"".join(frames))
        answered = [client.receive(*_nth(asked, n)[:2])[0] for n in range(count)]
        assert answered == list(range(count))


def test_ten_thousand_publishes_in_one_write_are_appended_and_answered_in_order(broker: RunningBroker) -> None:
    count = 10_000
    with RawClient(broker.bootstrap_servers, timeout_seconds=60) as client:
        topic = create_topic(client)
        frames = []
        for n in range(count):
            topics = [(topic, None, [(0, batch_of(b"%d" % n))])]
            body = b"".join(encode_produce_request(9, topics=topics, acks=-1, timeout_ms=30_000))
            frames.append(encode_request_frame(ApiKey.PRODUCE, 9, n, "raw", body))
        client.send_bytes(b"".join(frames))
        answers = [client.receive_produce(9) for _ in range(count)]
        assert [received for received, _ in answers] == list(range(count))
        assert [answer.topics[0].partitions[0].base_offset for _, answer in answers] == list(range(count))
        assert values_of(read_all(client, topic)) == [b"%d" % n for n in range(count)]


def test_large_requests_beyond_the_memory_budget_wait_and_are_all_served(make_broker: MakeBroker) -> None:
    running = make_broker(in_flight_bytes_max=4 * MEBIBYTE)
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client, max_message_bytes="10000000")

    def publish_slowly(number: int) -> int:
        with RawClient(running.bootstrap_servers, timeout_seconds=60) as client:
            batch = batch_of(bytes((number,)) * (3 * MEBIBYTE))
            body = encode_produce_request(9, topics=[(topic, None, [(0, batch)])], acks=-1, timeout_ms=30_000)
            _, frame = client.frame(ApiKey.PRODUCE, 9, b"".join(body))
            for start in range(0, len(frame), 256 * 1024):
                client.send_bytes(frame[start : start + 256 * 1024])
                time.sleep(0.005)
            _, response = client.receive_produce(9)
            return response.topics[0].partitions[0].error_code

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(publish_slowly, range(10))) == [ErrorCode.NONE] * 10


def test_the_memory_budget_bounds_what_half_sent_requests_hold(make_process: Callable[..., BrokerProcess]) -> None:
    process = make_process(in_flight_bytes_max=8 * MEBIBYTE)
    half = (40 * MEBIBYTE).to_bytes(4, "big") + bytes(20 * MEBIBYTE)
    with RawClient(process.address) as good:
        good.api_versions()
        before = process.rss_bytes()
        greedy = [RawClient(process.address) for _ in range(20)]
        for connection in greedy:
            connection.socket.setblocking(False)
        deadline = time.monotonic() + 2
        position = dict.fromkeys(greedy, 0)
        while time.monotonic() < deadline:
            for connection in greedy:
                try:
                    sent = connection.socket.send(half[position[connection] : position[connection] + 65536])
                    position[connection] += sent
                except BlockingIOError:
                    continue
        grown = process.rss_bytes() - before
        assert grown < 100 * MEBIBYTE, f"{grown >> 20} MiB where 8 are allowed and 400 were offered"
        good.api_versions()
        for connection in greedy:
            connection.close()


def test_running_out_of_file_descriptors_harms_only_newcomers(make_process: Callable[..., BrokerProcess]) -> None:
    process = make_process(open_files_max=80)
    with RawClient(process.address) as old:
        topic = create_topic(old, segment_bytes=str(MEBIBYTE))
        assert publish(old, topic, batch_of(b"before")).error_code == ErrorCode.NONE
        crowd = [RawClient(process.address, timeout_seconds=5) for _ in range(120)]
        spent = process.cpu_seconds()
        time.sleep(1)
        assert process.cpu_seconds() - spent < 0.5, "the broker spins"
        assert publish(old, topic, batch_of(b"still served")).error_code == ErrorCode.NONE
        # A segment that is full now needs files for the next one; being refused is fine, if clients are to retry.
        codes = {publish(old, topic, batch_of(bytes(400_000))).error_code for _ in range(6)}
        assert codes <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
        assert values_of(read_all(old, topic))[:2] == [b"before", b"still served"]
        for connection in crowd:
            connection.close()
        wait_until(lambda: _connects(process.address), "newcomers are served again")
        wait_until(
            lambda: publish(old, topic, batch_of(b"and now")).error_code == ErrorCode.NONE, "publishes are taken"
        )
        assert values_of(read_all(old, topic))[-1] == b"and now"


def test_a_thousand_connections_leave_nothing_behind(broker: RunningBroker) -> None:
    wait_until(lambda: scrape(broker.operations_url)[CONNECTIONS] == 0, "earlier tests' connections are gone")
    crowd = [RawClient(broker.bootstrap_servers) for _ in range(500)]
    crowd[-1].api_versions()
    assert scrape(broker.operations_url)[CONNECTIONS] == 500
    for connection in crowd:
        connection.close()
    for _ in range(500):
        RawClient(broker.bootstrap_servers).close()
    wait_until(lambda: scrape(broker.operations_url)[CONNECTIONS] == 0, "all connections are forgotten")


def _nth(asked: list[tuple[ApiKey, int, bytes]], number: int) -> tuple[ApiKey, int, bytes]:
    return asked[number % len(asked)]


def _connects(address: str) -> bool:
    try:
        with RawClient(address, timeout_seconds=2) as client:
            return client.api_versions().error_code == ErrorCode.NONE
    except (OSError, AssertionError):
        return False
