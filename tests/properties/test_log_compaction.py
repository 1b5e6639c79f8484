"""Compaction against a dictionary: whatever is written, the last value of every key survives, in place and in order.

Also with crashes: the machine dies at every step of writing and swapping, and the log that comes back is sound.
"""

from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from sim.disk import SimDisk
from sim.failing_device import SimCrash
from sim.randomness import SimRandomness

from martlet.base.ids import TopicId, TopicPartition
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.wire.batch import build_batch, read_batch_header
from martlet.wire.records.record import Record, read_records

PARTITION = TopicPartition("accounts", 0)
RETAIN_MS = 1000
OPTIONS = LogOptions(
    segment_bytes=700,
    index_interval_bytes=150,
    compact=True,
    delete=False,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETAIN_MS,
)
START_MS = 50_000


class Change(NamedTuple):
    """One record to write: which key, and what (None deletes it)."""

    key: int
    value: int | None


CHANGES = st.lists(
    st.builds(Change, st.integers(0, 5), st.one_of(st.none(), st.integers(0, 99))), min_size=1, max_size=5
)
HISTORIES = st.lists(st.tuples(CHANGES, st.sampled_from([0, 0, 1, 2, 3, 4]), st.sampled_from([-1, -1, 3])), max_size=30)
History = list[tuple[list[Change], int, int]]


class World:
    """A compacted log on a simulated disk, with what has been written to it."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = SimDisk(SimRandomness(seed), page_bytes=512)
        self.originals: dict[int, Record] = {}
        self.sequence = 0
        self.directory = LogDirectory(self.disk, "data", OPTIONS)
        self.directory.open(START_MS)
        self.log = self.directory.create(PARTITION, topic_id=TopicId(b"a" * 16), now_ms=START_MS)

    def write(self, history: History) -> None:
        for changes, compression, producer_id in history:
            records = [
                (
                    START_MS + len(self.originals) + number,
                    b"key-%d" % change.key,
                    None if change.value is None else b"%d" % change.value * 9,
                    (("trace", b"%d" % number),),
                )
                for number, change in enumerate(changes)
            ]
            sequence = self.sequence if producer_id >= 0 else -1
            batch = bytearray(
                build_batch(
                    records,
                    compression=compression,
                    producer_id=producer_id,
                    producer_epoch=0 if producer_id >= 0 else -1,
                    base_sequence=sequence,
                )
            )
            if producer_id >= 0:
                self.sequence += len(records)
            self.log.append(memoryview(batch), read_batch_header(batch), leader_epoch=1, now_ms=START_MS)
            for record in read_records(batch, 1 << 20):
                self.originals[record.offset] = record

    def settle(self) -> None:
        """Seal, flush and checkpoint, so that everything may be compacted."""
        self.log.roller.roll(START_MS)
        self.log.durability.flush()
        self.directory.checkpoint()

    def compact(self, now_ms: int = START_MS, keys_max: int | None = None) -> bool:
        plan = self.log.plan_compaction(now_ms, up_to_offset=self.log.end_offset)
        if plan is None:
            return False
        if keys_max is not None:
            plan.keys_max = keys_max
        plan.run()
        return self.log.compaction.complete(plan)

    def reopen(self) -> None:
        self.directory = LogDirectory(self.disk, "data", OPTIONS)
        self.directory.open(START_MS)
        assert not self.directory.failures, self.directory.failures
        log = self.directory.get(PARTITION)
        assert log is not None
        self.log = log

    def latest(self) -> dict[bytes | None, Record]:
        return {record.key: record for record in self.originals.values()}


def read_log(log: PartitionLog) -> list[Record]:
    """Every record, by walking as a consumer does; fails when the end cannot be reached."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        content = log.locate(offset, max_bytes=300, end_offset=log.end_offset, at_least_one=True).read()
        assert content, f"offset {offset} leads nowhere"
        while content:
            header = read_batch_header(content)
            records += read_records(content[: header.size], 1 << 20, check_crc=True)
            content, offset = content[header.size :], header.next_offset
    return records


def check_survivors(world: World, *, tombstones_may_go: bool = False) -> list[Record]:
    """Everything left is as it was written, in order, and the last record of every key is among it."""
    records = read_log(world.log)
    assert [record.offset for record in records] == sorted({record.offset for record in records})
    for record in records:
        assert record == world.originals[record.offset]
    left = {record.offset for record in records}
    for record in world.latest().values():
        assert record.offset in left or (tombstones_may_go and record.value is None)
    return records


@settings(max_examples=80, deadline=None)
@given(history=HISTORIES, later=HISTORIES)
def test_the_last_value_of_every_key_survives_and_nothing_else(history: History, later: History) -> None:
    world = World()
    world.write(history)
    world.settle()
    world.compact()
    records = check_survivors(world)
    assert len(records) == len(world.latest())
    world.write(later)
    check_survivors(world)
    world.settle()
    world.compact()
    records = check_survivors(world)
    assert len(records) == len(world.latest())
    world.directory.close()
    world.reopen()
    assert check_survivors(world) == records


@settings(max_examples=40, deadline=None)
@given(history=HISTORIES)
def test_compacting_twice_is_compacting_once(history: History) -> None:
    world = World()
    world.write(history)
    world.settle()
    world.compact()
    once = read_log(world.log)
    end_offset = world.log.end_offset
    world.log.compaction.cleaned_offset = 0
    world.directory.checkpoint()
    world.compact()
    assert read_log(world.log) == once
    assert world.log.end_offset == end_offset


@settings(max_examples=40, deadline=None)
@given(history=HISTORIES, keys_max=st.integers(1, 4))
def test_little_memory_takes_more_passes_to_the_same_end(history: History, keys_max: int) -> None:
    world = World()
    world.write(history)
    world.settle()
    for _ in range(200):
        if not world.compact(keys_max=keys_max):
            break
        check_survivors(world)
        world.directory.checkpoint()
    assert len(check_survivors(world)) == len(world.latest())


@settings(max_examples=40, deadline=None)
@given(history=HISTORIES)
def test_a_tombstone_stays_for_its_time_and_then_goes(history: History) -> None:
    world = World()
    world.write(history)
    world.settle()
    world.compact()
    world.log.compaction.cleaned_offset = 0
    world.directory.checkpoint()
    world.compact(START_MS + RETAIN_MS - 1)
    assert len(check_survivors(world)) == len(world.latest())
    world.log.compaction.cleaned_offset = 0
    world.directory.checkpoint()
    world.compact(START_MS + RETAIN_MS)
    records = check_survivors(world, tombstones_may_go=True)
    assert all(record.value is not None for record in records)


@settings(max_examples=30, deadline=None)
@given(history=HISTORIES)
def test_producers_survive_compaction_and_a_rebuild(history: History) -> None:
    world = World()
    world.write(history)
    world.settle()
    entry = world.log.producers.get(3)
    world.compact()
    world.directory.close()
    for name in [entry.name for entry in world.disk.list_directory("data/accounts-0")]:
        if name.endswith(".snapshot"):
            world.disk.remove(f"data/accounts-0/{name}")
    world.reopen()
    rebuilt = world.log.producers.get(3)
    if entry is None:
        assert rebuilt is None
    else:
        assert rebuilt is not None
        assert rebuilt.batches[-1][:4] == entry.batches[-1][:4]
        assert rebuilt.next_sequence == entry.next_sequence


@pytest.mark.parametrize("kind", ["process", "power"])
@settings(max_examples=12, deadline=None)
@given(history=st.lists(HISTORIES.filter(bool), min_size=1, max_size=1), seed=st.integers(0, 1000))
def test_a_crash_at_any_step_leaves_a_sound_log(kind: str, history: list[History], seed: int) -> None:
    changes = 0
    crashed = True
    while crashed:
        world = World(seed)
        world.write(history[0])
        world.settle()
        end_offset = world.log.end_offset
        world.disk.stop_after(changes)
        try:
            world.compact()
            crashed = False
        except SimCrash:
            crashed = True
        world.disk.crash("power" if kind == "power" else "process")
        world.reopen()
        assert world.log.end_offset == end_offset
        check_survivors(world)
        world.directory.checkpoint()
        world.log.compaction.cleaned_offset = 0
        world.compact()
        assert len(check_survivors(world)) == len(world.latest())
        changes += 1
