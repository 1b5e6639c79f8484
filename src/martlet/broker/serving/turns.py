"""Long lists in a request, worked through in turns, so that one client's long request does not keep the others waiting.

One event loop serves all clients: a handler that answers for thousands of things gives it back now and then. Naming one
thing many times is never worth many answers, or a small request would cost minutes.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterable
from typing import Final, TypeVar

from martlet.base.errors import ApiError, ErrorCode

T = TypeVar("T")

_ITEMS_PER_TURN: Final = 50


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items one by one, with a pause for the others after every few."""
    for number, item in enumerate(items, 1):
        yield item
        if number % _ITEMS_PER_TURN == 0:
            await asyncio.sleep(0)


class Repeats:
    """Knows what a request names more than once."""

    def __init__(self, names: Iterable[Hashable]) -> None:
        self._times = Counter(names)

    def check(self, name: Hashable) -> None:
        """Raise INVALID_REQUEST for a name that occurs again."""
        if self._times[name] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the request names this more than once")
