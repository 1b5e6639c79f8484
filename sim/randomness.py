"""The randomness port's deterministic twin: everything it draws follows from its seed.

Give every source of chance in a simulation a stream of its own (`stream`), so that one more draw in one place
does not change what happens in all others.
"""

import random


class SimRandomness:
    """A seeded generator with the port's three draws."""

    __slots__ = ("_source", "seed")

    def __init__(self, seed: int | str = 0) -> None:
        self.seed = seed
        # A string is hashed by `random` itself (SHA-512), not by Python's per-process hash.
        self._source = random.Random(f"martlet {seed}")  # noqa: S311 - repeatable on purpose

    def below(self, limit: int) -> int:
        return self._source.randrange(limit)

    def fraction(self) -> float:
        return self._source.random()

    def token(self, size: int) -> bytes:
        return self._source.randbytes(size)

    def stream(self, name: str) -> "SimRandomness":
        """An independent generator that depends on the seed and the name only."""
        return SimRandomness(f"{self.seed}/{name}")
