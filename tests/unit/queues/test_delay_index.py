"""The delay index: what is due comes in order, whatever was restarted, damaged or cut; and memory stays small."""

import pytest
from sim.disk import SimDisk
from sim.randomness import SimRandomness

from martlet.queues.delay_index import LAST_OFFSET, DelayIndex
from martlet.queues.delay_run import BLOCK, Coverage, Entry

BEFORE = (-1, -1)
NOW = 1_000_000


def index(disk: SimDisk | None = None, **sizes: int) -> DelayIndex:
    made = DelayIndex(disk or SimDisk(SimRandomness(1)), "delay", **({"run_entries": 1_000, "near_ms": 100} | sizes))
    made.open(0)
    return made


def fill(made: DelayIndex, count: int, first: int = 0) -> list[Entry]:
    """Messages whose due times jump about; returns them in their order."""
    entries = [(NOW + (offset * 7_919) % 10_007, offset) for offset in range(first, first + count)]
    for due_ms, offset in entries:
        made.add(due_ms, offset)
    return sorted(entries)


def drained(made: DelayIndex, after: Entry = BEFORE, step_ms: int = 50) -> list[Entry]:
    taken: list[Entry] = []
    now_ms = NOW
    while now_ms < NOW + 11_000:
        now_ms += step_ms
        while found := made.due(after, now_ms, 97):
            assert all(due_ms <= now_ms for due_ms, _ in found)
            taken += found
            after = found[-1]
    return taken


@pytest.mark.parametrize("step_ms", [1, 50, 3_000])
def test_what_is_due_comes_in_order_and_once(step_ms: int) -> None:
    made = index()
    expected = fill(made, 5_300)
    assert len(made) == 5_300
    assert drained(made, step_ms=step_ms) == expected


def test_only_what_is_due_soon_is_in_memory() -> None:
    made = index(near_ms=100)
    fill(made, 20_000)
    made.due(BEFORE, NOW - 1, 10)
    made.due((NOW - 1, 0), NOW + 50, 10_000)
    assert len(made._near) < 1_000
    assert made.pending(BEFORE) == 20_000


def test_the_next_due_time_is_exact() -> None:
    made = index()
    assert made.next_due_ms(BEFORE) is None
    made.add(NOW + 60_000, 0)
    assert made.due(BEFORE, NOW, 10) == []
    assert made.next_due_ms((NOW, -1)) == NOW + 60_000
    made.add(NOW + 30, 1)
    assert made.next_due_ms((NOW, -1)) == NOW + 30
    made.flush()
    assert made.next_due_ms((NOW + 30, 1)) == NOW + 60_000
    assert made.next_due_ms((NOW + 60_000, 0)) is None


def test_a_restart_reads_only_the_tail_of_the_log_again() -> None:
    disk = SimDisk(SimRandomness(1))
    made = index(disk)
    fill(made, 2_500)
    made.close()
    again = index(disk)
    assert again.stored_end == again.covered_end == 2_000
    assert again.missing == []
    tail = [(NOW + (offset * 7_919) % 10_007, offset) for offset in range(2_000, 2_500)]
    for due_ms, offset in tail:
        again.add(due_ms, offset)
    assert len(drained(again)) == 2_500
    assert len(drained(again, after=(NOW + 5_000, -1))) < 1_500, "who is behind is served as well"


def test_a_flush_remembers_how_far_the_log_was_looked_at() -> None:
    disk = SimDisk(SimRandomness(1))
    made = index(disk)
    made.saw(40_000)
    made.flush()
    assert index(disk).stored_end == 40_000


def test_a_damaged_run_is_read_again_from_the_log() -> None:
    disk = SimDisk(SimRandomness(1))
    made = index(disk)
    expected = fill(made, 3_000)
    made.close()
    names = [entry.name for entry in disk.list_directory("delay") if entry.name != "runs"]
    disk.overwrite(f"delay/{names[1]}", 20, b"\xff\xff")
    disk.remove(f"delay/{names[2]}")
    again = index(disk)
    assert sorted(again.missing) == [Coverage(1_000, 2_000), Coverage(2_000, 3_000)]
    again = index(disk)
    for part in list(again.missing):
        again.restore(part, [entry for entry in expected if part.first <= entry[1] < part.end])
    assert again.missing == []
    assert drained(again) == expected
    assert index(disk).missing == []


def test_a_block_found_damaged_while_it_is_read_loses_its_run_and_nothing_else() -> None:
    disk = SimDisk(SimRandomness(1))
    made = index(disk, run_entries=4 * BLOCK)
    expected = fill(made, 8 * BLOCK)
    made.due(BEFORE, NOW - 1, 1)
    name = min(entry.name for entry in disk.list_directory("delay") if entry.name != "runs")
    disk.overwrite(f"delay/{name}", 48 + 16 + 3 * BLOCK * 16, b"\xff\xff")
    taken = drained(made, after=(NOW - 1, 0))
    part = Coverage(0, 4 * BLOCK)
    assert made.missing == [part]
    assert [entry for entry in taken if entry[1] >= part.end] == [entry for entry in expected if entry[1] >= part.end]
    made.restore(part, [entry for entry in expected if entry[1] < part.end])
    assert drained(made) == expected


def test_a_list_that_is_lost_means_reading_everything() -> None:
    disk = SimDisk(SimRandomness(1))
    made = index(disk)
    fill(made, 3_000)
    made.close()
    disk.overwrite("delay/runs", 9, b"\xff")
    again = index(disk)
    assert again.stored_end == 0
    assert len(again) == 0
    assert [entry.name for entry in disk.list_directory("delay")] == ["runs"]


def test_a_log_that_is_cut_takes_its_entries_along() -> None:
    disk = SimDisk(SimRandomness(1))
    made = index(disk)
    expected = fill(made, 2_700)
    made.due(BEFORE, NOW - 1, 1)
    made.truncate(1_500)
    assert made.missing == [Coverage(1_000, 1_500)]
    made.restore(Coverage(1_000, 1_500), [entry for entry in expected if 1_000 <= entry[1] < 1_500])
    fill(made, 100, first=1_500)
    kept = sorted(entry for entry in expected if entry[1] < 1_600)
    assert drained(made, after=(NOW - 1, 0)) == kept


def test_what_every_subscription_has_had_is_forgotten() -> None:
    disk = SimDisk(SimRandomness(1))
    made = index(disk)
    for run in range(3):
        for at in range(1_000):
            made.add(NOW + 1_000 * run + at, 1_000 * run + at)
    made.forget(NOW + 1_998)
    assert len(made) == 2_000
    made.forget(NOW + 1_999)
    assert len(made) == 1_000
    assert made.listed(BEFORE, 2) == [(NOW + 2_000, 2_000), (NOW + 2_001, 2_001)]
    assert len(disk.list_directory("delay")) == 2


def test_a_message_due_within_seconds_is_seen_at_once() -> None:
    made = index()
    made.due(BEFORE, NOW, 10)
    made.add(NOW + 40, 7)
    assert made.due((NOW, 0), NOW + 39, 10) == []
    assert made.due((NOW, 0), NOW + 40, 10) == [(NOW + 40, 7)]


def test_a_clock_that_jumps_changes_nothing_but_the_time() -> None:
    made = index()
    expected = fill(made, 4_000)
    after = (NOW + 100, -1)
    first = made.due(BEFORE, NOW + 100, 10_000)
    assert made.due(after, NOW - 1_000_000, 10) == []
    rest: list[Entry] = []
    while found := made.due(after, NOW + 10_000_000, 500):
        rest += found
        after = found[-1]
    assert first + [entry for entry in rest if entry > first[-1]] == expected


def test_who_asks_late_gets_what_was_due_meanwhile() -> None:
    index = DelayIndex(SimDisk(SimRandomness(1)), "delay", near_ms=200)
    index.open(0)
    assert index.due((1_000, LAST_OFFSET), 1_000, 10) == []
    index.add(1_030, 0)
    assert index.due((1_000, LAST_OFFSET), 1_301, 10) == [(1_030, 0)], "the near window has moved past it"


def test_a_page_may_end_between_messages_of_one_instant() -> None:
    index = DelayIndex(SimDisk(SimRandomness(1)), "delay", near_ms=200)
    index.open(0)
    for offset in range(4):
        index.add(1_500, offset)
    assert index.due((1_000, LAST_OFFSET), 1_400, 2) == []
    assert index.due((1_400, LAST_OFFSET), 1_500, 2) == [(1_500, 0), (1_500, 1)]
    assert index.due((1_500, 1), 1_800, 2) == [(1_500, 2), (1_500, 3)]
    assert index.due((1_500, 2), 9_800, 9) == [(1_500, 3)]
    assert index.next_due_ms((1_500, 2)) == 1_500


def test_a_closed_index_leaves_its_files_as_they_are() -> None:
    disk = SimDisk(SimRandomness(1))
    made = index(disk)
    expected = fill(made, 2_000)
    made.flush()
    made.close()
    made.flush()
    again = index(disk)
    assert again.is_complete
    assert again.listed(BEFORE, 5_000) == expected
