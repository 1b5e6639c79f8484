"""Checking a delay index at rest: sound files are passed, every damaged or missing one is named."""

from sim.disk import SimDisk
from sim.randomness import SimRandomness

from martlet.queues.delay_check import damaged_files
from martlet.queues.delay_index import DelayIndex


def stored(count: int = 1_200) -> SimDisk:
    disk = SimDisk(SimRandomness(1))
    index = DelayIndex(disk, "delay", run_entries=600)
    index.open(0)
    for offset in range(count):
        index.add(1_000 + offset, offset)
    index.close()
    return disk


def test_a_sound_index_and_none_at_all_are_passed() -> None:
    assert list(damaged_files(stored(), "delay")) == []
    assert list(damaged_files(SimDisk(SimRandomness(1)), "delay")) == []


def test_damage_is_named_wherever_it_is() -> None:
    disk = stored()
    disk.overwrite("delay/00000000", 9_000, b"\xa5\xa5")
    disk.remove("delay/00000001")
    assert list(damaged_files(disk, "delay")) == [
        ("delay/00000000", "block 1 of delay/00000000 is damaged"),
        ("delay/00000001", "the file is gone"),
    ]
    disk.overwrite("delay/runs", 5, b"\xa5\xa5")
    assert list(damaged_files(disk, "delay")) == [("delay/runs", "the list of runs is damaged or gone")]
