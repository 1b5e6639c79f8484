"""Order by key: one at a time, the others go on, and the bound of what is parked."""

from martlet.queues.key_order import KeyOrder

A, B = b"a", b"b"


def test_later_messages_of_a_busy_key_are_parked_and_others_go_on() -> None:
    order = KeyOrder()
    assert [order.enter(offset, key) for offset, key in ((10, A), (11, A), (12, B), (14, A))] == [
        True,
        False,
        True,
        False,
    ]
    assert order.parked == 2
    assert order.waits_behind(A) == (11, 14)
    assert order.finished(10) == 11
    assert order.finished(12) is None
    assert order.finished(11) == 14
    assert order.finished(14) is None
    assert order.enter(16, A)


def test_a_message_that_ends_while_it_is_parked_is_passed_over() -> None:
    order = KeyOrder()
    for offset in range(4):
        order.enter(offset, A)
    order.drop(1)
    order.drop(3)
    assert (order.parked, order.waits_behind(A)) == (1, (2,))
    assert order.finished(0) == 2
    assert order.finished(2) is None
    assert order.busiest() is None
    assert order.enter(9, A)


def test_what_never_had_a_key_ends_without_a_trace() -> None:
    order = KeyOrder()
    order.drop(7)
    assert order.finished(7) is None
    assert order.parked == 0


def test_at_the_bound_the_reason_is_told() -> None:
    order = KeyOrder(parked_max=2)
    for offset in range(3):
        order.enter(offset, A)
    order.enter(3, B)
    assert (order.is_full, order.busiest()) == (True, (A, 2))
    assert order.is_busy(B)
    assert order.turn_of(A) == 0
    order.finished(0)
    assert not order.is_full
