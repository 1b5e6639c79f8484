"""Reading: positions, long polls, resets, divergence, what a reader sees."""

import asyncio
import contextlib
from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.errors import ConnectionFailed
from martlet.client.fetched import Fetched
from martlet.client.fetcher import Fetcher, FetcherOptions, OutOfRange
from martlet.client.offsets import LATEST, list_offsets, offset_ranges
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import TRANSACTIONAL_BIT, TransactionMarker, build_batch, build_marker_batch
from martlet.wire.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResult,
    FetchRequest,
    encode_fetch_response,
)
from tests.unit.client.fake_broker import HANG_UP, FakeBroker, FakeCluster, Reply, client_of

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def fill(broker: FakeBroker, partition: TopicPartition, *values: bytes) -> None:
    broker.append(partition, build_batch([(0, None, value, ()) for value in values]))


def seen(fetched: list[Fetched]) -> list[tuple[int, bytes | None]]:
    return [(r.offset, r.value) for part in fetched for r in part.records(batch_bytes_max=1 << 20)]


def refusing(code: ErrorCode, times: int, broker: FakeBroker, **fields: Any) -> Any:
    def script(request: FetchRequest, version: int) -> Reply | None:
        if len(broker.asked(ApiKey.FETCH)) > times:
            return None
        topics = [
            (t.topic, t.topic_id, [FetchPartitionResult(p.partition, code, **fields) for p in t.partitions])
            for t in request.topics
        ]
        return b"".join(encode_fetch_response(version, topics))

    return script


async def fetch_for_ever(fetcher: Fetcher) -> None:
    while True:
        await fetcher.fetch()


async def test_records_come_from_the_asked_position_on_though_the_batch_starts_earlier() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        fill(broker, T0, b"a", b"b", b"c")
        fill(broker, T0, b"d")
        async with client_of(broker) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 1})
            fetched = await fetcher.fetch()
            assert seen(fetched) == [(1, b"b"), (2, b"c"), (3, b"d")]
            assert fetched[0].high_watermark == 4
            assert [header.base_offset for header, _ in fetched[0].batches()] == [0, 3]
            assert fetcher.positions == {T0: 4}
            assert await fetcher.fetch() == []


async def test_new_messages_are_found_by_the_next_fetch() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        async with client_of(broker) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0})
            assert await fetcher.fetch() == []
            fill(broker, T0, b"a")
            assert seen(await fetcher.fetch()) == [(0, b"a")]


async def test_partitions_of_two_brokers_are_read_side_by_side() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as one, FakeBroker(shared, 2) as two:
        shared.add_topic("t", [1, 2])
        fill(one, T0, b"a")
        fill(two, T1, b"b")
        async with client_of(one) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0, T1: 0})
            found: list[tuple[int, bytes | None]] = []
            while len(found) < 2:
                found += seen(await fetcher.fetch())
        assert sorted(found) == [(0, b"a"), (0, b"b")]


async def test_a_silent_broker_does_not_hold_up_the_data_of_another() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as one, FakeBroker(shared, 2) as two:
        shared.add_topic("t", [1, 2])

        async def wait_long(request: FetchRequest, version: int) -> Reply:
            await asyncio.sleep(60)
            return HANG_UP

        two.scripts[ApiKey.FETCH] = wait_long
        async with client_of(one) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0, T1: 0})
            for value in (b"a", b"b"):
                fill(one, T0, value)
                found: list[tuple[int, bytes | None]] = []
                while not found:
                    found = seen(await asyncio.wait_for(fetcher.fetch(), 2))
                assert found[0][1] == value
            assert len(two.asked(ApiKey.FETCH)) == 1


async def test_a_cancelled_fetch_loses_nothing() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        gate = asyncio.Event()

        async def answer_late(request: FetchRequest, version: int) -> Reply:
            await gate.wait()
            return await broker.fetch(request, version)

        broker.scripts[ApiKey.FETCH] = answer_late
        fill(broker, T0, b"a")
        async with client_of(broker) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0})
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(fetcher.fetch(), 0.05)
            gate.set()
            assert seen(await fetcher.fetch()) == [(0, b"a")]
            assert len(broker.asked(ApiKey.FETCH)) == 1


async def test_clt_8_an_answer_from_before_a_seek_is_dropped() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        fill(broker, T0, b"a")
        fill(broker, T0, b"b")
        gate = asyncio.Event()

        async def answer_late(request: FetchRequest, version: int) -> Reply:
            await gate.wait()
            return await broker.fetch(request, version)

        broker.scripts[ApiKey.FETCH] = answer_late
        async with client_of(broker) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0})
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(fetcher.fetch(), 0.05)
            fetcher.assign({T0: 1})
            gate.set()
            assert await fetcher.fetch() == []
            assert seen(await fetcher.fetch()) == [(1, b"b")]


@pytest.mark.parametrize(("policy", "position"), [(OutOfRange.EARLIEST, 0), (OutOfRange.LATEST, 2)])
async def test_a_position_out_of_range_is_reset_as_the_policy_says(policy: OutOfRange, position: int) -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        fill(broker, T0, b"a", b"b")
        broker.scripts[ApiKey.FETCH] = refusing(ErrorCode.OFFSET_OUT_OF_RANGE, 1, broker)
        async with client_of(broker) as cluster, Fetcher(cluster, FetcherOptions(out_of_range=policy)) as fetcher:
            fetcher.assign({T0: 99})
            assert await fetcher.fetch() == []
            arrived = await fetcher.fetch()
            assert [fetched.position for fetched in arrived] == [position][: len(arrived)]
            assert broker.asked(ApiKey.FETCH)[1].topics[0].partitions[0].fetch_offset == position


async def test_a_fetch_that_is_cancelled_while_a_position_is_reset_loses_nothing() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1, 1])
        batch = build_batch([(0, None, b"b", ())])
        list_offsets_gate = asyncio.Event()

        def out_of_range_and_data(request: FetchRequest, version: int) -> Reply | None:
            if len(broker.asked(ApiKey.FETCH)) > 1:
                return None
            (topic,) = request.topics
            results = [
                FetchPartitionResult(0, ErrorCode.OFFSET_OUT_OF_RANGE),
                FetchPartitionResult(1, ErrorCode.NONE, high_watermark=1, records=batch),
            ]
            return b"".join(encode_fetch_response(version, [(topic.topic, topic.topic_id, results)]))

        async def late(request: Any, version: int) -> Reply:
            await list_offsets_gate.wait()
            return HANG_UP

        broker.scripts[ApiKey.FETCH] = out_of_range_and_data
        broker.scripts[ApiKey.LIST_OFFSETS] = late
        options = FetcherOptions(out_of_range=OutOfRange.EARLIEST)
        async with client_of(broker) as cluster, Fetcher(cluster, options) as fetcher:
            fetcher.assign({T0: 99, T1: 0})
            found: list[Fetched] = []
            for _ in range(2):
                with contextlib.suppress(TimeoutError):
                    found += await asyncio.wait_for(fetcher.fetch(), 0.2)
            assert seen(found) == [(0, b"b")]
            list_offsets_gate.set()


async def test_a_fetch_ends_early_when_the_caller_wants_it_to() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        async with client_of(broker) as cluster, Fetcher(cluster, FetcherOptions(max_wait_ms=30_000)) as fetcher:
            fetcher.assign({T0: 0})
            until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.05, until.set_result, None)
            async with asyncio.timeout(5):
                assert await fetcher.fetch(until) == []
            fill(broker, T0, b"a")
            assert seen(await fetcher.fetch()) == [(0, b"a")]


async def test_without_a_policy_a_position_out_of_range_is_an_error() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        broker.scripts[ApiKey.FETCH] = refusing(ErrorCode.OFFSET_OUT_OF_RANGE, 9, broker)
        async with client_of(broker) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 99})
            assert await fetcher.fetch() == []
            with pytest.raises(ApiError, match="t-0 holds no offset 99"):
                await fetcher.fetch()


async def test_trouble_that_passes_does_not_reach_the_caller() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        fill(broker, T0, b"a")
        broker.scripts[ApiKey.FETCH] = refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, broker)
        async with client_of(broker) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0})
            found: list[tuple[int, bytes | None]] = []
            while not found:
                found = seen(await fetcher.fetch())
        assert found == [(0, b"a")]


async def test_clt_9_trouble_that_lasts_is_raised() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        broker.scripts[ApiKey.FETCH] = refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER, 10**6, broker)
        async with client_of(broker, retry_timeout_ms=50) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0})
            with pytest.raises(ApiError, match="t-0: "):
                await fetch_for_ever(fetcher)


async def test_a_broker_that_restarts_is_read_on_where_reading_stood() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        fill(broker, T0, b"a")
        async with client_of(broker) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0})
            assert seen(await fetcher.fetch()) == [(0, b"a")]
            await broker.stop()
            fill(broker, T0, b"b")
            assert await fetcher.fetch() == []
            await broker.start()
            found: list[tuple[int, bytes | None]] = []
            while not found:
                found = seen(await fetcher.fetch())
        assert found == [(1, b"b")]


async def test_a_broker_that_stays_away_is_an_error() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        async with client_of(broker, retry_timeout_ms=50) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0})
            await fetcher.fetch()
            await broker.stop()
            with pytest.raises(ConnectionFailed, match="no broker reachable at"):
                await fetch_for_ever(fetcher)


async def test_when_histories_diverge_reading_goes_back_to_where_they_part() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        fill(broker, T0, b"a", b"b", b"c")
        async with client_of(broker) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0})
            await fetcher.fetch()
            diverged = EpochEndOffset(0, 1)
            broker.scripts[ApiKey.FETCH] = refusing(ErrorCode.NONE, 2, broker, diverging_epoch=diverged)
            assert await fetcher.fetch() == []
            assert fetcher.positions == {T0: 1}
            assert broker.asked(ApiKey.FETCH)[1].topics[0].partitions[0].last_fetched_epoch == 1


async def test_a_broker_without_topic_ids_is_read_by_name() -> None:
    async with FakeBroker() as broker:
        broker.versions[ApiKey.METADATA] = (0, 9)
        broker.cluster.add_topic("t", [1])
        fill(broker, T0, b"a")
        async with client_of(broker) as cluster, Fetcher(cluster) as fetcher:
            fetcher.assign({T0: 0})
            assert seen(await fetcher.fetch()) == [(0, b"a")]
        assert [asked.version for asked in broker.requests if asked.api_key == ApiKey.FETCH] == [12]


def _transactional(base_offset: int, producer_id: int, value: bytes) -> bytes:
    return build_batch(
        [(0, None, value, ())],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL_BIT,
    )


def _marker(base_offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    return build_marker_batch(
        TransactionMarker(is_commit, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=base_offset,
    )


def test_aborted_transactions_and_markers_are_not_seen() -> None:
    data = b"".join(
        [
            _transactional(0, 7, b"aborted"),
            _transactional(1, 8, b"committed"),
            _marker(2, 7, is_commit=False),
            _transactional(3, 7, b"later, committed"),
            _marker(4, 8, is_commit=True),
            _marker(5, 7, is_commit=True),
        ]
    )
    fetched = Fetched(T0, 0, 6, 6, 0, memoryview(data), [AbortedTransaction(7, 0)])
    assert seen([fetched]) == [(1, b"committed"), (3, b"later, committed")]


async def test_offsets_are_found_per_partition_and_leader() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as one, FakeBroker(shared, 2) as two:
        shared.add_topic("t", [1, 2])
        fill(one, T0, b"a", b"b")
        fill(two, T1, b"c")
        async with client_of(one) as cluster:
            assert await offset_ranges(cluster, [T0, T1]) == {T0: range(2), T1: range(1)}
            found = await list_offsets(cluster, {T1: LATEST}, read_committed=True)
            assert found[T1].offset == 1
        assert two.asked(ApiKey.LIST_OFFSETS)[-1].isolation_level == 1


def sending_to(replica: int, broker: FakeBroker) -> Any:
    """A leader that names another replica to clients that give a rack."""

    def script(request: FetchRequest, version: int) -> Reply | None:
        if not request.rack_id:
            return None
        topics = [
            (
                topic.topic,
                topic.topic_id,
                [FetchPartitionResult(one.partition, preferred_read_replica=replica) for one in topic.partitions],
            )
            for topic in request.topics
        ]
        return b"".join(encode_fetch_response(version, topics))

    return script


async def test_a_reader_with_a_rack_goes_to_the_replica_that_the_leader_names() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as leader, FakeBroker(shared, 2) as near:
        shared.add_topic("t", [1])
        fill(leader, T0, b"a", b"b")
        leader.scripts[ApiKey.FETCH] = sending_to(2, leader)
        async with client_of(leader) as cluster, Fetcher(cluster, FetcherOptions(rack="here")) as fetcher:
            fetcher.assign({T0: 0})
            assert await fetcher.fetch() == []
            assert seen(await fetcher.fetch()) == [(0, b"a"), (1, b"b")]
            fill(leader, T0, b"c")
            assert seen(await fetcher.fetch()) == [(2, b"c")]
        assert len(leader.asked(ApiKey.FETCH)) == 1
        assert len(near.asked(ApiKey.FETCH)) == 2


async def test_a_near_replica_that_cannot_serve_sends_the_reader_back_to_the_leader() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as leader, FakeBroker(shared, 2) as near:
        shared.add_topic("t", [1])
        fill(leader, T0, b"a")
        leader.scripts[ApiKey.FETCH] = sending_to(2, leader)
        near.scripts[ApiKey.FETCH] = refusing(ErrorCode.OFFSET_NOT_AVAILABLE, 9, near)
        async with client_of(leader) as cluster, Fetcher(cluster, FetcherOptions(rack="here")) as fetcher:
            fetcher.assign({T0: 0})
            assert await fetcher.fetch() == []
            assert await fetcher.fetch() == []
            del leader.scripts[ApiKey.FETCH]
            assert seen(await fetcher.fetch()) == [(0, b"a")]


async def test_a_near_replica_that_is_gone_sends_the_reader_back_to_the_leader() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as leader, FakeBroker(shared, 2) as near:
        shared.add_topic("t", [1])
        fill(leader, T0, b"a")
        leader.scripts[ApiKey.FETCH] = sending_to(2, leader)
        near.scripts[ApiKey.FETCH] = lambda request, version: HANG_UP
        async with client_of(leader) as cluster, Fetcher(cluster, FetcherOptions(rack="here")) as fetcher:
            fetcher.assign({T0: 0})
            assert await fetcher.fetch() == []
            assert await fetcher.fetch() == []
            del leader.scripts[ApiKey.FETCH]
            assert seen(await fetcher.fetch()) == [(0, b"a")]
