"""The randomness port and the id source built on it.

What needs chance or a fresh id is given one of these; nothing in Martlet calls `random`, `uuid` or
`secrets` directly, so a simulated run replays from its seed.
"""

import random
from typing import Protocol

from martlet.base.ids import TopicId, format_topic_id


class Randomness(Protocol):
    """The few draws Martlet makes."""

    def below(self, limit: int) -> int:
        """A whole number from 0 to limit - 1."""
        ...

    def fraction(self) -> float:
        """A number in [0, 1)."""
        ...

    def token(self, size: int) -> bytes:
        """`size` random bytes."""
        ...


class SystemRandomness:
    """Draws from the operating system's generator."""

    __slots__ = ("_source",)

    def __init__(self) -> None:
        self._source = random.SystemRandom()

    def below(self, limit: int) -> int:
        return self._source.randrange(limit)

    def fraction(self) -> float:
        return self._source.random()

    def token(self, size: int) -> bytes:
        return self._source.randbytes(size)


class IdSource:
    """Makes ids that no other process has made: version 4 UUIDs from the given randomness."""

    __slots__ = ("_randomness",)

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness

    def topic_id(self) -> TopicId:
        """A fresh topic id; never the all-zero id, which means "none" on the wire."""
        raw = bytearray(self._randomness.token(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        return TopicId(bytes(raw))

    def text_id(self) -> str:
        """A fresh id as 22 printable characters, for cluster ids and the like."""
        return format_topic_id(self.topic_id())
