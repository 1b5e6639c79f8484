"""Readers in the rack of a follower (KIP-392): who is sent there, and what a follower shows them."""

import pytest

from martlet.base.errors import ErrorCode
from martlet.cluster.keys import live_key
from martlet.cluster.store import CommitPlan
from martlet.log.replicated_batches import check_replicated
from martlet.wire.batch import build_batch, stamp_batch
from martlet.wire.fetch import FetchPartition
from martlet.wire.leader_hints import CurrentLeader, NodeEndpoint
from tests.unit.broker.replica_table_bench import (
    ME,
    SECOND,
    THIRD,
    FetchAnswer,
    ReplicaTableBench,
    record,
    replica_table,
)


def read(bench: ReplicaTableBench, offset: int = 0, *, rack: str = "", version: int = 18) -> FetchAnswer:
    return bench.fetch(FetchPartition(0, -1, offset), rack_id=rack, max_wait_ms=0, version=version)


def replicated_once(bench: ReplicaTableBench) -> None:
    """One record that all replicas hold and know to be committed."""
    bench.store(record())
    bench.produce()
    for _ in range(2):
        for follower in (SECOND, THIRD):
            bench.replica_fetch(follower, 1, last_epoch=0)


def copied(bench: ReplicaTableBench, offset: int, *, epoch: int = 0) -> None:
    """A batch of the leader's, as a follower's fetcher appends it."""
    batch = bytearray(build_batch([(bench.clock.now_ms(), None, b"v", ())]))
    stamp_batch(memoryview(batch), 0, offset, epoch)
    bench.partition().followed_log.append(check_replicated(bytes(batch)), now_ms=bench.clock.now_ms())


async def test_a_reader_in_a_followers_rack_is_sent_there() -> None:
    async with replica_table() as bench:
        replicated_once(bench)
        answer = read(bench, rack="r3")
        assert answer.result.preferred_read_replica == 3
        assert not answer.result.records


@pytest.mark.parametrize("rack", ["", "r1", "elsewhere"])
async def test_a_reader_whose_rack_has_no_follower_is_served_by_the_leader(rack: str) -> None:
    async with replica_table() as bench:
        replicated_once(bench)
        answer = read(bench, rack=rack)
        assert answer.result.preferred_read_replica == -1
        assert answer.result.records


async def test_no_reader_is_sent_to_a_follower_that_does_not_know_the_offset_to_be_committed() -> None:
    async with replica_table() as bench:
        bench.store(record())
        bench.produce()
        for follower in (SECOND, THIRD):
            bench.replica_fetch(follower, 1, last_epoch=0)
        assert read(bench, 1, rack="r2").result.preferred_read_replica == -1
        bench.replica_fetch(SECOND, 1, last_epoch=0)
        assert read(bench, 1, rack="r2").result.preferred_read_replica == 2


async def test_no_reader_is_sent_to_a_follower_that_is_out_of_sync_or_gone() -> None:
    async with replica_table() as bench:
        replicated_once(bench)
        bench.store(record(in_sync=(ME, THIRD)))
        bench.metadata.commit(CommitPlan(deletes=(live_key(THIRD.broker),)))
        for rack in ("r2", "r3"):
            assert read(bench, rack=rack).result.preferred_read_replica == -1


async def test_a_follower_shows_readers_what_it_knows_to_be_committed() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=3))
        copied(bench, 0, epoch=3)
        copied(bench, 1, epoch=3)
        bench.partition().followed_log.commit(1)
        answer = read(bench)
        assert answer.result.high_watermark == 1
        assert len(answer.result.records) * 2 == bench.partition().log.segments.size_bytes()
        assert read(bench, 1).error is ErrorCode.NONE
        assert read(bench, 2).error is ErrorCode.OFFSET_NOT_AVAILABLE


async def test_a_follower_sends_a_reader_that_is_ahead_of_it_to_the_leader_and_never_out_of_range() -> None:
    # Its disk may have been replaced. A reader may take OFFSET_OUT_OF_RANGE for the last word and begin elsewhere.
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=3))
        assert read(bench, 7).error is ErrorCode.OFFSET_NOT_AVAILABLE
        copied(bench, 0, epoch=3)
        bench.partition().followed_log.commit(1)
        assert read(bench, 2).error is ErrorCode.OFFSET_NOT_AVAILABLE


@pytest.mark.parametrize("copied_count", [0, 1])
async def test_a_follower_does_not_call_a_reader_diverged_that_is_ahead_of_it(copied_count: int) -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=3))
        for offset in range(copied_count):
            copied(bench, offset, epoch=3)
        bench.partition().followed_log.commit(copied_count)
        answer = bench.fetch(FetchPartition(0, 3, 7, 3), max_wait_ms=0)
        assert answer.error is ErrorCode.OFFSET_NOT_AVAILABLE
        assert answer.result.diverging_epoch is None


async def test_a_reader_that_waits_at_a_follower_whose_log_is_cut_is_sent_to_the_leader() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=3))
        copied(bench, 0, epoch=3)
        bench.partition().followed_log.commit(1)
        waiting = bench.fetch(FetchPartition(0, -1, 1), max_wait_ms=60_000)
        bench.partition().followed_log.start_at(0, bench.clock.now_ms())
        await bench.settle()
        assert waiting.error is ErrorCode.OFFSET_NOT_AVAILABLE


async def test_an_offset_that_the_leader_does_not_have_is_out_of_range() -> None:
    async with replica_table() as bench:
        replicated_once(bench)
        assert read(bench, 2).error is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_offset_before_a_followers_start_is_out_of_range() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=3))
        bench.partition().followed_log.start_at(5, bench.clock.now_ms())
        assert read(bench, 4).error is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_no_reader_is_sent_to_a_follower_that_has_deleted_the_offset_already() -> None:
    async with replica_table() as bench:
        replicated_once(bench)
        bench.replica_fetch(SECOND, 1, last_epoch=0, log_start=1)
        assert read(bench, 0, rack="r2").result.preferred_read_replica == -1
        assert read(bench, 1, rack="r2").result.preferred_read_replica == 2


async def test_a_reader_that_waits_at_a_follower_is_woken_when_more_is_committed() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND))
        waiting = bench.fetch(FetchPartition(0, -1, 0), max_wait_ms=60_000)
        copied(bench, 0)
        await bench.settle()
        assert not waiting.is_there
        bench.partition().followed_log.commit(1)
        await bench.settle()
        assert waiting.result.records


async def test_a_reader_that_knows_nothing_of_followers_is_sent_to_the_leader() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND))
        assert read(bench, version=10).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_reader_at_a_broker_without_a_replica_learns_who_leads() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=2, in_sync=(SECOND, THIRD), replicas=(SECOND, THIRD)))
        answer = read(bench)
        assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.result.current_leader == CurrentLeader(2, 2)
        assert answer.endpoints == [NodeEndpoint(2, "host2", 9_002, "r2")]


async def test_while_there_is_no_leader_readers_are_sent_to_find_one() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=None))
        assert read(bench).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_reader_with_an_old_epoch_learns_who_leads_at_a_follower_too() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=2))
        answer = bench.fetch(FetchPartition(0, 1, 0), max_wait_ms=0)
        assert answer.error is ErrorCode.FENCED_LEADER_EPOCH
        assert answer.result.current_leader == CurrentLeader(2, 2)
