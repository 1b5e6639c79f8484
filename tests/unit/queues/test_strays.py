"""Strays: pauses that end, the oldest first, and heaps that name what has moved on."""

from martlet.queues.cells import BACKING_OFF, LEASED, WAITING
from martlet.queues.strays import Stray, StrayTable


def test_a_stray_waits_when_its_pause_is_over() -> None:
    table = StrayTable()
    table.put(Stray(7, BACKING_OFF, 1, ready_ms=500))
    table.put(Stray(3, BACKING_OFF, 1, ready_ms=900))
    assert table.next_ready_ms() == 500
    assert table.wake(499) == 0
    assert table.first_waiting() is None
    assert table.wake(900) == 2
    oldest = table.first_waiting()
    assert oldest is not None
    assert oldest.offset == 3


def test_a_stray_that_moved_on_is_passed_over() -> None:
    table = StrayTable()
    stray = Stray(7, WAITING, 1)
    table.put(stray)
    table.set_cell(stray, LEASED)
    table.put(Stray(8, WAITING, 1))
    table.remove(8)
    table.put(Stray(9, BACKING_OFF, 1, ready_ms=10))
    table.remove(9)
    assert table.first_waiting() is None
    assert table.next_ready_ms() is None
    assert table.oldest == 7
    assert table.tally() == {LEASED: 1}


def test_a_range_is_answered_whatever_its_size() -> None:
    table = StrayTable()
    for offset in (9, 4, 200):
        table.put(Stray(offset, WAITING, 1))
    assert [stray.offset for stray in table.within(4, 9)] == [4, 9]
    assert [stray.offset for stray in table.within(0, 1 << 60)] == [4, 9, 200]
    assert [stray.offset for stray in table.within(9, 9)] == [9]
