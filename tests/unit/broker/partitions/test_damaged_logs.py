"""What a broker does with a log that it cannot read: its readers get errors, its process and other partitions go on."""

import errno
import logging
import os

import pytest

from martlet.base.disk import storage_failure
from martlet.base.errors import ApiError, ErrorCode, LogDamaged, StorageFailure
from martlet.base.ids import Member
from martlet.broker.ground.request import RequestContext
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.handlers import list_offsets, offset_for_leader_epoch
from martlet.broker.partitions.housekeeping import Housekeeping
from martlet.broker.partitions.partition import Partition
from martlet.log.replicated_batches import check_replicated
from martlet.wire.batch import build_batch, read_batch_header, stamp_batch
from martlet.wire.fetch import FetchPartition
from martlet.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from martlet.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.broker.replica_table_bench import LINK, ME, SECOND, THIRD, ReplicaTableBench, record, replica_table

DAMAGE = LogDamaged("/logs/orders-0/00000000000000000000.log: damaged at byte 7, near offset 3")
DENIED = StorageFailure("/logs/orders-0/00000000000000000000.log: Permission denied")


def copied(partition: Partition, offset: int, *, epoch: int = 0) -> None:
    """A batch of the leader's, as a follower's fetcher appends it."""
    batch = bytearray(build_batch([(0, None, b"v", ())]))
    stamp_batch(memoryview(batch), 0, offset, epoch)
    partition.followed_log.append(check_replicated(bytes(batch)), now_ms=0)


def errors_logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.ERROR]


def as_the_disk_says_it(error: OSError) -> StorageFailure:
    try:
        raise storage_failure(error, "/logs/orders-0/00000000000000000000.log") from error
    except StorageFailure as failure:
        return failure


def resigning(bench: ReplicaTableBench) -> list[Partition]:
    """Another copy is complete; who is to be given up."""
    asked: list[Partition] = []

    def on_damaged(partition: Partition) -> bool:
        asked.append(partition)
        return True

    bench.table.damage.on_damaged = on_damaged
    return asked


# --- what is reported


async def test_a_reader_of_a_sole_replica_gets_an_error_each_time_and_the_operator_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replica_table() as bench:
        bench.store(record(replicas=(ME,), in_sync=(ME,)))
        partition = bench.table.get("orders", 0)
        codes = {bench.table.damage.read_failed(partition, DAMAGE) for _ in range(3)}
        assert codes == {ErrorCode.CORRUPT_MESSAGE}
        assert bench.table.damage.read_failed(partition, DENIED) is ErrorCode.KAFKA_STORAGE_ERROR
        [first, second] = errors_logged(caplog)
        assert "orders-0" in first
        assert "byte 7, near offset 3" in first
        assert "martlet log check /logs" in first
        assert "Permission denied" in second
        assert bench.metrics.damaged_reads == 4
        assert bench.table.damage.names == {("orders", 0)}
        assert bench.failures == []
        assert not partition.offline


async def test_thousands_of_faults_of_one_log_do_not_fill_the_operators_log(caplog: pytest.LogCaptureFixture) -> None:
    async with replica_table() as bench:
        bench.store(record(replicas=(ME,), in_sync=(ME,)))
        partition = bench.table.get("orders", 0)
        for number in range(1_000):
            bench.table.damage.read_failed(partition, LogDamaged(f"damaged at byte {number}"))
        assert len(errors_logged(caplog)) == 100
        assert bench.metrics.damaged_reads == 1_000


async def test_a_copy_with_a_complete_one_beside_it_is_handed_on_to_be_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with replica_table() as bench:
        bench.store(record())
        asked = resigning(bench)
        for failure in (DAMAGE, DENIED, DAMAGE):
            assert bench.table.damage.read_failed(bench.partition(), failure) is ErrorCode.KAFKA_STORAGE_ERROR
        assert asked == [bench.partition()] * 3
        assert bench.partition().leader is not None
        assert bench.failures == []
        assert len(errors_logged(caplog)) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_a_machine_that_lacks_something_for_the_moment_costs_no_copy(number: int) -> None:
    shortage = as_the_disk_says_it(OSError(number, os.strerror(number)))
    async with replica_table() as bench:
        bench.store(record())
        asked = resigning(bench)
        assert bench.table.damage.read_failed(bench.partition(), shortage) is ErrorCode.KAFKA_STORAGE_ERROR
        assert asked == []
        assert bench.table.damaged() == []
        assert bench.failures == []


async def test_a_copy_that_is_not_in_use_any_more_says_why() -> None:
    async with replica_table() as bench:
        bench.store(record())
        partition = bench.partition()
        partition.close(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        assert bench.table.damage.read_failed(partition, DAMAGE) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not bench.table.damage.names


# --- the copy is replaced


@pytest.mark.parametrize("was_leading", [True, False])
async def test_the_record_in_which_the_broker_has_resigned_replaces_its_copy_in_that_turn(was_leading: bool) -> None:
    async with replica_table() as bench:
        leader = ME if was_leading else SECOND
        bench.store(record(leader=leader, epoch=4))
        before = bench.partition()
        if was_leading:
            bench.produce()
        else:
            copied(before, 0, epoch=4)
        bench.table.damage.read_failed(before, DAMAGE)
        bench.roles_changed.clear()
        bench.store(record(leader=SECOND, epoch=5, in_sync=(SECOND, THIRD)))
        after = bench.partition()
        assert bench.roles_changed == [before, after]
        assert before.offline
        assert (before.log.end_offset, after.log.end_offset, after.high_watermark) == (1, 0, 0)
        assert after.follower is not None
        assert (after.leader_epoch, after.leader_broker) == (5, 2)
        assert after.follower.next_fetch(after.followed_log) == (0, 5, -1, 0)
        assert bench.logs.get(after.name) is after.log
        assert bench.disk.exists("/logs/orders-0.00000000-stray/00000000000000000000.log")
        assert not bench.table.damage.names
        assert bench.table.following() == [after]
        assert list(bench.table.led()) == []


async def test_a_publish_that_waits_hears_that_another_copy_leads() -> None:
    async with replica_table() as bench:
        bench.store(record())
        waiting = bench.produce()
        assert not waiting.is_there
        bench.table.damage.read_failed(bench.partition(), DAMAGE)
        bench.store(record(leader=SECOND, epoch=1, in_sync=(SECOND, THIRD)))
        await bench.settle()
        assert waiting.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("leader", "epoch", "in_sync", "eligible"),
    [
        pytest.param(SECOND, 4, (SECOND, THIRD), (), id="dropped in the epoch in which it has fetched"),
        pytest.param(SECOND, 5, (ME, SECOND, THIRD), (), id="still in sync"),
        pytest.param(SECOND, 5, (SECOND,), (ME,), id="still eligible"),
        pytest.param(None, 5, (SECOND, THIRD), (), id="no leader to copy from"),
    ],
)
async def test_a_copy_that_may_still_count_stays(
    leader: Member | None, epoch: int, in_sync: tuple[Member, ...], eligible: tuple[Member, ...]
) -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=4))
        before = bench.partition()
        copied(before, 0, epoch=4)
        bench.table.damage.read_failed(before, DAMAGE)
        bench.store(record(leader=leader, epoch=epoch, in_sync=in_sync, eligible=eligible))
        assert bench.partition() is before
        assert bench.table.damaged() == [before]


async def test_after_a_time_without_a_leader_the_next_epoch_replaces_it() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=4))
        before = bench.partition()
        bench.table.damage.read_failed(before, DAMAGE)
        bench.store(record(leader=None, epoch=5, in_sync=(SECOND, THIRD)))
        assert bench.partition() is before
        bench.store(record(leader=THIRD, epoch=6, in_sync=(SECOND, THIRD)))
        assert bench.partition() is not before


async def test_a_sound_copy_out_of_all_sets_stays() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=4))
        before = bench.partition()
        bench.store(record(leader=SECOND, epoch=5, in_sync=(SECOND, THIRD)))
        assert bench.partition() is before


async def test_damage_is_forgotten_with_the_copy() -> None:
    async with replica_table() as bench:
        bench.store(record())
        bench.table.damage.read_failed(bench.partition(), DAMAGE)
        bench.store(record(leader=SECOND, epoch=1, in_sync=(SECOND, THIRD), replicas=(SECOND, THIRD)))
        assert not bench.table.damage.names


# --- who reads and writes


class DamagedLog:
    """Makes every read of a partition's log fail."""

    def __init__(self, patch: pytest.MonkeyPatch, *names: str, failure: StorageFailure = DAMAGE) -> None:
        self._failure = failure
        for name in names:
            patch.setattr(f"martlet.log.partition_log.PartitionLog.{name}", self._fail)

    def _fail(self, *arguments: object, **options: object) -> None:
        raise self._failure


def with_sealed_segments(bench: ReplicaTableBench, index: int) -> Partition:
    """A sole copy with a segment for each of its messages."""
    partition = bench.table.get("orders", index)
    for number in range(4):
        batch = memoryview(bytearray(build_batch([(number, None, b"v", ())])))
        partition.append(batch, read_batch_header(batch), now_ms=number)
        partition.log.roller.roll(number)
    return partition


async def test_offsets_by_time_fail_for_the_unreadable_partition_alone() -> None:
    async with replica_table() as bench:
        bench.store(*(record(replicas=(ME,), in_sync=(ME,), index=index) for index in range(2)))
        for index in range(2):
            with_sealed_segments(bench, index)
        await bench.flush()
        bench.disk.unreadable.add("/logs/orders-0/00000000000000000002.log")
        asked = [ListOffsetsPartition(partition_index=index, timestamp=2) for index in range(2)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=asked)])
        answer = await list_offsets.handle(bench.services, request, RequestContext(LINK, 7, None))
        found = [(one.error_code, one.offset) for one in answer.topics[0].partitions]
        assert found == [(ErrorCode.KAFKA_STORAGE_ERROR, -1), (ErrorCode.NONE, 2)]
        assert bench.failures == []


async def test_an_unreadable_segment_keeps_retention_from_nothing_else() -> None:
    async with replica_table() as before:
        partitions = (record(replicas=(ME,), in_sync=(ME,), index=index) for index in range(2))
        before.store(*partitions, configs={"retention.ms": "1"})
        for index in range(2):
            with_sealed_segments(before, index)
    async with replica_table(before.disk, before.metadata) as bench:
        logs = [bench.table.get("orders", index).log for index in range(2)]
        bench.disk.unreadable.update(f"/logs/orders-0/{0:020d}{kind}" for kind in (".log", ".index", ".timeindex"))
        settings, topic_settings = BrokerSettings(), bench.services.topic_settings
        housekeeping = Housekeeping(settings, bench.clock, bench.logs, bench.table, bench.metrics, topic_settings)
        await housekeeping.apply_retention()
        await housekeeping.aclose()
        assert [log.log_start_offset for log in logs] == [0, 4]
        assert bench.failures == []
        bench.disk.unreadable.clear()


async def test_a_publish_to_a_damaged_log_is_refused_and_the_broker_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica_table() as bench:
        bench.store(record(replicas=(ME,), in_sync=(ME,)))
        bench.table.get("orders", 0)
        DamagedLog(monkeypatch, "append")
        answer = bench.produce()
        assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert "its log is damaged" in (answer.result.error_message or "")
        assert bench.failures == []
        assert bench.table.damaged() == [bench.partition()]


async def test_a_follower_that_meets_damage_while_it_appends_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND))
        asked = resigning(bench)
        DamagedLog(monkeypatch, "append_as_is")
        with pytest.raises(ApiError) as caught:
            copied(bench.partition(), 0)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert asked == [bench.partition()]
        assert bench.failures == []


async def test_a_follower_that_meets_damage_while_it_cuts_stops_and_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND))
        before = bench.partition()
        copied(before, 0)
        with monkeypatch.context() as patch:
            DamagedLog(patch, "truncate_to")
            with pytest.raises(ApiError):
                before.followed_log.truncate_to(0, 0)
        assert before.offline
        assert bench.failures == []
        bench.store(record(leader=SECOND, epoch=1, in_sync=(SECOND, THIRD)))
        assert bench.partition().follower is not None


# --- leader epochs that never were


async def led_with_a_damaged_epoch(bench: ReplicaTableBench, *replicas: Member) -> Partition:
    """A copy whose last batch names an epoch that no record of the partition ever named."""
    bench.store(record(leader=SECOND, epoch=3))
    copied(bench.partition(), 0, epoch=3)
    copied(bench.partition(), 1, epoch=1_000_003)
    bench.store(record(leader=ME, epoch=4, replicas=replicas, in_sync=replicas))
    return bench.partition()


async def test_a_leader_whose_log_names_an_epoch_that_never_was_takes_nothing_and_truncates_no_follower() -> None:
    async with replica_table() as bench:
        asked = resigning(bench)
        partition = await led_with_a_damaged_epoch(bench, ME, SECOND, THIRD)
        assert asked == [partition]
        answer = bench.produce()
        assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert "names leader epoch 1000003" in (answer.result.error_message or "")
        fetched = bench.replica_fetch(SECOND, 2, epoch=4, last_epoch=3)
        assert fetched.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert fetched.result.diverging_epoch is None
        assert bench.failures == []
        bench.store(record(leader=SECOND, epoch=5, in_sync=(SECOND, THIRD)))
        assert bench.partition().log.end_offset == 0


async def test_a_follower_whose_log_names_an_epoch_that_never_was_is_handed_on() -> None:
    async with replica_table() as bench:
        asked = resigning(bench)
        bench.store(record(leader=SECOND, epoch=3))
        copied(bench.partition(), 0, epoch=1_000_003)
        assert asked == []
        bench.store(record(leader=THIRD, epoch=4))
        assert asked == [bench.partition()]
        bench.store(record(leader=THIRD, epoch=5, in_sync=(SECOND, THIRD)))
        assert bench.partition().log.end_offset == 0


async def test_a_sole_copy_whose_log_names_an_epoch_that_never_was_can_be_read() -> None:
    async with replica_table() as bench:
        await led_with_a_damaged_epoch(bench, ME)
        await bench.flush()
        asked = FetchPartition(0, 4, 0, 3, -1, 1 << 20)
        assert len(bench.fetch(asked, max_wait_ms=0).result.records) > 0
        topic = OffsetForLeaderTopic(topic="orders", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=3)])
        request = OffsetForLeaderEpochRequest(topics=[topic])
        answer = offset_for_leader_epoch.handle(bench.services, request, RequestContext(LINK, 4, None))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert bench.produce().error is ErrorCode.KAFKA_STORAGE_ERROR
        assert bench.failures == []
