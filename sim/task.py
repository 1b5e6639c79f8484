"""The tasks of a simulated event loop: ordinary ones, but with a number that is the same in every run."""

import asyncio
import inspect
from collections.abc import Coroutine, Generator
from contextvars import Context
from types import CoroutineType
from typing import Any, Final, TypeVar, cast

from sim.failing_device import SimCrash

_T = TypeVar("_T")

_UNWIND_STEPS_MAX: Final = 1_000


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

    def unwind(self) -> None:
        """Take an abandoned task's coroutine apart, so that the garbage collector finds nothing to close.

        Thrown into, not closed: closing is refused by code that awaits while it cleans up.
        """
        self._log_destroy_pending = False
        coroutine: Any = self.get_coro()
        if not self.done() and _is_unstarted(coroutine):
            # What it was going to await was handed to it and would be complained about as never awaited.
            for handed in [value for value in coroutine.cr_frame.f_locals.values() if _is_unstarted(value)]:
                handed.close()
        for _ in range(_UNWIND_STEPS_MAX):
            if self.done() or getattr(coroutine, "cr_frame", None) is None:
                return
            # A handle hands what comes out to the loop, which is dead and does not care.
            asyncio.Handle(coroutine.throw, (SimCrash(),), self.get_loop())._run()  # noqa: SLF001

    def place(self) -> str:
        """Where it waits, for reports: the innermost two functions."""
        places: list[str] = []
        awaited: Any = self.get_coro()
        while awaited is not None:
            frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
            if frame is not None:
                places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
        return " > ".join(places[-2:]) or "its end"


def _is_unstarted(value: object) -> bool:
    return isinstance(value, CoroutineType) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED
