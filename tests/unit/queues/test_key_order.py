"""Order by key: one at a time, the others go on, and the bound of what is parked."""

from martlet.queues.key_order import KeyOrder

A, B, C = b"a", b"b", b"c"


def test_later_messages_of_a_busy_key_are_parked_and_others_go_on() -> None:
    order = KeyOrder()
    assert order.take_new(10, [A, A, B, None, A, None], 10) == ([10, 12, 13, 15], 6)
    assert order.parked == 2
    assert order.waits_behind(A) == (11, 14)
    order.finished(10)
    assert order.take_ready(5) == [11]
    order.finished(11)
    order.finished(12)
    assert order.take_ready(5) == [14]
    order.finished(14)
    assert order.take_new(16, [A, B], 10) == ([16, 17], 2)


def test_a_released_message_goes_before_the_rest_of_its_key() -> None:
    order = KeyOrder()
    order.take_new(0, [A, A, B], 10)
    assert order.released(0)
    assert not order.released(0)
    assert order.take_new(3, [A, C], 10) == ([4], 2)
    assert order.take_ready(5) == [0]
    order.finished(0)
    assert order.take_ready(5) == [1]
    assert not order.released(99), "a message without a key has no place here"


def test_at_the_bound_nothing_more_is_parked_and_the_reason_is_named() -> None:
    order = KeyOrder(parked_max=2)
    assert order.take_new(0, [A, A, A, A, B], 10) == ([0], 3)
    assert (order.is_full, order.busiest()) == (True, (A, 2))
    assert order.take_new(3, [B, A], 10) == ([3], 1), "free keys are still taken"
    order.finished(0)
    assert order.take_new(4, [A], 10) == ([], 1)


def test_a_limit_stops_where_it_is_reached() -> None:
    order = KeyOrder()
    assert order.take_new(0, [A, B, C], 2) == ([0, 1], 2)
    assert order.busiest() is None
    assert not order.has_ready


def test_a_loaded_subscription_goes_on_in_order() -> None:
    order = KeyOrder()
    for offset, key in ((3, A), (5, B), (6, A), (9, A)):
        order.restore(offset, key)
    assert order.take_ready(10) == [3, 5]
    order.finished(3)
    assert order.take_ready(10) == [6]
    assert order.parked == 1
