"""When a publish to a replicated partition is acknowledged, and when it must not be."""

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.leader_hints import CurrentLeader, NodeEndpoint
from tests.unit.broker.replica_table_bench import ME, SECOND, THIRD, ReplicaTableBench, record, replica_table

TWO_NEEDED = {"min.insync.replicas": "2"}
FLUSH_FIRST = {"martlet.flush": "commit"}


async def test_all_replicas_in_sync_must_hold_a_publish_before_it_is_acknowledged() -> None:
    async with replica_table() as bench:
        bench.store(record())
        answer = bench.produce(b"a", b"b")
        bench.replica_fetch(SECOND, 2, last_epoch=0)
        assert not answer.is_there
        bench.replica_fetch(THIRD, 2, last_epoch=0)
        assert (answer.error, answer.result.base_offset) == (ErrorCode.NONE, 0)


async def test_acks_1_waits_for_the_leader_only() -> None:
    async with replica_table() as bench:
        bench.store(record())
        answer = bench.produce(acks=1)
        assert answer.error is ErrorCode.NONE
        assert bench.partition().high_watermark == 0


async def test_acks_1_waits_for_the_leaders_disk_where_the_topic_wants_a_flush() -> None:
    async with replica_table() as bench:
        bench.store(record(), configs=FLUSH_FIRST)
        answer = bench.produce(acks=1)
        assert not answer.is_there
        await bench.flush()
        assert answer.error is ErrorCode.NONE


async def test_the_leader_itself_counts_only_with_what_it_has_flushed_where_the_topic_wants_a_flush() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME, SECOND)), configs=FLUSH_FIRST)
        answer = bench.produce()
        bench.replica_fetch(SECOND, 1, last_epoch=0)
        assert not answer.is_there
        await bench.flush()
        assert answer.error is ErrorCode.NONE


async def test_with_too_few_in_sync_acks_all_is_refused_and_nothing_is_written() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME,)), configs=TWO_NEEDED)
        assert bench.produce().error is ErrorCode.NOT_ENOUGH_REPLICAS
        assert bench.partition().log.end_offset == 0
        assert bench.produce(acks=1).error is ErrorCode.NONE


async def test_with_too_few_in_sync_after_the_append_the_publisher_gets_an_error_at_once() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME, SECOND)), configs=TWO_NEEDED)
        answer = bench.produce()
        bench.store(record(in_sync=(ME,), eligible=(SECOND,)))
        assert answer.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert bench.partition().high_watermark == 0


async def test_a_lowered_minimum_lets_publishes_through_once_the_store_calls_no_replica_eligible() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME,)), configs=TWO_NEEDED)
        assert bench.produce().error is ErrorCode.NOT_ENOUGH_REPLICAS
        bench.store(record(in_sync=(ME,)), configs={"min.insync.replicas": "1"})
        assert bench.produce().error is ErrorCode.NONE


async def test_a_follower_that_leaves_the_in_sync_set_no_longer_holds_publishes_up() -> None:
    async with replica_table() as bench:
        bench.store(record())
        answer = bench.produce()
        bench.replica_fetch(SECOND, 1, last_epoch=0)
        bench.store(record(in_sync=(ME, SECOND)))
        assert answer.error is ErrorCode.NONE


@pytest.mark.parametrize(
    "successor",
    [
        record(leader=SECOND, epoch=1),
        record(leader=None, epoch=1),
        record(leader=ME, epoch=1),
        record(leader=SECOND, epoch=1, in_sync=(SECOND, THIRD), replicas=(SECOND, THIRD)),
    ],
    ids=["another leads", "no leader", "the same leads again", "moved away"],
)
async def test_a_publish_that_waits_when_leadership_ends_is_never_acknowledged(successor: object) -> None:
    async with replica_table() as bench:
        bench.store(record())
        answer = bench.produce(version=9)
        bench.store(successor)  # type: ignore[arg-type]  # parametrize knows no types
        assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_publish_with_acks_1_that_waits_for_the_flush_when_leadership_ends_is_not_acknowledged() -> None:
    async with replica_table() as bench:
        bench.store(record(), configs=FLUSH_FIRST)
        answer = bench.produce(acks=1)
        bench.store(record(leader=SECOND, epoch=1))
        assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_publish_that_takes_too_long_times_out() -> None:
    async with replica_table() as bench:
        bench.store(record())
        answer = bench.produce(timeout_ms=0)
        while not answer.is_there:
            await bench.settle()
        assert answer.error is ErrorCode.REQUEST_TIMED_OUT


async def test_a_broker_that_lost_touch_with_its_cluster_appends_nothing() -> None:
    async with replica_table() as bench:
        bench.store(record())
        bench.may_act = False
        for acks in (-1, 1):
            assert bench.produce(acks=acks).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bench.partition().log.end_offset == 0


@pytest.mark.parametrize("is_known", [True, False], ids=["a known producer", "a new producer"])
async def test_a_batch_behind_one_that_was_refused_for_a_passing_reason_waits_for_it(is_known: bool) -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME,)))
        first = int(is_known)
        if is_known:
            assert bench.produce(producer=(7, 0, 0)).error is ErrorCode.NONE
        bench.may_act = False
        assert bench.produce(producer=(7, 0, first)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        bench.may_act = True
        assert bench.produce(producer=(7, 0, first + 1)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bench.partition().log.end_offset == first
        for sequence in (first, first + 1):
            assert bench.produce(producer=(7, 0, sequence)).error is ErrorCode.NONE
        assert bench.produce(producer=(7, 0, first + 3)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def assert_the_second_waits_for_the_first(bench: ReplicaTableBench, *, epoch: int) -> None:
    """Once this broker leads again; the first batch of the producer is not in its log."""
    bench.store(record(leader=ME, epoch=epoch, in_sync=(ME,)))
    assert bench.produce(producer=(7, 0, 1)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for sequence in (0, 1):
        assert bench.produce(producer=(7, 0, sequence)).error is ErrorCode.NONE


async def test_a_batch_waits_for_the_one_before_it_however_leaders_change_meanwhile() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=1))
        assert bench.produce(producer=(7, 0, 0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        bench.store(record(leader=THIRD, epoch=2))
        assert_the_second_waits_for_the_first(bench, epoch=3)


async def test_a_batch_waits_for_the_one_before_it_that_was_cut_off_while_another_led() -> None:
    async with replica_table() as bench:
        bench.store(record())
        cut_off = bench.produce(producer=(7, 0, 0))
        bench.store(record(leader=SECOND, epoch=1))
        assert cut_off.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        bench.partition().followed_log.truncate_to(0, bench.clock.now_ms())
        assert_the_second_waits_for_the_first(bench, epoch=2)


async def test_a_batch_that_was_refused_for_what_it_is_makes_no_other_wait() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME,)))
        assert bench.produce(producer=(7, 0, 0)).error is ErrorCode.NONE
        assert bench.produce(producer=(7, 0, 1), damage_at=65).error is ErrorCode.CORRUPT_MESSAGE
        assert not bench.partition().refused


async def test_a_broker_that_loses_touch_after_the_append_acknowledges_nothing() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME, SECOND)))
        answer = bench.produce()
        partition = bench.partition()
        bench.may_act = False
        partition.replica_fetched(SECOND, leader_epoch=0, fetch_offset=1, now_ms=0)
        assert partition.high_watermark == 1
        assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_broker_that_loses_touch_during_the_append_acknowledges_nothing() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME,)))
        answers = iter([True, False])
        bench.table.may_act = lambda: next(answers)
        assert bench.produce().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bench.partition().log.end_offset == 1


async def test_a_publisher_at_a_follower_learns_who_leads_and_where_that_is() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=4))
        answer = bench.produce()
        assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.result.current_leader == CurrentLeader(2, 4)
        assert answer.endpoints == [NodeEndpoint(2, "host2", 9_002, "r2")]


async def test_no_client_is_sent_to_a_leader_that_is_not_known() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=None, epoch=4))
        answer = bench.produce()
        assert answer.error is ErrorCode.LEADER_NOT_AVAILABLE
        assert answer.result.current_leader is None
        assert answer.endpoints == []


async def test_with_one_replica_a_publish_is_acknowledged_after_its_flush() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME,), replicas=(ME,)))
        answer = bench.produce()
        assert not answer.is_there
        await bench.flush()
        assert answer.error is ErrorCode.NONE
        assert bench.partition().high_watermark == 1
