"""Everything on disk is checked once after a start and again each interval, and a pass goes on behind damage."""

from collections.abc import Callable

import pytest
from sim.disk import SimDisk

from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.scrubbing import Scrubber
from martlet.log.options import LogOptions
from martlet.wire.batch import iterate_batches, read_batch_header
from tests.unit.broker.replica_table_bench import ME, ReplicaTableBench, record
from tests.unit.log.log_builders import batch_of

_WEEK_MS = 604_800_000
_FIRST_LOG = "/logs/orders-0/00000000000000000000.log"


async def _at_once(work: Callable[[], object]) -> None:
    work()


class _Bench:
    """A led partition with three segments, as a new process finds it, and its scrubber."""

    def __init__(self, bytes_per_second: int = 10_000_000, harm: Callable[[SimDisk], None] = lambda disk: None) -> None:
        first = ReplicaTableBench()
        _lead(first)
        first.logs.close()
        harm(first.disk)
        self.table = ReplicaTableBench(first.disk, first.metadata)
        self.partition = _hosted(self.table)
        self.scrubber = Scrubber(
            BrokerSettings(scrub_bytes_per_second=bytes_per_second),
            self.table.clock,
            self.table.table,
            self.table.metrics,
            _at_once,
        )

    def damage(self, position: int) -> None:
        self.table.disk.flip_bit(_FIRST_LOG, 8 * position)


def _hosted(bench: ReplicaTableBench) -> Partition:
    bench.store(record(replicas=(ME,), in_sync=(ME,)))
    partition = bench.table.get("orders", 0)
    assert bench.table.hosted("orders", 0) is partition
    return partition


def _lead(bench: ReplicaTableBench) -> None:
    log = _hosted(bench).log
    log.update_options(LogOptions(segment_bytes=2_000))
    for _ in range(60):
        batch = batch_of(b"x" * 30)
        log.append(memoryview(batch), read_batch_header(batch), leader_epoch=log.epochs.latest_epoch, now_ms=0)
    assert len(log.segments) > 2


async def test_one_pass_after_a_start_reads_everything_and_then_rests() -> None:
    bench = _Bench()
    sealed_bytes = sum(segment.size for segment in bench.partition.log.segments.sealed())
    await bench.scrubber.scrub()
    assert bench.table.metrics.scrubbed_bytes == sealed_bytes, "the end of the log was checked at the start"
    assert bench.table.metrics.scrub_passes == 1
    await bench.scrubber.scrub()
    assert bench.table.metrics.scrubbed_bytes == sealed_bytes


async def test_after_a_week_sealed_segments_are_read_again_and_new_damage_is_found() -> None:
    bench = _Bench()
    await bench.scrubber.scrub()
    bench.damage(500)
    await bench.scrubber.scrub()
    assert not bench.partition.log.damage
    bench.table.clock.advance(_WEEK_MS)
    await bench.scrubber.scrub()
    [damage] = bench.partition.log.damage
    assert _FIRST_LOG in damage
    assert bench.table.metrics.scrub_passes == 2
    assert bench.table.metrics.damaged_reads == 1


async def test_a_pass_goes_on_behind_damage_and_finds_all_of_it() -> None:
    bench = _Bench()
    sealed = bench.table.disk.list_directory("/logs/orders-0")
    second = sorted(entry.name for entry in sealed if entry.name.endswith(".log"))[1]
    bench.damage(500)
    bench.table.disk.flip_bit(f"/logs/orders-0/{second}", 8 * 900)
    for _ in range(3):
        await bench.scrubber.scrub()
    assert len(bench.partition.log.damage) == 2
    assert bench.table.metrics.scrub_passes == 1


@pytest.mark.parametrize("batches", [0, 5])
async def test_a_pass_finds_a_segment_that_ends_too_early(batches: int) -> None:
    path = ""

    def cut(disk: SimDisk) -> None:
        nonlocal path
        entries = disk.list_directory("/logs/orders-0")
        path = f"/logs/orders-0/{sorted(entry.name for entry in entries if entry.name.endswith('.log'))[1]}"
        places = [position for position, _ in iterate_batches(disk.read_file(path) or b"")]
        disk.cut(path, places[batches])  # all that is left is sound

    bench = _Bench(harm=cut)
    for _ in range(3):
        await bench.scrubber.scrub()
    [damage] = bench.partition.log.damage
    assert path in damage
    assert bench.table.metrics.scrub_passes == 1
    assert bench.table.table.damage.names == {bench.partition.name}


async def test_a_pass_tells_of_damage_that_no_reader_has_met() -> None:
    bench = _Bench()
    bench.damage(500)
    first = bench.partition.log.segments.first
    first.survey_damage()  # as retention does when an index does not agree with its log
    await bench.scrubber.scrub()
    assert bench.table.table.damage.names == {bench.partition.name}


async def test_no_more_than_its_share_is_read_in_a_second() -> None:
    bench = _Bench(bytes_per_second=1_500)
    await bench.scrubber.scrub()
    assert 1_500 <= bench.table.metrics.scrubbed_bytes < 3_000
