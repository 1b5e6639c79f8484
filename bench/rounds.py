"""What the benchmarks share: where they work, how large they are, and how rounds are run in turn."""

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.report import say

MEGABYTE: Final = 1_000_000
GIGABYTE: Final = 1_000_000_000


@dataclass
class Context:
    """One run of the benchmarks."""

    work: Path
    rounds: int
    quick: bool
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def sized(self, full: int, quick: int) -> int:
        """A size, or the small one of a quick run that only shows that all works."""
        return quick if self.quick else full

    @contextlib.contextmanager
    def directory(self, name: str) -> Iterator[Path]:
        """A fresh directory, gone afterwards."""
        path = self.work / f"{next(self._numbers):03}-{name}"
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def settle() -> None:
    """Let the disk finish what earlier rounds left to it, so that this round pays only for itself."""
    os.sync()
    time.sleep(0.1)


def touch_pages(place: Path, size: int) -> None:
    """Write N bytes and delete them, right before a round that writes as many: both sides find pages alike.

    A virtual machine gives pages that were free for some seconds back to its host, and the first write to such a page
    is many times slower than to one that was just freed.
    """
    path = place / "pages"
    block = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(block) + 1):
            file.write(block)
    path.unlink()


def in_turn(
    context: Context, name: str, broker: Callable[[], float], limit: Callable[[], float]
) -> list[tuple[float, float]]:
    """Measure both once per round, each going first in every other round; (broker's, limit's) of each round."""
    results = []
    for number in range(context.rounds):
        if number % 2:
            limit_value = limit()
            value = broker()
        else:
            value = broker()
            limit_value = limit()
        results.append((value, limit_value))
        ratio = value / limit_value
        say(f"  {name}, round {number + 1} of {context.rounds}: {value:,.1f} beside {limit_value:,.1f}, {ratio:.2f}")
    return results
