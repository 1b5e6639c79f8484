"""Deleting records of a replicated partition: done when every replica in sync has forgotten them."""

import asyncio

from martlet.base.errors import ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.handlers import delete_records
from martlet.wire.fetch import FetchPartition
from martlet.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.unit.broker.replica_table_bench import LINK, ME, SECOND, SECRET, ReplicaTableBench, record, replica_table


def copied(bench: ReplicaTableBench, *, log_start: int) -> None:
    """The follower has all three records, and its log starts there."""
    asked = FetchPartition(0, 0, 3, 0, log_start, high_watermark=3)
    bench.fetch(asked, replica_id=SECOND.broker, replica_epoch=SECOND.incarnation, cluster_id=SECRET, max_wait_ms=0)


def delete(bench: ReplicaTableBench, timeout_ms: int) -> "asyncio.Task[tuple[int, int]]":
    async def run() -> tuple[int, int]:
        request = DeleteRecordsRequest([DeleteRecordsTopic("orders", [DeleteRecordsPartition(0, 2)])], timeout_ms)
        response = await delete_records.handle(bench.services, request, RequestContext(LINK, 2, None))
        [result] = response.topics[0].partitions
        return result.error_code, result.low_watermark

    return asyncio.create_task(run())


def published(bench: ReplicaTableBench) -> None:
    bench.store(record(in_sync=(ME, SECOND)))
    bench.produce(b"a", b"b", b"c", acks=1)
    copied(bench, log_start=0)


async def test_deleted_records_are_gone_from_the_followers_in_sync_before_the_answer() -> None:
    async with replica_table() as bench:
        published(bench)
        deleting = delete(bench, 60_000)
        while bench.partition().log.log_start_offset != 2:
            await bench.settle()
        copied(bench, log_start=0)
        await asyncio.sleep(0.05)
        assert not deleting.done()
        copied(bench, log_start=2)
        assert await deleting == (ErrorCode.NONE, 2)


async def test_a_follower_that_does_not_follow_in_time_is_reported() -> None:
    async with replica_table() as bench:
        published(bench)
        assert await delete(bench, 1) == (ErrorCode.REQUEST_TIMED_OUT, 2)


async def test_who_waits_for_followers_hears_that_the_leader_has_changed() -> None:
    async with replica_table() as bench:
        published(bench)
        deleting = delete(bench, 60_000)
        while bench.partition().log.log_start_offset != 2:
            await bench.settle()
        bench.store(record(leader=SECOND, epoch=1))
        assert (await deleting)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_the_time_for_the_followers_runs_while_the_new_start_is_made_durable() -> None:
    async with replica_table() as bench:
        published(bench)

        async def slowly() -> None:
            await asyncio.sleep(0.5)

        bench.services.checkpoint = slowly
        begun = asyncio.get_running_loop().time()
        assert await delete(bench, 600) == (ErrorCode.REQUEST_TIMED_OUT, 2)
        assert asyncio.get_running_loop().time() - begun < 1.0
