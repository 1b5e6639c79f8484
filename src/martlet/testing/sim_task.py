"""The tasks of a simulated event loop: ordinary ones, but with a number that is the same in every run."""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


class SimTask(asyncio.Task[_T]):
    """A task whose hash is its number in its loop, so that sets of tasks have the same order in every run."""

    def __init__(
        self,
        coroutine: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        loop: asyncio.AbstractEventLoop,
        name: str,
        context: Context | None,
        number: int,
    ) -> None:
        self.number = number
        super().__init__(cast(Coroutine[Any, Any, _T], coroutine), loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self.number

    def place(self) -> str:
        """Where it waits, for reports."""
        frames = self.get_stack()
        if not frames:
            return "its end"
        return f"{frames[-1].f_code.co_qualname}:{frames[-1].f_lineno}"
