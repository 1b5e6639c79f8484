"""Order by key: never two of a key out, and the messages of every key finished in their order."""

from hypothesis import given
from hypothesis import strategies as st

from martlet.queues.key_order import KeyOrder

KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d", None]), min_size=1, max_size=60)
STEPS = st.lists(st.tuples(st.sampled_from(["take", "finish", "release"]), st.integers(0, 30)), max_size=200)


@given(KEYS, STEPS, st.sampled_from([1, 5, 1000]))
def test_keys_keep_their_order_whatever_happens(
    keys: list[bytes | None], steps: list[tuple[str, int]], parked_max: int
) -> None:
    order, position = KeyOrder(parked_max), 0
    out: list[int] = []
    finished: list[int] = []
    free_again: list[int] = []
    """Messages without a key that were released: the user of this hands them out."""
    for step, number in [*steps, *[("take", 30), ("finish", 0)] * len(keys)]:
        if step == "take":
            taken = order.take_ready(number % 5 + 1)
            more, looked_at = order.take_new(position, keys[position:], number % 5 + 1 - len(taken))
            position += looked_at
            out += [*taken, *more, *free_again]
            free_again.clear()
            keyed = [keys[offset] for offset in out if keys[offset] is not None]
            assert len(keyed) == len(set(keyed))
        elif out:
            offset = out.pop(number % len(out))
            if step == "finish":
                order.finished(offset)
                finished.append(offset)
            elif not order.released(offset):
                free_again.append(offset)
        assert order.parked <= parked_max
    assert sorted(finished) == list(range(len(keys)))
    for key in (b"a", b"b", b"c", b"d"):
        of_key = [offset for offset in finished if keys[offset] == key]
        assert of_key == sorted(of_key)
    assert not order.has_ready
    assert order.parked == 0
