"""Keyed timers: order, moving, forgetting, and that moving costs nothing."""

from martlet.coordinator.result import CancelTimer, SetTimer
from martlet.coordinator.timers import TimerQueue


def test_timers_run_out_in_the_order_of_their_instants() -> None:
    timers = TimerQueue()
    timers.apply([SetTimer(("late",), 20), SetTimer(("early",), 10)], 100)
    assert timers.next_at_ms() == 110
    assert timers.pop_due(109) is None
    assert [timers.pop_due(120), timers.pop_due(120), timers.pop_due(120)] == [("early",), ("late",), None]
    assert len(timers) == 0


def test_a_timer_can_be_moved_both_ways() -> None:
    timers = TimerQueue()
    timers.set(("a",), 10)
    timers.set(("a",), 30)
    assert timers.next_at_ms() == 30
    timers.set(("a",), 5)
    assert timers.pop_due(5) == ("a",)
    assert timers.pop_due(100) is None


def test_a_cancelled_timer_never_fires() -> None:
    timers = TimerQueue()
    timers.apply([SetTimer(("a",), 10), CancelTimer(("a",)), CancelTimer(("never set",))], 0)
    assert ("a",) not in timers
    assert timers.next_at_ms() is None
    timers.set(("a",), 50)
    assert timers.next_at_ms() == 50
    assert timers.pop_due(50) == ("a",)


def test_a_delay_below_nothing_is_due_at_once() -> None:
    timers = TimerQueue()
    timers.apply([SetTimer(("a",), -5)], 100)
    assert timers.pop_due(100) == ("a",)


def test_moving_timers_for_ever_takes_no_memory() -> None:
    timers = TimerQueue()
    for turn in range(20_000, 0, -1):
        timers.set(("a",), turn)
    assert len(timers._heap) <= 1_100
    assert timers.pop_due(1) == ("a",)
    assert timers.next_at_ms() is None
