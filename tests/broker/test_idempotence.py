"""Retries are recognised: the window of five, what a gap and an old epoch get, and what survives a restart."""

from collections.abc import Callable

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from martlet.wire.messages.init_producer_id import InitProducerIdRequest
from martlet.wire.produce import ProducePartitionResult
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch_of, create_topic, new_producer_id, publish, read_all, values_of

LAST_SEQUENCE = 2**31 - 1


class IdempotentProducer:
    """Publishes batches whose sequence the test chooses."""

    def __init__(self, client: RawClient, topic: str, producer_id: int | None = None) -> None:
        self.client = client
        self.topic = topic
        self.id = new_producer_id(client) if producer_id is None else producer_id

    def publish(self, sequence: int, *, count: int = 1, epoch: int = 0) -> ProducePartitionResult:
        values = [b"%d" % ((sequence + n) % 2**31) for n in range(count)]
        return publish(self.client, self.topic, batch_of(*values, producer=(self.id, epoch, sequence)))


@pytest.fixture
def producer(client: RawClient) -> IdempotentProducer:
    return IdempotentProducer(client, create_topic(client))


def test_each_of_the_last_five_batches_is_recognised_with_its_original_offset(producer: IdempotentProducer) -> None:
    offsets = [producer.publish(sequence, count=2).base_offset for sequence in range(0, 12, 2)]
    assert offsets == [0, 2, 4, 6, 8, 10]
    for sequence in (2, 4, 6, 8, 10):
        again = producer.publish(sequence, count=2)
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, sequence)
    assert producer.publish(0, count=2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(read_all(producer.client, producer.topic)) == 12


def test_a_gap_is_out_of_order_and_so_is_everything_after_it(producer: IdempotentProducer) -> None:
    producer.publish(0)
    assert producer.publish(2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.publish(3).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.publish(1).error_code == ErrorCode.NONE
    assert values_of(read_all(producer.client, producer.topic)) == [b"0", b"1"]


def test_a_batch_that_overlaps_an_earlier_one_is_no_duplicate(producer: IdempotentProducer) -> None:
    producer.publish(0, count=3)
    assert producer.publish(0, count=2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.publish(1, count=2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.publish(2, count=2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.publish(3).error_code == ErrorCode.NONE


def test_a_producer_the_partition_does_not_know_may_start_anywhere(producer: IdempotentProducer) -> None:
    assert producer.publish(1000).error_code == ErrorCode.NONE
    assert producer.publish(1001).error_code == ErrorCode.NONE


def test_sequences_wrap_around_after_the_largest(producer: IdempotentProducer) -> None:
    assert producer.publish(LAST_SEQUENCE - 1, count=4).error_code == ErrorCode.NONE
    assert producer.publish(2).error_code == ErrorCode.NONE
    assert producer.publish(LAST_SEQUENCE - 1, count=4).base_offset == 0
    assert producer.publish(LAST_SEQUENCE).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_newer_epoch_starts_at_zero_and_fences_the_older(producer: IdempotentProducer) -> None:
    producer.publish(0)
    assert producer.publish(1, epoch=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.publish(0, epoch=1).error_code == ErrorCode.NONE
    assert producer.publish(1, epoch=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.publish(1, epoch=1).error_code == ErrorCode.NONE


def test_producers_and_partitions_are_kept_apart(client: RawClient) -> None:
    topic = create_topic(client, 2)
    first, second = new_producer_id(client), new_producer_id(client)
    for partition in (0, 1):
        for producer_id in (first, second):
            result = publish(client, topic, batch_of(b"x", producer=(producer_id, 0, 0)), partition=partition)
            assert result.error_code == ErrorCode.NONE
    assert len(read_all(client, topic)) == len(read_all(client, topic, partition=1)) == 2


def test_five_batches_in_flight_are_all_taken_in_order(producer: IdempotentProducer) -> None:
    client = producer.client
    for start in range(0, 50, 5):
        for sequence in range(start, start + 5):
            client.send_produce([(producer.topic, None, [(0, batch_of(b"x", producer=(producer.id, 0, sequence)))])], 9)
        answers = [client.receive_produce(9)[1].topics[0].partitions[0] for _ in range(5)]
        assert [(a.error_code, a.base_offset) for a in answers] == [(0, start + n) for n in range(5)]


def test_a_duplicate_sent_before_the_original_is_answered_gets_its_offset(producer: IdempotentProducer) -> None:
    client = producer.client
    batch = batch_of(b"once", producer=(producer.id, 0, 0))
    for _ in range(3):
        client.send_produce([(producer.topic, None, [(0, batch)])], 9)
    answers = [client.receive_produce(9)[1].topics[0].partitions[0] for _ in range(3)]
    assert [(a.error_code, a.base_offset) for a in answers] == [(0, 0)] * 3
    assert values_of(read_all(client, producer.topic)) == [b"once"]


def test_producer_ids_are_new_every_time(client: RawClient) -> None:
    for version in range(6):
        answers = [client.call(InitProducerIdRequest(transaction_timeout_ms=1000), version) for _ in range(50)]
        assert len({answer.producer_id for answer in answers}) == 50
        assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
    bumped = client.call(InitProducerIdRequest(producer_id=answers[0].producer_id, producer_epoch=0), 4)
    assert bumped.error_code == ErrorCode.NONE
    assert (bumped.producer_id, bumped.producer_epoch) > (answers[0].producer_id, 0)


def test_describe_producers_tells_what_is_remembered(producer: IdempotentProducer) -> None:
    producer.publish(0, count=3)
    request = DescribeProducersRequest([TopicRequest(producer.topic, [0, 9])])
    known, unknown = producer.client.call(request, 0).topics[0].partitions
    (state,) = known.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer.id, 0, 2)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_duplicates_are_recognised_after_a_restart(make_process: Callable[..., BrokerProcess], ending: str) -> None:
    process = make_process()
    with RawClient(process.address) as client:
        topic = create_topic(client)
        producer = IdempotentProducer(client, topic)
        other = IdempotentProducer(client, topic)
        for sequence in range(7):
            assert producer.publish(sequence).error_code == ErrorCode.NONE
        assert other.publish(0, epoch=3).error_code == ErrorCode.NONE
        used = {producer.id, other.id}
    getattr(process, ending)()
    process.start()
    with RawClient(process.address) as client:
        producer = IdempotentProducer(client, topic, producer.id)
        other = IdempotentProducer(client, topic, other.id)
        for sequence in range(2, 7):
            again = producer.publish(sequence)
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, sequence)
        assert producer.publish(8).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.publish(7).error_code == ErrorCode.NONE
        assert other.publish(1, epoch=2).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert len(read_all(client, topic)) == 9
        assert new_producer_id(client) not in used
