"""Very many transactional ids, and very many transactions left open: bounded memory, and nothing hangs for others."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import TRANSACTIONAL_BIT
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from martlet.wire.produce import encode_produce_request
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch_of, create_topic
from tests.broker.test_transaction_apis import SECOND_PRODUCE, TransactionalProducer, read

MEBIBYTE = 1 << 20
IDLE_IDS = 30_000
LEFT_OPEN = 10_000
BYTES_PER_IDLE_ID_MAX = 2_500
BYTES_PER_OPEN_TRANSACTION_MAX = 6_000
TIMEOUT_MS = 30_000
PATIENCE_S = 120
_AT_ONCE = 50
INIT_VERSION = 5


def initialised(client: RawClient, names: Iterable[str], timeout_ms: int) -> Iterator[tuple[int, int]]:
    """The pair of each, many requests under way at a time."""
    for some in chunks(list(names)):
        for name in some:
            client.send(
                ApiKey.INIT_PRODUCER_ID, INIT_VERSION, encode(InitProducerIdRequest(name, timeout_ms), INIT_VERSION)
            )
        for _ in some:
            _, body = client.receive(ApiKey.INIT_PRODUCER_ID, INIT_VERSION)
            answer = decode(InitProducerIdResponse, INIT_VERSION, body)
            assert answer.error_code == 0
            yield answer.producer_id, answer.producer_epoch


def chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _AT_ONCE):
        yield items[start : start + _AT_ONCE]


def load(client: RawClient) -> None:
    """The coordinator is ready."""
    assert TransactionalProducer(client).init() == 0


@pytest.mark.timeout(400)
def test_idle_ids_cost_little_memory_and_leave_the_broker_quick(
    make_process: Callable[..., BrokerProcess],
) -> None:
    process = make_process(transactions_topic_partitions=4)
    with RawClient(process.address, timeout_seconds=PATIENCE_S) as client:
        load(client)
        before = process.rss_bytes()
        for _ in initialised(client, (f"idle-{number}" for number in range(IDLE_IDS)), TIMEOUT_MS):
            pass
        grown = process.rss_bytes() - before
        assert grown < IDLE_IDS * BYTES_PER_IDLE_ID_MAX, f"{grown / MEBIBYTE:.0f} MiB"
        producer = TransactionalProducer(client)
        assert producer.init() == 0
        started = time.monotonic()
        assert producer.produce(b"quick").error_code == 0
        assert producer.end() == 0
        assert time.monotonic() - started < 2


@pytest.mark.timeout(400)
def test_ten_thousand_transactions_left_open_hold_up_nobody_and_are_aborted(
    make_process: Callable[..., BrokerProcess],
) -> None:
    process = make_process(transactions_topic_partitions=4)
    with RawClient(process.address, timeout_seconds=PATIENCE_S) as client:
        load(client)
        topic, other = create_topic(client, 1), TransactionalProducer(client)
        before = process.rss_bytes()
        names = [f"left-{number}" for number in range(LEFT_OPEN)]
        pairs = initialised(client, names, TIMEOUT_MS)
        for some in chunks(list(zip(names, pairs, strict=True))):
            for name, pair in some:
                batch = batch_of(b"left open", producer=(*pair, 0), attributes=TRANSACTIONAL_BIT)
                topics = [(topic, None, [(0, batch)])]
                body = encode_produce_request(
                    SECOND_PRODUCE, topics=topics, acks=-1, timeout_ms=10_000, transactional_id=name
                )
                client.send(ApiKey.PRODUCE, SECOND_PRODUCE, b"".join(body))
            for _ in some:
                result = client.receive_produce(SECOND_PRODUCE)[1].topics[0].partitions[0]
                assert result.error_code == ErrorCode.NONE
        grown = process.rss_bytes() - before
        assert grown < LEFT_OPEN * BYTES_PER_OPEN_TRANSACTION_MAX, f"{grown / MEBIBYTE:.0f} MiB"
        assert read(client, topic, committed=True).last_stable_offset == 0
        assert other.init() == 0
        assert other.produce(b"goes on").error_code == 0
        assert other.end() == 0
        deadline = time.monotonic() + PATIENCE_S
        while (found := read(client, topic, committed=True)).last_stable_offset < found.high_watermark or (
            found.high_watermark < 2 * LEFT_OPEN
        ):
            assert time.monotonic() < deadline, found
            time.sleep(0.5)
