"""Which partition a message goes to when its sender names none.

A key always goes to the same partition, chosen as the Java client chooses it (murmur2), so that producers in
several languages agree. A message without a key goes to a partition that stays the same until a batch is full,
which makes few large batches instead of many small ones.
"""

from collections.abc import Sequence
from typing import Final

from martlet.base.randomness import Randomness

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bit, with the Java client's seed; unsigned."""
    size = len(data)
    whole = size & ~3
    h = (_SEED ^ size) & _MASK
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little")
        k = (k * _FACTOR) & _MASK
        k ^= k >> 24
        k = (k * _FACTOR) & _MASK
        h = ((h * _FACTOR) & _MASK) ^ k
    if whole != size:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _FACTOR) & _MASK
    h ^= h >> 13
    h = (h * _FACTOR) & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key among `partition_count`, as the Java client has it."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyChoice:
    """The partition that messages without a key go to now, per topic."""

    __slots__ = ("_chosen", "_randomness")

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self._chosen: dict[str, int] = {}

    def choose(self, topic: str, available: Sequence[int]) -> int:
        """The current partition, or a new one when there is none or it is not available any more."""
        current = self._chosen.get(topic)
        if current is not None and current in available:
            return current
        chosen = available[self._randomness.below(len(available))]
        self._chosen[topic] = chosen
        return chosen

    def batch_is_full(self, topic: str, partition: int, available: Sequence[int]) -> None:
        """Move on to another partition, if this one is still the current and there is another."""
        if self._chosen.get(topic) != partition:
            return
        others = [candidate for candidate in available if candidate != partition]
        if others:
            self._chosen[topic] = others[self._randomness.below(len(others))]
