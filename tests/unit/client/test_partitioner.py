"""Which partition a message goes to."""

import pytest
from sim.randomness import SimRandomness

from martlet.client.partitioner import StickyChoice, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_java_clients_numbers(key: bytes, signed_hash: int) -> None:
    assert murmur2(key) == signed_hash % 2**32


def test_a_key_always_goes_to_the_same_partition_and_keys_spread() -> None:
    chosen = [partition_for_key(b"key-%d" % number, 7) for number in range(500)]
    assert chosen == [partition_for_key(b"key-%d" % number, 7) for number in range(500)]
    assert set(chosen) == set(range(7))


def test_without_a_key_the_choice_sticks_until_a_batch_is_full() -> None:
    sticky = StickyChoice(SimRandomness(3))
    first = sticky.choose("t", [0, 1, 2])
    assert {sticky.choose("t", [0, 1, 2]) for _ in range(20)} == {first}
    sticky.batch_is_full("t", first, [0, 1, 2])
    assert sticky.choose("t", [0, 1, 2]) != first


def test_a_full_batch_of_another_partition_changes_nothing() -> None:
    sticky = StickyChoice(SimRandomness(3))
    first = sticky.choose("t", [0, 1])
    sticky.batch_is_full("t", 1 - first, [0, 1])
    assert sticky.choose("t", [0, 1]) == first


def test_a_partition_that_is_gone_is_not_chosen_any_more() -> None:
    sticky = StickyChoice(SimRandomness(3))
    first = sticky.choose("t", [0, 1])
    assert sticky.choose("t", [1 - first]) == 1 - first


def test_a_single_partition_stays_the_choice_when_its_batch_is_full() -> None:
    sticky = StickyChoice(SimRandomness(3))
    sticky.choose("t", [0])
    sticky.batch_is_full("t", 0, [0])
    assert sticky.choose("t", [0]) == 0
