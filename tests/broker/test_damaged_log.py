"""A sole copy with a wrong byte in what was flushed long ago: that place is refused, and nothing else suffers."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from martlet.base.errors import ErrorCode
from martlet.wire.batch import iterate_batches
from martlet.wire.fetch import FetchPartition, FetchPartitionResult
from martlet.wire.messages.init_producer_id import InitProducerIdRequest
from tests.broker.broker_process import BrokerProcess
from tests.broker.group_requests import commit, committed
from tests.broker.raw_client import RawClient
from tests.broker.requests import (
    create_topic,
    fetch_one,
    fetch_request,
    publish_values,
    read_all,
    records_of,
    values_of,
)
from tests.broker.scrape import scrape, wait_until

_COUNT = 200
_TRY_AGAIN = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


def _damage(process: BrokerProcess, topic: str) -> None:
    [file] = Path(process.data).rglob(f"{topic}-0/*.log")
    content = bytearray(file.read_bytes())
    content[len(content) // _COUNT * 50 + 65] ^= 0xFF  # in the records of batch 50
    file.write_bytes(content)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_only_the_damaged_place_of_a_sole_copy_is_refused(
    make_process: Callable[..., BrokerProcess], ending: str
) -> None:
    process = make_process(checkpoint_interval_ms=50, scrub_bytes_per_second=0)
    with RawClient(process.address) as client:
        topic = create_topic(client)
        for number in range(_COUNT):
            publish_values(client, topic, b"%03d" % number + b"x" * 200)
    time.sleep(0.5)  # so that the recovery point is at the end
    getattr(process, ending)()
    _damage(process, topic)
    process.start()
    with RawClient(process.address) as client:
        before = records_of(fetch_one(client, topic))
        assert [value[:3] for value in values_of(before) if value] == [b"%03d" % number for number in range(50)]
        assert fetch_one(client, topic, offset=50).error_code == ErrorCode.CORRUPT_MESSAGE
        after = values_of(read_all(client, topic, offset=51))
        assert [value[:3] for value in after if value] == [b"%03d" % number for number in range(51, _COUNT)]
        publish_values(client, topic, b"goes on")
        assert scrape(process.operations_url)["martlet_damaged_reads_total"] == 1


def test_readers_that_wait_for_a_decision_that_is_damaged_get_an_error(
    make_process: Callable[..., BrokerProcess],
) -> None:
    process = make_process(checkpoint_interval_ms=50)
    with RawClient(process.address) as client:
        topic = create_topic(client)
    producer = Producer({"bootstrap.servers": process.address, "transactional.id": "paying", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"paid", partition=0)
    producer.commit_transaction(30)
    with RawClient(process.address) as client:
        wait_until(lambda: publish_values(client, topic, b"later") > 1, "the marker")
        result = _read_committed(client, topic, 0)
        assert (result.error_code, result.last_stable_offset) == (ErrorCode.NONE, result.high_watermark)
    time.sleep(0.5)  # so that the recovery point is at the end
    process.kill()
    [file] = Path(process.data).rglob(f"{topic}-0/*.log")
    content = bytearray(file.read_bytes())
    marker = next(position for position, header in iterate_batches(content) if header.is_control)
    content[marker + 16] = 1  # no batch begins like this
    file.write_bytes(content)
    process.start()
    with RawClient(process.address) as client:
        assert values_of(records_of(fetch_one(client, topic)))[:1] == [b"paid"]
        assert _read_committed(client, topic, 0).error_code == ErrorCode.CORRUPT_MESSAGE
        assert scrape(process.operations_url)["martlet_damaged_partitions"] == 1


def _read_committed(client: RawClient, topic: str, offset: int) -> FetchPartitionResult:
    request = fetch_request(topic, FetchPartition(0, fetch_offset=offset))._replace(isolation_level=1)
    return client.fetch(request).topics[0].partitions[0]


def test_damage_is_found_in_the_background(make_process: Callable[..., BrokerProcess]) -> None:
    process = make_process()
    with RawClient(process.address) as client:
        topic = create_topic(client)
        for number in range(_COUNT):
            publish_values(client, topic, b"%03d" % number + b"x" * 200)
    process.stop()
    _damage(process, topic)
    process.start()
    wait_until(
        lambda: scrape(process.operations_url)["martlet_damaged_reads_total"] == 1, "the broker to find the damage"
    )


def _readiness(process: BrokerProcess) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{process.operations_url}/readyz", timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def test_a_broker_that_cannot_serve_some_groups_is_not_ready_until_it_can(
    make_process: Callable[..., BrokerProcess],
) -> None:
    process = make_process(scrub_bytes_per_second=0)
    with RawClient(process.address) as client:
        topic = create_topic(client)
        for offset in range(30):
            commit(client, "g", topic, {0: offset}, note="x" * 1000)
    process.stop()
    [file] = [path for path in Path(process.data).rglob("__consumer_offsets-*/*.log") if path.stat().st_size]
    sound = file.read_bytes()
    file.write_bytes(sound[:100] + b"?" + sound[101:])
    process.start()
    wait_until(lambda: _readiness(process)[0] == 503, "the broker to find that it cannot serve the group")
    assert _readiness(process)[1] == f"not ready: groups are not served, those of {file.parent.name}\n"
    assert scrape(process.operations_url)["martlet_unserved_group_partitions"] == 1
    line = f"{file.parent.name} is led here and its groups are not served"
    wait_until(lambda: line in process.log_path.read_text(), "a line in the log that says so")
    file.write_bytes(sound)
    wait_until(lambda: _readiness(process)[0] == 200, "the group to be served again", within_seconds=30)
    assert scrape(process.operations_url)["martlet_unserved_group_partitions"] == 0
    with RawClient(process.address) as client:
        assert committed(client, "g", topic) == 29


def test_a_broker_that_cannot_serve_some_transactions_is_not_ready_and_hands_out_no_epoch_again(
    make_process: Callable[..., BrokerProcess],
) -> None:
    process = make_process(scrub_bytes_per_second=0)
    ask = InitProducerIdRequest("paying", 60_000)
    with RawClient(process.address) as client:
        made = [client.call(ask, 5) for _ in range(200)]  # more than a start reads
        before = [answer for answer in made if answer.error_code == ErrorCode.NONE][-1]
    process.stop()
    [file] = [path for path in Path(process.data).rglob("__transaction_state-*/*.log") if path.stat().st_size]
    sound = file.read_bytes()
    file.write_bytes(sound[:70] + b"?" + sound[71:])
    process.start()
    wait_until(lambda: _readiness(process)[0] == 503, "the broker to find that it cannot serve the transactions")
    assert file.parent.name in _readiness(process)[1]
    assert scrape(process.operations_url)["martlet_unserved_transaction_partitions"] == 1
    with RawClient(process.address) as client:
        refused = client.call(ask, 5)
        assert refused.error_code in _TRY_AGAIN
        assert refused.producer_id == -1
    file.write_bytes(sound)
    wait_until(lambda: _readiness(process)[0] == 200, "the transactions to be served again", within_seconds=30)
    with RawClient(process.address) as client:
        while (after := client.call(ask, 5)).error_code in _TRY_AGAIN:
            time.sleep(0.1)  # it is being loaded
        assert (after.error_code, after.producer_id) == (ErrorCode.NONE, before.producer_id)
        assert after.producer_epoch > before.producer_epoch
