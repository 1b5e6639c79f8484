"""The columns of the window: runs, counters, and the start that moves over what is finished."""

from martlet.queues.cells import ACKNOWLEDGED, CLOSING, LEASED, STRAY, WAITING
from martlet.queues.window import CellRun, Window


def test_runs_join_neighbours_of_one_state_and_count() -> None:
    window = Window(100)
    window.open(300, LEASED, 1)
    window.open(5, LEASED, 2)
    window.open(1, WAITING)
    assert list(window.runs(100, 405)) == [
        CellRun(100, 399, LEASED, 1),
        CellRun(400, 404, LEASED, 2),
        CellRun(405, 405, WAITING, 0),
    ]
    assert list(window.runs(101, 101)) == [CellRun(101, 101, LEASED, 1)]
    assert list(window.runs(100, 99)) == []


def test_the_start_moves_over_everything_finished_or_moved_aside_and_no_further() -> None:
    window = Window(0)
    window.open(10, LEASED, 1)
    window.move(1, 3, LEASED, ACKNOWLEDGED)
    window.advance()
    assert window.start == 0
    window.move(0, 0, LEASED, STRAY)
    window.move(4, 4, LEASED, CLOSING + ACKNOWLEDGED)
    window.advance()
    assert window.start == 4
    assert len(window) == 6


def test_a_long_life_keeps_the_columns_short() -> None:
    window = Window(0)
    for _ in range(100):
        first = window.open(1000, LEASED, 1)
        window.move(first, first + 999, LEASED, ACKNOWLEDGED)
        window.advance()
    assert window.start == window.frontier == 100_000
    assert len(window._states) < 10_000


def test_the_next_that_waits_is_found_wherever_it_came_back() -> None:
    window = Window(0)
    assert window.next_waiting() is None
    window.open(1000, LEASED, 1)
    window.move(700, 700, LEASED, WAITING)
    assert window.next_waiting() == 700
    window.move(20, 20, LEASED, WAITING)
    assert window.next_waiting() == 20
    window.lease(20, 20, 2, 0)
    assert window.next_waiting() == 700
    assert (window.waiting, window.leased) == (1, 999)


def test_a_range_knows_its_leases() -> None:
    window = Window(5)
    window.open(3, LEASED, 1, 7)
    window.open(2, LEASED, 1, 9)
    assert window.slots(5, 9) == {7: 3, 9: 2}
    assert window.slots(8, 8) == {9: 1}
    assert window.has_only(5, 9, LEASED)
    window.move(6, 6, LEASED, WAITING)
    assert not window.has_only(5, 9, LEASED)
