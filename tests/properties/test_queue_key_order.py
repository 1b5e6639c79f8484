"""Order by key: never two of a key have their turn, and the messages of every key are finished in their order."""

from hypothesis import given
from hypothesis import strategies as st

from martlet.queues.key_order import KeyOrder

STEPS = st.lists(
    st.tuples(st.sampled_from(["enter", "enter", "finish", "drop"]), st.integers(0, 30)), min_size=1, max_size=120
)


@given(STEPS)
def test_keys_keep_their_order_whatever_happens(steps: list[tuple[str, int]]) -> None:
    order = KeyOrder()
    queues: dict[bytes, list[int]] = {}
    for offset, (step, number) in enumerate(steps):
        key = b"abcd"[number % 4 :][:1]
        queue = queues.setdefault(key, [])
        if step == "enter":
            assert order.enter(offset, key) == (not queue)
            queue.append(offset)
        elif step == "finish" and queue:
            following = order.finished(queue.pop(0))
            assert following == (queue[0] if queue else None)
        elif step == "drop" and len(queue) > 1:
            order.drop(queue.pop(1 + number % (len(queue) - 1)))
        assert order.parked == sum(max(0, len(queue) - 1) for queue in queues.values())
        for key, queue in queues.items():
            assert order.is_busy(key) == bool(queue)
            assert order.waits_behind(key) == tuple(queue[1:])
            assert order.turn_of(key) == (queue[0] if queue else None)
