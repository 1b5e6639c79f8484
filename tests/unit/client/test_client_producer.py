"""Publishing: batching, retries, idempotence, and that every message is settled."""

import asyncio
import itertools
from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.accumulator import Delivered
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError, RequestTimedOut
from martlet.client.producer import Producer, ProducerOptions
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import BatchHeader, iterate_batches
from martlet.wire.compression import Compression
from martlet.wire.produce import ProducePartitionResult, ProduceRequest, encode_produce_response
from martlet.wire.records.record import read_records
from tests.unit.client.fake_broker import HANG_UP, SILENCE, FakeBroker, FakeCluster, Reply, client_of

T0 = TopicPartition("t", 0)


def values(broker: FakeBroker, partition: TopicPartition = T0) -> list[bytes | None]:
    return [record.value for record in read_records(bytes(broker.cluster.logs[partition]), 1 << 20)]


def headers_of(broker: FakeBroker, partition: TopicPartition = T0) -> list[BatchHeader]:
    return [header for _, header in iterate_batches(broker.cluster.logs[partition])]


def refusing(code: ErrorCode, times: int, broker: FakeBroker, message: str | None = None) -> Any:
    """A script that refuses the first `times` requests with an error code and serves the rest."""

    def script(request: ProduceRequest, version: int) -> Reply | None:
        if len(broker.asked(ApiKey.PRODUCE)) > times:
            return None
        results = [
            (
                topic.name,
                topic.topic_id,
                [ProducePartitionResult(index, code, error_message=message) for index, _ in topic.partitions],
            )
            for topic in request.topics
        ]
        return encode_produce_response(version, results)

    return script


async def send_and_flush(cluster: Cluster, count: int, options: ProducerOptions | None = None) -> list[Delivered]:
    async with Producer(cluster, options) as producer:
        deliveries = [await producer.send("t", b"%d" % number) for number in range(count)]
        await producer.flush()
        return [await delivery for delivery in deliveries]


async def test_messages_travel_in_batches_and_come_back_with_their_offsets() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        async with client_of(broker) as cluster:
            delivered = await send_and_flush(cluster, 100)
        assert [place.offset for place in delivered] == list(range(100))
        assert values(broker) == [b"%d" % number for number in range(100)]
        assert len(headers_of(broker)) < 5


@pytest.mark.parametrize("compression", list(Compression))
async def test_every_compression_is_written_as_asked(compression: Compression) -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        async with (
            client_of(broker) as cluster,
            Producer(cluster, ProducerOptions(compression=compression)) as producer,
        ):
            await producer.send("t", b"x" * 100_000, key=b"k", headers=[("h", b"v")], timestamp_ms=123)
        [header] = headers_of(broker)
        assert header.compression == compression
        [record] = read_records(bytes(broker.cluster.logs[T0]), 1 << 20)
        assert (record.key, record.headers, record.timestamp_ms) == (b"k", [("h", b"v")], 123)


async def test_full_batches_leave_without_waiting_for_the_linger() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        options = ProducerOptions(batch_bytes=1_000, linger_ms=60_000)
        async with client_of(broker) as cluster, Producer(cluster, options) as producer:
            deliveries = [await producer.send("t", b"x" * 400) for _ in range(3)]
            await asyncio.wait_for(asyncio.gather(*(_wait(delivery) for delivery in deliveries[:2])), 5)


async def _wait(delivery: Any) -> Delivered:
    result: Delivered = await delivery
    return result


async def test_partitions_of_one_broker_share_a_request() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1, 1, 1])
        async with client_of(broker) as cluster, Producer(cluster, ProducerOptions(linger_ms=50)) as producer:
            for partition in range(3):
                await producer.send("t", b"x", partition=partition)
        [request] = broker.asked(ApiKey.PRODUCE)
        assert sorted(index for index, _ in request.topics[0].partitions) == [0, 1, 2]


async def test_a_key_decides_the_partition_and_an_explicit_partition_beats_it() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1] * 4)
        async with client_of(broker) as cluster, Producer(cluster) as producer:
            by_key = {(await (await producer.send("t", b"x", key=b"foobar"))).partition for _ in range(5)}
            explicit = await (await producer.send("t", b"x", key=b"foobar", partition=2))
        assert by_key == {(-790332482 & 0x7FFFFFFF) % 4}
        assert explicit.partition == 2


async def test_an_explicit_partition_that_does_not_exist_is_refused_at_once() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        async with client_of(broker) as cluster, Producer(cluster) as producer:
            with pytest.raises(ApiError, match="topic 't' has no partition 9; it has 1, numbered from 0"):
                await producer.send("t", b"x", partition=9)


async def test_clt_15_order_survives_lost_connections_and_clt_16_nothing_is_written_twice() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        seen: set[tuple[int, int]] = set()
        turn = 0

        def script(request: ProduceRequest, version: int) -> Reply | None:
            """Cuts every other answer: once before the append, once after it. Knows duplicates like a real broker."""
            nonlocal turn
            turn += 1
            if turn % 4 == 1:
                return HANG_UP
            records = request.topics[0].partitions[0][1]
            assert records is not None
            [(_, header)] = iterate_batches(records)
            identity = (header.producer_id, header.base_sequence)
            if identity in seen:
                return encode_produce_response(
                    version, [(None, request.topics[0].topic_id, [ProducePartitionResult(0, base_offset=0)])]
                )
            seen.add(identity)
            answer = broker.produce(request, version)
            return HANG_UP if turn % 4 == 3 else answer

        broker.scripts[ApiKey.PRODUCE] = script
        async with client_of(broker) as cluster:
            async with Producer(cluster, ProducerOptions(linger_ms=0)) as producer:
                for number in range(40):
                    await producer.send("t", b"%d" % number)
                    await asyncio.sleep(0.002)
            assert (producer.statistics.delivered, producer.statistics.failed) == (40, 0)
        assert values(broker) == [b"%d" % number for number in range(40)]
        sequences = [header.base_sequence for header in headers_of(broker)]
        assert sequences == sorted(sequences)
        assert len({header.producer_id for header in headers_of(broker)}) == 1


async def test_a_retriable_refusal_is_tried_again_with_the_same_numbers() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        broker.scripts[ApiKey.PRODUCE] = refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 2, broker)
        async with client_of(broker) as cluster:
            [place] = await send_and_flush(cluster, 1)
        assert place.offset == 0
        batches = [bytes(request.topics[0].partitions[0][1]) for request in broker.asked(ApiKey.PRODUCE)]
        assert len(batches) == 3
        assert len(set(batches)) == 1


async def test_when_the_leader_moves_the_batch_follows() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as one, FakeBroker(shared, 2) as two:
        topic = shared.add_topic("t", [1])

        def move(request: ProduceRequest, version: int) -> Reply | None:
            topic.leaders, topic.epochs = [2], [2]
            refuse = refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER, 99, one)
            reply: Reply | None = refuse(request, version)
            return reply

        one.scripts[ApiKey.PRODUCE] = move
        async with client_of(one) as cluster:
            assert [place.offset for place in await send_and_flush(cluster, 3)] == [0, 1, 2]
        assert len(two.asked(ApiKey.PRODUCE)) == 1


async def test_a_batch_that_is_too_large_is_halved_until_it_fits() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])

        def script(request: ProduceRequest, version: int) -> Reply | None:
            records = request.topics[0].partitions[0][1]
            assert records is not None
            if len(records) < 1_000:
                return None
            refuse = refusing(ErrorCode.MESSAGE_TOO_LARGE, 10**6, broker)
            reply: Reply | None = refuse(request, version)
            return reply

        broker.scripts[ApiKey.PRODUCE] = script
        async with client_of(broker) as cluster, Producer(cluster, ProducerOptions(linger_ms=50)) as producer:
            deliveries = [await producer.send("t", b"%03d" % number + b"x" * 200) for number in range(20)]
            places = [await delivery for delivery in deliveries]
        assert [place.offset for place in places] == list(range(20))
        assert [(value or b"")[:3] for value in values(broker)] == [b"%03d" % number for number in range(20)]
        sequences = [(header.base_sequence, header.record_count) for header in headers_of(broker)]
        assert all(a + count == b for (a, count), (b, _) in itertools.pairwise(sequences))


async def test_a_single_message_that_is_too_large_fails_and_the_next_one_passes() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        broker.scripts[ApiKey.PRODUCE] = refusing(ErrorCode.MESSAGE_TOO_LARGE, 1, broker, "at most 1048588 bytes")
        async with client_of(broker) as cluster, Producer(cluster) as producer:
            first = await producer.send("t", b"large")
            with pytest.raises(ApiError, match="t-0: at most 1048588 bytes") as caught:
                await first
            assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
            assert (await (await producer.send("t", b"small"))).offset == 0
            assert (producer.statistics.delivered, producer.statistics.failed) == (1, 1)


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
async def test_a_partition_that_lost_its_place_goes_on_under_a_new_id(code: ErrorCode) -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        broker.scripts[ApiKey.PRODUCE] = refusing(code, 1, broker)
        async with client_of(broker) as cluster:
            assert [place.offset for place in await send_and_flush(cluster, 2)] == [0, 1]
        [header] = headers_of(broker)
        assert (header.producer_id, header.base_sequence) == (1002, 0)


async def test_clt_17_what_cannot_be_delivered_in_time_fails_with_the_last_reason() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        broker.scripts[ApiKey.PRODUCE] = refusing(ErrorCode.NOT_ENOUGH_REPLICAS, 10**6, broker, "1 of 2 in sync")
        async with client_of(broker) as cluster, Producer(cluster, ProducerOptions(delivery_timeout_ms=60)) as producer:
            delivery = await producer.send("t", b"x")
            with pytest.raises(RequestTimedOut, match="not delivered within 60 ms: t-0: 1 of 2 in sync"):
                await delivery


async def test_clt_17_a_broker_that_never_answers_settles_messages_too() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        broker.scripts[ApiKey.PRODUCE] = lambda request, version: SILENCE
        async with (
            client_of(broker, request_timeout_ms=60) as cluster,
            Producer(cluster, ProducerOptions(delivery_timeout_ms=50)) as producer,
        ):
            delivery = await producer.send("t", b"x")
            with pytest.raises(RequestTimedOut, match="did not answer PRODUCE"):
                await delivery


async def test_after_an_unknown_outcome_the_partition_goes_on_under_a_new_id() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        broker.scripts[ApiKey.PRODUCE] = lambda request, version: (
            HANG_UP if len(broker.asked(ApiKey.PRODUCE)) == 1 else None
        )
        async with client_of(broker) as cluster, Producer(cluster, ProducerOptions(delivery_timeout_ms=1)) as producer:
            with pytest.raises(RequestTimedOut):
                await (await producer.send("t", b"lost"))
            assert (await (await producer.send("t", b"next"))).offset == 0
        assert [(header.producer_id, header.base_sequence) for header in headers_of(broker)] == [(1002, 0)]


async def test_a_final_refusal_reaches_the_caller_at_once() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        broker.scripts[ApiKey.PRODUCE] = refusing(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 99, broker)
        async with client_of(broker) as cluster, Producer(cluster) as producer:
            with pytest.raises(ApiError, match="Not allowed on this topic"):
                await (await producer.send("t", b"x"))
        assert len(broker.asked(ApiKey.PRODUCE)) == 1


async def test_without_acknowledgement_messages_are_sent_and_have_no_offset() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        async with client_of(broker) as cluster:
            [place] = await send_and_flush(cluster, 1, ProducerOptions(acks=0, idempotent=False))
            assert place.offset == -1
            await cluster.refresh([])
            await asyncio.sleep(0.01)
        assert values(broker) == [b"0"]
        assert not broker.asked(ApiKey.INIT_PRODUCER_ID)


async def test_a_full_buffer_makes_send_wait_and_loses_nothing() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        options = ProducerOptions(buffer_bytes_max=2_000, batch_bytes=1_000, linger_ms=0)
        async with client_of(broker) as cluster:
            places = await send_and_flush(cluster, 200, options)
        assert [place.offset for place in places] == list(range(200))


async def test_topics_are_created_on_first_use_only_if_wanted() -> None:
    async with FakeBroker() as broker, client_of(broker, retry_timeout_ms=20) as cluster:
        async with Producer(cluster, ProducerOptions(create_topics=False)) as producer:
            with pytest.raises(ApiError, match="there is no topic 'new'"):
                await producer.send("new", b"x")
        assert {request.allow_auto_topic_creation for request in broker.asked(ApiKey.METADATA)} == {False}


async def test_leaving_with_cancellation_does_not_wait_for_the_broker() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        broker.scripts[ApiKey.PRODUCE] = lambda request, version: SILENCE

        async def publish_for_ever(cluster: Cluster) -> None:
            async with Producer(cluster) as producer:
                await producer.send("t", b"x")
                await asyncio.sleep(100)

        async with client_of(broker, request_timeout_ms=60_000) as cluster:
            task = asyncio.create_task(publish_for_ever(cluster))
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.wait([task], timeout=2)
            assert task.cancelled()


async def test_what_was_waiting_when_the_producer_was_stopped_is_settled_with_that_reason() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        async with client_of(broker) as cluster:
            producer = Producer(cluster, ProducerOptions(linger_ms=60_000))
            await producer.start()
            delivery = await producer.send("t", b"x")
            await producer.aclose(deliver=False)
            with pytest.raises(ClientError, match="stopped before delivery"):
                await delivery
            with pytest.raises(ClientError, match="not running"):
                await producer.send("t", b"x")


async def test_a_broker_without_topic_ids_is_asked_by_name() -> None:
    async with FakeBroker() as broker:
        broker.versions[ApiKey.METADATA] = (0, 9)
        broker.versions[ApiKey.PRODUCE] = (0, 8)
        broker.cluster.add_topic("t", [1])
        async with client_of(broker) as cluster:
            assert [place.offset for place in await send_and_flush(cluster, 2)] == [0, 1]
        [request] = broker.asked(ApiKey.PRODUCE)
        assert request.topics[0].name == "t"


def test_idempotence_without_all_acknowledgements_is_refused() -> None:
    with pytest.raises(ValueError, match="idempotent publishing needs acks -1"):
        ProducerOptions(acks=1)
    with pytest.raises(ValueError, match="acks must be -1, 0 or 1, not 2"):
        ProducerOptions(acks=2, idempotent=False)
