"""Callbacks that wait for an offset or for a change: each is called when its time has come, and once."""

from hypothesis import given
from hypothesis import strategies as st

from martlet.broker.partitions.watermarks import ChangeWaiters, OffsetWaiters

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("reach"), st.integers(0, 60), st.booleans()),
        st.tuples(st.just("give up"), st.just(0), st.booleans()),
        st.tuples(st.just("end"), st.just(0), st.booleans()),
    )
)


@given(steps)
def test_each_waiter_is_called_once_and_only_when_reached_given_up_or_ended(
    history: list[tuple[str, int, bool]],
) -> None:
    waiters, called = OffsetWaiters(), list[int]()
    waiting: dict[int, tuple[int, bool]] = {}
    highest = 0
    for number, (kind, value, gives_up) in enumerate(history):
        called.clear()
        if kind == "add":
            highest += value
            waiting[number] = (highest, gives_up)
            waiters.add(highest, lambda number=number: called.append(number), gives_up=gives_up)  # type: ignore[misc]
            expected: list[int] = []
        elif kind == "reach":
            waiters.reached(value)
            expected = [key for key, (offset, _) in waiting.items() if offset <= value]
        elif kind == "give up":
            waiters.give_up()
            expected = [key for key, (_, gives) in waiting.items() if gives]
        else:
            waiters.end()
            expected = list(waiting)
        assert called == expected
        for key in expected:
            del waiting[key]


def test_a_waiter_that_waits_again_from_its_call_is_not_called_in_the_same_end() -> None:
    waiters, calls = OffsetWaiters(), list[str]()

    def again() -> None:
        calls.append("called")
        waiters.add(9, again)

    waiters.add(1, again)
    waiters.end()
    assert calls == ["called"]


def test_waiters_for_changes_may_leave_while_they_are_called() -> None:
    waiters, calls = ChangeWaiters(), list[str]()

    def once() -> None:
        calls.append("once")
        waiters.remove(once)

    waiters.add(once)
    waiters.add(once)
    waiters.wake()
    waiters.wake()
    assert calls == ["once"]
