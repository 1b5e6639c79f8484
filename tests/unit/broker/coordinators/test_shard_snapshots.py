"""Snapshots of shards on real logs: what is loaded afterwards, what clients notice, what a failure leaves."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from martlet.base.errors import ApiError
from martlet.broker.coordinators.coordinator_host import CoordinatorHost, MachineKind
from martlet.broker.coordinators.hosted_shard import HostedShard
from martlet.broker.coordinators.internal_topic import InternalTopic, InternalTopicSpec
from martlet.broker.coordinators.shard_snapshots import take_snapshot
from martlet.broker.partitions.partition import Partition
from martlet.coordinator.snapshots import SnapshotRule
from martlet.wire.batch import TRANSACTIONAL_BIT, build_batch, read_batch_header
from tests.unit.broker.coordinators.test_coordinator_host import TOPIC, HostedToy, ToyBench
from tests.unit.coordinator.toy_machine import ToyCodec

RULE = SnapshotRule(min_bytes=2_000, ratio=4)


class SnapshotBench(ToyBench):
    """One shard of toys whose log may hold two thousand bytes of history."""

    async def start(self) -> None:
        await super().start()
        await self.toys.aclose()
        topic = InternalTopic(InternalTopicSpec(TOPIC, 1), self.metadata.image, self.metadata.admin)
        kind = MachineKind("toys", HostedToy, ToyCodec, self._on_stored, snapshots=RULE)
        self.toys = CoordinatorHost(kind, topic, self.table, self.clock, self.metrics, self.failures.append)
        self.toys.start()
        self.metadata.feed.add_listener(self.toys.follow)

    @property
    def hosted(self) -> HostedShard[HostedToy]:
        (hosted,) = self.toys._shards.values()
        return hosted

    @property
    def partition(self) -> Partition:
        partition = self.hosted.log.partition
        assert partition is not None
        return partition

    async def write_history(self, names: str = "ab", rounds: int = 20) -> None:
        for number in range(rounds):
            for name in names:
                await self.put(name, number)


@pytest.fixture
async def bench() -> AsyncIterator[SnapshotBench]:
    async with SnapshotBench() as started:
        yield started


async def test_loading_reads_the_snapshot_and_not_the_history(bench: SnapshotBench) -> None:
    await bench.write_history()
    end_offset = bench.partition.log.end_offset
    await take_snapshot(bench.hosted)
    assert bench.partition.log.log_start_offset == end_offset
    assert bench.partition.log.end_offset == end_offset + 2
    await bench.put("c", 7)
    await bench.restart()
    assert [await bench.get(name) for name in "abc"] == [19, 19, 7]
    assert bench.hosted.log.growth.log_bytes < 300
    assert bench.failures == []


async def test_what_changes_while_a_snapshot_is_written_is_not_lost(bench: SnapshotBench) -> None:
    await bench.write_history("abcdefgh", 10)
    snapshot = asyncio.create_task(take_snapshot(bench.hosted))
    number = 100
    while not snapshot.done():
        number += 1
        await bench.put("abcdefghi"[number % 9], number)
    await snapshot
    assert bench.partition.log.log_start_offset >= 80
    numbers = dict(bench.hosted.machine.numbers)
    await bench.restart()
    await bench.get("a")
    assert bench.hosted.machine.numbers == numbers


async def test_a_log_that_is_mostly_live_gets_no_snapshot(bench: SnapshotBench) -> None:
    for number in range(100):
        await bench.put(f"a name of some length, number {number}", number)
    assert bench.hosted.log.growth.is_due
    await take_snapshot(bench.hosted)
    assert bench.partition.log.log_start_offset == 0
    assert not bench.hosted.log.growth.is_due


async def test_a_machine_without_state_keeps_no_history(bench: SnapshotBench) -> None:
    names = [f"topic-{number}" for number in range(40)]
    for name in names:
        await bench.put(name, 1)
    bench.hosted.topics_changed((), names)
    end_offset = bench.partition.log.end_offset
    await take_snapshot(bench.hosted)
    assert bench.partition.log.log_start_offset == end_offset == bench.partition.log.end_offset


async def test_a_snapshot_that_cannot_be_written_moves_nothing_and_is_tried_later(bench: SnapshotBench) -> None:
    await bench.write_history()
    bench.disk.fail_next_write()
    await take_snapshot(bench.hosted)
    assert bench.partition.log.log_start_offset == 0
    assert not bench.hosted.log.growth.is_due


async def test_an_open_transaction_is_not_left_behind(bench: SnapshotBench) -> None:
    await bench.write_history()
    records = [(1, b"\x01t", b"1", ())]
    batch = bytearray(
        build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL_BIT)
    )
    view = memoryview(batch)
    bench.partition.log.append(view, read_batch_header(view), leader_epoch=0, now_ms=1)
    await take_snapshot(bench.hosted)
    assert bench.partition.log.log_start_offset == 0
    assert not bench.hosted.log.growth.is_due


async def test_the_host_takes_snapshots_by_itself(bench: SnapshotBench) -> None:
    await bench.write_history()
    async with asyncio.timeout(10):
        while not bench.partition.log.log_start_offset:
            await asyncio.sleep(0.01)
    with pytest.raises(ApiError, match="negative"):
        await bench.put("a", -1)
    assert await bench.get("a") == 19
