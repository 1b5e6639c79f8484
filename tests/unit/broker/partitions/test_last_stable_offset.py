"""How far readers of committed data see: not into a transaction that is open, or whose marker is not committed yet."""

import pytest

from martlet.broker.ground.request import RequestContext
from martlet.broker.handlers import list_offsets
from martlet.broker.partitions.watermarks import READ_COMMITTED, READ_UNCOMMITTED
from martlet.wire.batch import (
    TRANSACTIONAL_BIT,
    TransactionMarker,
    build_batch,
    build_marker_batch,
    iterate_batches,
    read_batch_header,
)
from martlet.wire.fetch import FetchPartition
from martlet.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.unit.broker.replica_table_bench import (
    LINK,
    ME,
    SECOND,
    THIRD,
    FetchAnswer,
    ReplicaTableBench,
    record,
    replica_table,
)

PRODUCER = 7


def append(bench: ReplicaTableBench, batch: bytes) -> None:
    records = memoryview(bytearray(batch))
    bench.partition().append(records, read_batch_header(records), now_ms=bench.clock.now_ms())


def plain(bench: ReplicaTableBench) -> None:
    append(bench, build_batch([(bench.clock.now_ms(), None, b"plain", ())]))


def in_transaction(bench: ReplicaTableBench, sequence: int = 0, producer_id: int = PRODUCER) -> None:
    records = [(bench.clock.now_ms(), None, b"open", ())]
    append(
        bench,
        build_batch(
            records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, attributes=TRANSACTIONAL_BIT
        ),
    )


def marker(bench: ReplicaTableBench, *, is_commit: bool = True, producer_id: int = PRODUCER) -> None:
    end = TransactionMarker(is_commit, 0)
    now_ms = bench.clock.now_ms()
    append(bench, build_marker_batch(end, producer_id=producer_id, producer_epoch=0, timestamp_ms=now_ms))


def led_alone(bench: ReplicaTableBench) -> None:
    bench.store(record(in_sync=(ME,), replicas=(ME,)))
    bench.table.get("orders", 0)


def read(bench: ReplicaTableBench, offset: int, isolation: int, **request: int) -> FetchAnswer:
    request = {"max_wait_ms": 0, **request}
    return bench.fetch(FetchPartition(0, -1, offset), isolation_level=isolation, **request)


def offsets_in(answer: FetchAnswer) -> list[int]:
    return [header.base_offset for _, header in iterate_batches(memoryview(bytes(answer.result.records)))]


async def list_offset(bench: ReplicaTableBench, timestamp: int, isolation: int) -> int:
    asked = ListOffsetsTopic("orders", [ListOffsetsPartition(0, timestamp=timestamp)])
    request = ListOffsetsRequest(isolation_level=isolation, topics=[asked])
    response = await list_offsets.handle(bench.services, request, RequestContext(LINK, 7, "test"))
    return response.topics[0].partitions[0].offset


async def test_readers_of_committed_data_stop_where_the_oldest_open_transaction_begins() -> None:
    async with replica_table() as bench:
        led_alone(bench)
        plain(bench)
        in_transaction(bench)
        plain(bench)
        await bench.flush()
        partition = bench.partition()
        assert (partition.high_watermark, partition.log.last_stable_offset) == (3, 1)
        assert partition.watermarks.readable_end(READ_UNCOMMITTED) == 3
        assert partition.watermarks.readable_end(READ_COMMITTED) == 1
        assert offsets_in(read(bench, 0, READ_UNCOMMITTED)) == [0, 1, 2]
        assert offsets_in(read(bench, 0, READ_COMMITTED)) == [0]
        assert offsets_in(read(bench, 1, READ_COMMITTED)) == []


async def test_every_answer_names_both_bounds_and_only_readers_of_committed_data_get_a_list_of_aborted_ones() -> None:
    async with replica_table() as bench:
        led_alone(bench)
        plain(bench)
        in_transaction(bench)
        await bench.flush()
        for isolation, aborted in ((READ_UNCOMMITTED, None), (READ_COMMITTED, [])):
            result = read(bench, 0, isolation).result
            assert (result.high_watermark, result.last_stable_offset) == (2, 1)
            assert result.aborted_transactions == aborted


async def test_latest_is_the_last_stable_offset_for_readers_of_committed_data() -> None:
    async with replica_table() as bench:
        led_alone(bench)
        plain(bench)
        bench.clock.advance(1_000)
        in_transaction(bench)
        await bench.flush()
        assert await list_offset(bench, list_offsets.LATEST, READ_UNCOMMITTED) == 2
        assert await list_offset(bench, list_offsets.LATEST, READ_COMMITTED) == 1
        now_ms = bench.clock.now_ms()
        assert await list_offset(bench, now_ms, READ_UNCOMMITTED) == 1
        assert await list_offset(bench, now_ms, READ_COMMITTED) == -1
        assert await list_offset(bench, list_offsets.MAX_TIMESTAMP, READ_COMMITTED) == 0
        assert await list_offset(bench, list_offsets.EARLIEST, READ_COMMITTED) == 0


async def test_a_marker_decides_only_when_it_is_committed() -> None:
    async with replica_table() as bench:
        bench.store(record())
        in_transaction(bench)
        marker(bench)
        partition = bench.partition()
        for follower in (SECOND, THIRD):
            bench.replica_fetch(follower, 1)
        assert (partition.high_watermark, partition.log.last_stable_offset) == (1, 0)
        for follower in (SECOND, THIRD):
            bench.replica_fetch(follower, 2, last_epoch=0)
        assert (partition.high_watermark, partition.log.last_stable_offset) == (2, 2)


async def test_an_older_transaction_holds_a_younger_decided_one_back() -> None:
    async with replica_table() as bench:
        led_alone(bench)
        in_transaction(bench, producer_id=1)
        in_transaction(bench, producer_id=2)
        marker(bench, producer_id=2)
        await bench.flush()
        assert bench.partition().log.last_stable_offset == 0
        marker(bench, producer_id=1)
        await bench.flush()
        assert bench.partition().log.last_stable_offset == bench.partition().high_watermark == 4


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_parked_reader_of_committed_data_waits_for_the_marker_and_not_for_the_high_watermark(
    is_commit: bool,
) -> None:
    async with replica_table() as bench:
        led_alone(bench)
        in_transaction(bench)
        await bench.flush()
        waiting = read(bench, 0, READ_COMMITTED, max_wait_ms=60_000, min_bytes=1)
        assert not waiting.is_there
        in_transaction(bench, sequence=1)
        await bench.flush()
        await bench.settle()
        assert not waiting.is_there
        marker(bench, is_commit=is_commit)
        await bench.flush()
        await bench.settle()
        assert offsets_in(waiting) == [0, 1, 2]


async def test_followers_are_given_all_and_hear_of_both_bounds() -> None:
    async with replica_table() as bench:
        bench.store(record())
        in_transaction(bench)
        plain(bench)
        for follower in (SECOND, THIRD):
            bench.replica_fetch(follower, 2, last_epoch=0)
        answer = bench.replica_fetch(SECOND, 0, last_epoch=0)
        assert offsets_in(answer) == [0, 1]
        assert (answer.result.high_watermark, answer.result.last_stable_offset) == (2, 0)


async def test_an_open_transaction_is_known_after_a_restart_and_after_a_truncation() -> None:
    async with replica_table() as bench:
        led_alone(bench)
        in_transaction(bench)
        marker(bench)
        in_transaction(bench, sequence=1)
        await bench.flush()
        await bench.stop()
        again = ReplicaTableBench(bench.disk, bench.metadata)
        again.table.get("orders", 0)
        await again.flush()
        partition = again.partition()
        assert (partition.high_watermark, partition.log.last_stable_offset) == (3, 2)
        partition.followed_log.truncate_to(1, again.clock.now_ms())
        assert (partition.high_watermark, partition.log.last_stable_offset) == (1, 0)


def aborted_in(answer: FetchAnswer) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in answer.result.aborted_transactions or ()]


async def test_readers_of_committed_data_get_the_aborted_transactions_of_what_they_get_and_no_others() -> None:
    async with replica_table() as bench:
        led_alone(bench)
        for number in range(3):  # offsets 3n (data), 3n + 1 (abort), 3n + 2 (plain)
            in_transaction(bench, producer_id=number)
            marker(bench, is_commit=False, producer_id=number)
            plain(bench)
        await bench.flush()
        assert aborted_in(read(bench, 0, READ_COMMITTED)) == [(0, 0), (1, 3), (2, 6)]
        assert aborted_in(read(bench, 5, READ_COMMITTED)) == [(2, 6)]
        only_first = bench.fetch(FetchPartition(0, -1, 0, partition_max_bytes=1), isolation_level=1, max_wait_ms=0)
        assert offsets_in(only_first) == [0]
        assert aborted_in(only_first) == [(0, 0)]
        assert read(bench, 0, READ_UNCOMMITTED).result.aborted_transactions is None


async def test_a_reader_that_begins_inside_an_aborted_transaction_hears_of_it() -> None:
    async with replica_table() as bench:
        led_alone(bench)
        in_transaction(bench)
        in_transaction(bench, sequence=1)
        marker(bench, is_commit=False)
        await bench.flush()
        assert aborted_in(read(bench, 1, READ_COMMITTED)) == [(PRODUCER, 0)]
        assert aborted_in(read(bench, 2, READ_COMMITTED)) == [(PRODUCER, 0)], "the marker ends it at the reader"


async def test_committed_transactions_are_in_no_list() -> None:
    async with replica_table() as bench:
        led_alone(bench)
        in_transaction(bench)
        marker(bench)
        await bench.flush()
        answer = read(bench, 0, READ_COMMITTED)
        assert offsets_in(answer) == [0, 1]
        assert aborted_in(answer) == []
