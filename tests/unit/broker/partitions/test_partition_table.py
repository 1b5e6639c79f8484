"""How replicas on a broker follow the metadata: roles, logs that come and go, and what a restart brings back."""

import asyncio
import logging
import random
from dataclasses import replace

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Incarnation, Member, TopicPartition
from martlet.broker.handlers.list_offsets import EARLIEST, LATEST, look_up
from martlet.broker.handlers.produce import LONG_CHECK_BYTES, takes_long
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.replica_gauges import count_offline, watch_replicas
from martlet.broker.partitions.watermarks import READ_UNCOMMITTED
from martlet.log.file_names import CLEAN_SHUTDOWN, PARTITION_METADATA
from martlet.log.replicated_batches import check_replicated
from martlet.wire.batch import build_batch, stamp_batch
from martlet.wire.compression import Compression
from tests.unit.broker.replica_table_bench import (
    ME,
    SECOND,
    THIRD,
    ReplicaTableBench,
    record,
    replica_table,
)

NAME = TopicPartition("orders", 0)


def copied(partition: Partition, offset: int, *, epoch: int = 0, count: int = 1) -> None:
    """Batches of the leader's, as a follower's fetcher appends them."""
    for number in range(offset, offset + count):
        batch = bytearray(build_batch([(0, None, b"v", ())]))
        stamp_batch(memoryview(batch), 0, number, epoch)
        partition.followed_log.append(check_replicated(bytes(batch)), now_ms=0)


def refusal(bench: ReplicaTableBench) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        bench.table.get("orders", 0)
    return caught.value.code


# --- roles


async def test_a_replica_takes_the_role_that_the_record_gives_it() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=ME, epoch=1))
        partition = bench.table.get("orders", 0)
        assert partition.leader is not None
        assert (partition.leader_epoch, list(bench.table.led())) == (1, [partition])
        bench.store(record(leader=SECOND, epoch=2))
        assert bench.partition().leader is None
        assert (partition.leader_broker, partition.leader_epoch) == (2, 2)
        assert partition.follower is not None
        assert list(bench.table.following()) == [partition]
        assert refusal(bench) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        bench.store(record(leader=None, epoch=3))
        assert bench.table.following() == []
        assert partition.leader_broker is None
        assert refusal(bench) is ErrorCode.LEADER_NOT_AVAILABLE
        bench.store(record(leader=ME, epoch=4))
        assert bench.table.get("orders", 0) is partition


async def test_leadership_of_an_earlier_process_of_this_broker_is_over() -> None:
    async with replica_table() as bench:
        earlier = Member(ME.broker, Incarnation(3))
        bench.store(record(leader=earlier, epoch=1, in_sync=(earlier, SECOND)))
        assert refusal(bench) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bench.partition().leader is None
        assert bench.partition().follower is None


async def test_the_fetchers_hear_of_every_change_of_role_leader_or_epoch_and_of_nothing_else() -> None:
    async with replica_table() as bench:
        for number, stored in enumerate(
            [
                record(leader=SECOND, epoch=1),
                record(leader=SECOND, epoch=2),
                record(leader=THIRD, epoch=3),
                record(leader=None, epoch=4),
                record(leader=ME, epoch=5),
                record(leader=SECOND, epoch=6, in_sync=(SECOND, THIRD), replicas=(SECOND, THIRD)),
            ]
        ):
            bench.store(stored)
            assert len(bench.roles_changed) == number + 1, stored
        bench.roles_changed.clear()
        bench.store(record(leader=SECOND, epoch=6, in_sync=(SECOND,), replicas=(SECOND, THIRD)))
        assert bench.roles_changed == []


async def test_a_changed_in_sync_set_changes_no_role() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, epoch=1))
        follower = bench.partition().follower
        bench.roles_changed.clear()
        bench.store(record(leader=SECOND, epoch=1, in_sync=(SECOND,)))
        assert bench.partition().follower is follower
        bench.store(record(leader=ME, epoch=2))
        leader = bench.partition().leader
        bench.roles_changed.clear()
        bench.store(record(leader=ME, epoch=2, in_sync=(ME,)))
        assert bench.partition().leader is leader
        assert leader is not None
        assert leader.in_sync.committed == {ME}
        assert bench.roles_changed == []


async def test_a_set_that_was_stored_again_unchanged_settles_an_unanswered_proposal() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME, SECOND)))
        leader = bench.partition().leader
        assert leader is not None
        assert leader.propose(60_000) is not None
        leader.proposal_unanswered()
        bench.store(record(in_sync=(ME, SECOND)))
        assert leader.in_sync.maximal == {ME, SECOND}


async def test_a_partition_with_one_replica_gets_a_log_when_it_is_first_used() -> None:
    async with replica_table() as bench:
        bench.store(record(in_sync=(ME,), replicas=(ME,)))
        assert (bench.table.hosted("orders", 0), len(bench.logs)) == (None, 0)
        assert bench.table.get("orders", 0).leader is not None
        assert len(bench.logs) == 1


async def test_a_follower_gets_its_log_at_once() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND))
        assert len(bench.logs) == 1


async def test_a_broker_that_is_no_replica_has_neither_log_nor_partition() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND, in_sync=(SECOND,), replicas=(SECOND, THIRD)))
        assert (bench.table.hosted("orders", 0), len(bench.logs)) == (None, 0)
        assert refusal(bench) is ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- logs that go


async def test_the_log_of_a_partition_that_was_moved_away_is_deleted_later() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND))
        partition = bench.partition()
        bench.store(record(leader=SECOND, epoch=1, in_sync=(SECOND, THIRD), replicas=(SECOND, THIRD)))
        assert partition.offline
        assert bench.roles_changed[-1] is partition
        assert bench.table.hosted("orders", 0) is None
        assert not bench.disk.exists("/logs/orders-0")
        [aside] = [name for name, _, _ in bench.disk.list_directory("/logs") if name.endswith("-delete")]
        assert bench.logs.remove_deleted() == 1
        assert not bench.disk.exists(f"/logs/{aside}")


async def test_a_partition_moved_away_while_the_broker_was_down_is_deleted_at_its_start() -> None:
    bench = ReplicaTableBench()
    bench.store(record(leader=SECOND))
    await bench.stop()
    bench.store(record(leader=SECOND, epoch=1, in_sync=(SECOND, THIRD), replicas=(SECOND, THIRD)))
    async with replica_table(bench.disk, bench.metadata) as later:
        assert (len(later.logs), later.logs.remove_deleted()) == (0, 1)


async def test_files_whose_topic_cannot_be_read_are_taken_by_their_name_and_named_again() -> None:
    bench = ReplicaTableBench()
    bench.store(record(leader=SECOND))
    path = f"/logs/orders-0/{PARTITION_METADATA}"
    content = bench.disk.read_file(path)
    await bench.stop()
    bench.disk.replace_file(path, b"no such thing")
    async with replica_table(bench.disk, bench.metadata) as later:
        assert later.table.hosted("orders", 0) is not None
        assert later.disk.read_file(path) == content


async def test_files_whose_topic_cannot_be_read_are_kept_when_the_partition_was_moved_away() -> None:
    bench = ReplicaTableBench()
    bench.store(record(leader=SECOND))
    await bench.stop()
    bench.disk.replace_file(f"/logs/orders-0/{PARTITION_METADATA}", b"no such thing")
    bench.store(record(leader=SECOND, epoch=1, in_sync=(SECOND, THIRD), replicas=(SECOND, THIRD)))
    async with replica_table(bench.disk, bench.metadata) as later:
        assert (len(later.logs), later.logs.remove_deleted()) == (0, 0)
        assert any(name.endswith("-stray") for name, _, _ in later.disk.list_directory("/logs"))


async def test_files_of_an_unknown_topic_are_kept() -> None:
    bench = ReplicaTableBench()
    bench.store(record(leader=SECOND))
    await bench.stop()
    async with replica_table(bench.disk) as later:
        assert (len(later.logs), later.logs.remove_deleted()) == (0, 0)
        assert any(name.endswith("-stray") for name, _, _ in later.disk.list_directory("/logs"))


async def damaged(stored: object) -> ReplicaTableBench:
    """A broker, stopped, whose log of `orders` was damaged meanwhile."""
    bench = ReplicaTableBench()
    bench.store(stored)  # type: ignore[arg-type]
    partition = bench.table.get("orders", 0) if bench.table.leads("orders", 0) else bench.partition()
    partition.log.append_as_is(check_replicated(_batch()), now_ms=0)
    await bench.stop()
    file = bench.disk.open("/logs/orders-0/00000000000000000000.log")
    file.truncate(10)
    file.sync()
    bench.disk.remove(f"/logs/{CLEAN_SHUTDOWN}")  # so that it is not certain where the log ended
    return bench


def _batch() -> bytes:
    batch = bytearray(build_batch([(0, None, b"v", ())]))
    stamp_batch(memoryview(batch), 0, 0, 0)
    return bytes(batch)


async def test_a_log_that_cannot_be_used_is_kept_aside_and_copied_again_by_a_follower() -> None:
    bench = await damaged(record(leader=SECOND))
    async with replica_table(bench.disk, bench.metadata) as later:
        assert not later.logs.started_whole
        partition = later.partition()
        assert (partition.log.end_offset, partition.follower is not None) == (0, True)
        assert any(name.endswith("-stray") for name, _, _ in later.disk.list_directory("/logs"))
        copied(partition, 0)


async def test_a_log_that_cannot_be_used_waits_for_another_leader_while_there_is_none() -> None:
    bench = await damaged(record(leader=None))
    async with replica_table(bench.disk, bench.metadata) as later:
        assert later.table.hosted("orders", 0) is None
        assert count_offline(later.table, later.logs) == 1
        later.store(record(leader=SECOND, epoch=1))
        assert later.partition().follower is not None
        assert later.roles_changed == [later.partition()]


async def test_the_only_copy_stays_offline_with_its_files_when_it_cannot_be_used() -> None:
    bench = await damaged(record(in_sync=(ME,), replicas=(ME,)))
    async with replica_table(bench.disk, bench.metadata) as later:
        assert refusal(later) is ErrorCode.KAFKA_STORAGE_ERROR
        assert later.disk.exists("/logs/orders-0/00000000000000000000.log")
        assert later.table.log_failed("orders", 0)


# --- the high watermark


async def test_the_high_watermark_of_a_replica_survives_a_restart() -> None:
    bench = ReplicaTableBench()
    bench.store(record(leader=SECOND))
    copied(bench.partition(), 0, count=5)
    bench.partition().followed_log.commit(3)
    await bench.stop()
    async with replica_table(bench.disk, bench.metadata) as later:
        assert (later.partition().high_watermark, later.partition().log.end_offset) == (3, 5)


async def test_after_a_crash_the_high_watermark_is_that_of_the_last_checkpoint() -> None:
    bench = ReplicaTableBench()
    bench.store(record(leader=SECOND))
    copied(bench.partition(), 0, count=2)
    bench.partition().followed_log.commit(2)
    bench.logs.checkpoint()
    copied(bench.partition(), 2, count=2)
    bench.partition().followed_log.commit(4)
    await bench.stop(clean=False)
    async with replica_table(bench.disk, bench.metadata) as later:
        assert later.partition().high_watermark == 2


async def test_a_replica_made_again_does_not_inherit_the_high_watermark_of_the_one_before() -> None:
    bench = ReplicaTableBench()
    bench.store(record(leader=SECOND))
    copied(bench.partition(), 0, count=4)
    bench.partition().followed_log.commit(4)
    bench.logs.checkpoint()
    bench.store(record(leader=SECOND, epoch=1, in_sync=(SECOND, THIRD), replicas=(SECOND, THIRD)))
    bench.store(record(leader=SECOND, epoch=2, in_sync=(SECOND, THIRD)))
    copied(bench.partition(), 0, epoch=2, count=4)
    await bench.stop(clean=False)
    async with replica_table(bench.disk, bench.metadata) as later:
        assert (later.partition().high_watermark, later.partition().log.end_offset) == (0, 4)


async def test_the_only_copy_is_committed_as_far_as_it_reaches_after_a_restart() -> None:
    bench = ReplicaTableBench()
    bench.store(record(in_sync=(ME,), replicas=(ME,)))
    bench.produce()
    await bench.stop()
    async with replica_table(bench.disk, bench.metadata) as later:
        assert later.partition().high_watermark == 1


async def test_a_new_leader_does_not_tell_the_latest_offset_before_it_knows_it() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND))
        copied(bench.partition(), 0, count=3)
        bench.partition().followed_log.commit(1)
        bench.store(record(epoch=1, in_sync=(ME, THIRD)))
        partition = bench.partition()
        for version, code in ((5, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)):
            for timestamp in (LATEST, 0):
                with pytest.raises(ApiError) as caught:
                    look_up(partition, timestamp, READ_UNCOMMITTED, version)
                assert caught.value.code is code
        assert look_up(partition, EARLIEST, READ_UNCOMMITTED, 5)[1] == 0
        bench.replica_fetch(THIRD, 3, epoch=1, last_epoch=0)
        assert look_up(partition, LATEST, READ_UNCOMMITTED, 5)[1] == 3


async def test_a_leader_begins_with_what_it_has_flushed_where_the_topic_wants_a_flush() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND), configs={"martlet.flush": "commit"})
        copied(bench.partition(), 0, count=3)
        flushed = bench.partition().log.durability.flushed_offset
        bench.store(record(epoch=1, in_sync=(ME,)))
        assert flushed < 3
        assert bench.partition().high_watermark == flushed
        await bench.flush()
        assert bench.partition().high_watermark == 3


async def test_a_cut_below_the_high_watermark_is_logged_loudly(caplog: pytest.LogCaptureFixture) -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND))
        partition = bench.partition()
        copied(partition, 0, count=4)
        partition.followed_log.commit(2)
        partition.followed_log.truncate_to(3, 0)
        assert (partition.log.end_offset, partition.high_watermark) == (3, 2)
        assert not caplog.records
        partition.followed_log.truncate_to(1, 0)
        assert (partition.log.end_offset, partition.high_watermark) == (1, 1)
        assert [entry.levelno for entry in caplog.records] == [logging.CRITICAL]


async def test_a_replica_that_begins_again_is_committed_up_to_where_it_begins() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND))
        partition = bench.partition()
        copied(partition, 0, count=2)
        partition.followed_log.start_at(7, 0)
        assert (partition.log.log_start_offset, partition.high_watermark) == (7, 7)


async def test_a_waiter_for_the_flush_of_a_replica_is_called_once() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND), configs={"martlet.flush": "commit"})
        messages: list[int] = []
        partition = bench.partition()
        assert not partition.followed_log.when_flushed(lambda: messages.append(0))
        copied(partition, 0)
        assert partition.followed_log.when_flushed(lambda: messages.append(1))
        await bench.flush()
        assert messages == [1]


async def test_what_a_full_disk_took_of_an_answer_is_flushed_like_all_else() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND), configs={"martlet.flush": "commit"})
        partition = bench.partition()
        batches = bytearray()
        for number in range(2):
            batch = bytearray(build_batch([(0, None, b"v" * 100, ())]))
            stamp_batch(memoryview(batch), 0, number, 0)
            batches += batch
        partition.log.update_options(replace(partition.log.options, segment_bytes=len(batches) - 1))
        bench.disk.capacity_bytes = bench.disk.used_bytes() + len(batches) // 2 + 10
        with pytest.raises(ApiError) as caught:
            partition.followed_log.append(check_replicated(bytes(batches)), now_ms=0)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.log.end_offset == 1, "the first of the two found space"
        messages: list[str] = []
        if partition.followed_log.when_flushed(lambda: messages.append("flushed")):
            await until_flushed(partition)
            assert messages == ["flushed"]
        bench.disk.capacity_bytes = None
        assert partition.log.durability.flushed_offset == 1


async def until_flushed(partition: Partition) -> None:
    async with asyncio.timeout(5):
        while partition.log.durability.flushed_offset < partition.log.end_offset:
            await asyncio.sleep(0.01)


async def test_a_topic_that_wants_flushes_from_now_on_flushes_what_is_there() -> None:
    async with replica_table() as bench:
        bench.store(record(leader=SECOND), configs={"martlet.flush": "never"})
        messages: list[int] = []
        copied(bench.partition(), 0)
        bench.store(configs={"martlet.flush": "commit"})
        assert bench.partition().followed_log.when_flushed(lambda: messages.append(1))
        while not messages:
            await bench.settle()


# --- what operators see


async def test_operators_see_what_is_led_followed_lagging_and_offline() -> None:
    async with replica_table() as bench:
        watch_replicas(bench.table, bench.logs, bench.metrics)

        def seen() -> dict[str, float]:
            return {gauge.name.removeprefix("martlet_"): gauge.read() for gauge in bench.metrics.gauges}

        bench.store(record(in_sync=(ME, SECOND)), record(leader=SECOND, index=1), configs={"min.insync.replicas": "3"})
        bench.produce(acks=1)
        bench.replica_fetch(SECOND, 0)
        assert seen() == {
            "led_partitions": 1,
            "followed_partitions": 1,
            "under_replicated_partitions": 1,
            "under_min_in_sync_partitions": 1,
            "offline_partitions": 0,
            "damaged_partitions": 0,
            "replica_lag_messages": 1,
        }
        bench.store(record(leader=None, epoch=1, in_sync=(Member(BrokerId(2), Incarnation(1)),)))
        assert (seen()["led_partitions"], seen()["offline_partitions"]) == (0, 1)


@pytest.mark.parametrize(
    ("configs", "long"),
    [
        ({}, []),
        ({"compression.type": "producer", "cleanup.policy": "compact"}, ["large packed"]),
        ({"compression.type": "gzip"}, ["large plain"]),
        ({"compression.type": "gzip", "cleanup.policy": "compact"}, ["large plain", "large packed"]),
        ({"compression.type": "zstd"}, ["large plain", "small packed", "large packed"]),
        ({"compression.type": "uncompressed"}, ["small packed", "large packed"]),
    ],
)
async def test_what_takes_long_to_check_or_to_pack_is_known_beforehand(
    configs: dict[str, str], long: list[str]
) -> None:
    values = {"small": b"v", "large": random.Random(1).randbytes(2 * LONG_CHECK_BYTES)}
    codecs = {"plain": Compression.NONE, "packed": Compression.GZIP}
    async with replica_table() as bench:
        bench.store(record(), configs=configs)
        partition = bench.partition()
        assert bench.services.topic_settings.recompresses == (configs.get("compression.type", "producer") != "producer")
        options = partition.log.options
        found = [
            f"{size} {codec}"
            for codec in codecs
            for size in values
            if takes_long(options, memoryview(build_batch([(0, b"k", values[size], ())], compression=codecs[codec])))
        ]
        assert found == long
        assert not takes_long(options, memoryview(b"no batch"))
