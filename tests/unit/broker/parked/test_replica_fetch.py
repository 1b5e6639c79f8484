"""What a leader lets its followers fetch, what their fetches prove, and whom it takes for a follower."""

from typing import Any

import pytest

from martlet.base.errors import ErrorCode
from martlet.base.ids import BrokerId, Incarnation, Member
from martlet.cluster.keys import CLUSTER_KEY
from martlet.cluster.records import ClusterRecord, encode_record
from martlet.cluster.store import CommitPlan
from martlet.wire.batch import read_batch_header
from martlet.wire.fetch import EpochEndOffset, FetchPartition
from tests.unit.broker.replica_table_bench import (
    ALL,
    ME,
    SECOND,
    SECRET,
    THIRD,
    FetchAnswer,
    ReplicaTableBench,
    record,
    replica_table,
)

LONG_MS = 60_000


def consumer_fetch(bench: ReplicaTableBench, offset: int = 0) -> FetchAnswer:
    return bench.fetch(FetchPartition(0, -1, offset), max_wait_ms=0)


@pytest.mark.parametrize(
    "claims",
    [
        {"cluster_id": None},
        {"cluster_id": ""},
        {"cluster_id": "cluster"},
        {"replica_epoch": 19},
        {"replica_epoch": -1},
        {"replica_id": 9},
    ],
    ids=str,
)
async def test_an_ordinary_client_that_claims_to_be_a_replica_is_refused(claims: dict[str, Any]) -> None:
    async with replica_table() as bench:
        bench.store(record())
        bench.produce(acks=1)
        answer = bench.replica_fetch(SECOND, 1, last_epoch=0, **claims)
        assert answer.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert not answer.result.records
        leader = bench.partition().leader
        assert leader is not None
        assert not list(leader.followers())


async def test_a_cluster_without_a_secret_lets_no_client_fetch_as_a_replica() -> None:
    async with replica_table() as bench:
        bench.store(record())
        bench.metadata.commit(CommitPlan(puts={CLUSTER_KEY: encode_record(ClusterRecord("cluster", 0))}))
        assert bench.replica_fetch(SECOND, 0, cluster_id="").error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_fetch_in_a_version_without_an_incarnation_is_not_taken_for_a_replicas() -> None:
    async with replica_table() as bench:
        bench.store(record())
        answer = bench.replica_fetch(SECOND, 0, version=14)
        assert answer.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_broker_without_a_replica_of_the_partition_is_no_follower() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME, SECOND), replicas=(ME, SECOND)))
        assert bench.replica_fetch(THIRD, 0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_followers_are_given_what_readers_do_not_see_yet() -> None:
    async with replica_table() as bench:
        bench.store(record())
        bench.produce(b"a", b"b", acks=1)
        answer = bench.replica_fetch(SECOND, 0)
        assert read_batch_header(answer.result.records).record_count == 2
        assert answer.result.high_watermark == 0
        assert consumer_fetch(bench).result.records == b""


async def test_the_high_watermark_reaches_the_followers_with_their_next_fetch() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME, SECOND)))
        bench.produce()
        assert bench.replica_fetch(SECOND, 0).result.high_watermark == 0
        answer = bench.replica_fetch(SECOND, 1, last_epoch=0, max_wait_ms=LONG_MS)
        assert answer.result.high_watermark == 1
        assert consumer_fetch(bench).result.high_watermark == 1


async def test_a_waiting_follower_is_answered_at_once_when_the_high_watermark_rises() -> None:
    async with replica_table() as bench:
        bench.store(record())
        bench.produce(acks=1)
        waiting = bench.replica_fetch(SECOND, 1, last_epoch=0, max_wait_ms=LONG_MS)
        assert not waiting.is_there
        bench.replica_fetch(THIRD, 1, last_epoch=0)
        await bench.settle()
        assert waiting.result.high_watermark == 1


async def test_a_follower_that_does_not_say_what_it_knows_gets_a_new_high_watermark_once() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME, SECOND)))
        bench.produce()
        waiting = bench.replica_fetch(SECOND, 1, last_epoch=0, max_wait_ms=LONG_MS, version=17)
        assert waiting.result.high_watermark == 1
        waiting = bench.replica_fetch(SECOND, 1, last_epoch=0, max_wait_ms=LONG_MS, version=17)
        await bench.settle()
        assert not waiting.is_there
        waiting.reply.abandon()


async def test_a_waiting_follower_is_woken_by_an_append() -> None:
    async with replica_table() as bench:
        bench.store(record())
        waiting = bench.replica_fetch(SECOND, 0, max_wait_ms=LONG_MS)
        assert not waiting.is_there
        bench.produce(acks=1)
        await bench.settle()
        assert waiting.result.records


async def test_a_waiting_follower_proves_what_it_holds_once_and_on_arrival() -> None:
    async with replica_table() as bench:
        bench.store(record())
        waiting = bench.replica_fetch(SECOND, 0, max_wait_ms=LONG_MS)
        bench.clock.advance(500)
        bench.produce(acks=1)
        await bench.settle()
        assert waiting.is_there
        leader = bench.partition().leader
        assert leader is not None
        [progress] = leader.followers()
        assert (progress.fetched_at_ms, progress.leader_end_offset) == (0, 0)


async def test_a_waiting_follower_hears_that_the_leader_has_changed() -> None:
    async with replica_table() as bench:
        bench.store(record())
        waiting = bench.replica_fetch(SECOND, 0, max_wait_ms=LONG_MS)
        bench.store(record(leader=THIRD, epoch=1))
        await bench.settle()
        assert waiting.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_waiting_follower_hears_that_the_epoch_has_changed() -> None:
    async with replica_table() as bench:
        bench.store(record())
        waiting = bench.replica_fetch(SECOND, 0, max_wait_ms=LONG_MS)
        bench.store(record(epoch=1))
        await bench.settle()
        assert waiting.error is ErrorCode.FENCED_LEADER_EPOCH


async def test_followers_with_another_idea_of_the_epoch_are_refused_and_count_for_nothing() -> None:
    async with replica_table() as bench:
        bench.store(record(epoch=5, in_sync=(ME, SECOND)))
        bench.produce(acks=1)
        fenced = bench.replica_fetch(SECOND, 1, epoch=4, last_epoch=4)
        ahead = bench.replica_fetch(SECOND, 1, epoch=6, last_epoch=5)
        assert fenced.error is ErrorCode.FENCED_LEADER_EPOCH
        assert ahead.error is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert bench.partition().high_watermark == 0


async def test_a_follower_whose_history_diverges_learns_where_and_proves_nothing() -> None:
    async with replica_table() as bench:
        bench.store(record(epoch=1, in_sync=(ME, SECOND)))
        bench.produce(acks=1)
        bench.store(record(epoch=3, in_sync=(ME, SECOND)))
        bench.produce(acks=1)
        answer = bench.replica_fetch(SECOND, 2, epoch=3, last_epoch=2)
        assert answer.result.diverging_epoch == EpochEndOffset(1, 1)
        assert bench.partition().high_watermark == 0
        agreed = bench.replica_fetch(SECOND, 1, epoch=3, last_epoch=1)
        assert agreed.result.diverging_epoch is None
        assert bench.partition().high_watermark == 1


async def test_a_follower_that_ends_beyond_the_leader_learns_where_the_leader_ends() -> None:
    async with replica_table() as bench:
        bench.store(record(epoch=1))
        bench.produce(acks=1)
        assert bench.replica_fetch(SECOND, 5, epoch=1, last_epoch=1).result.diverging_epoch == EpochEndOffset(1, 1)


async def test_a_follower_outside_the_log_learns_where_the_log_starts() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME,)))
        for _ in range(4):
            bench.produce()
        bench.partition().followed_log.advance_log_start(3)
        behind = bench.replica_fetch(SECOND, 1, last_epoch=0)
        beyond = bench.replica_fetch(SECOND, 9)
        for answer in (behind, beyond):
            assert (answer.error, answer.result.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3)


async def test_partitions_without_news_are_left_out_of_a_followers_answer() -> None:
    async with replica_table() as bench:
        bench.store(record(), record(index=1))
        asked = [FetchPartition(index, 0, 0, -1, 0, high_watermark=0) for index in (0, 1)]
        bench.produce(acks=1)
        answer = bench.fetch(*asked, replica_id=2, replica_epoch=20, cluster_id=SECRET, max_wait_ms=0)
        assert [result.partition for result in answer.results] == [0]


async def test_the_keeper_of_in_sync_sets_hears_of_a_follower_that_has_caught_up() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME, SECOND)))
        bench.produce(acks=1)
        bench.replica_fetch(SECOND, 1, last_epoch=0)
        bench.replica_fetch(THIRD, 0)
        assert bench.may_join == []
        bench.replica_fetch(THIRD, 1, last_epoch=0)
        assert bench.may_join == [bench.partition()]


async def test_a_broker_that_lost_touch_with_its_cluster_serves_no_fetch() -> None:
    async with replica_table() as bench:
        bench.store(record())
        bench.may_act = False
        assert bench.replica_fetch(SECOND, 0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert consumer_fetch(bench).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_the_fetch_of_an_earlier_process_of_a_follower_counts_for_nothing() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME, SECOND)))
        bench.produce(acks=1)
        earlier = Member(BrokerId(2), Incarnation(7))
        assert bench.replica_fetch(earlier, 1, last_epoch=0).error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert bench.partition().high_watermark == 0


async def test_bytes_for_followers_are_counted_apart_from_those_for_readers() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=ALL))
        bench.produce(acks=1)
        answer = bench.replica_fetch(SECOND, 0)
        counters = bench.partition().counters
        assert (counters.replica_bytes_out, counters.bytes_out) == (len(answer.result.records), 0)
