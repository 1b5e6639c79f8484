"""What a program sets on an asyncio event loop and the simulated one keeps: handlers of failures, task factory, debug.

Proved by: tests/unit/sim/test_loop.py
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from sim.refusals import RefusingLoop
from sim.scheduler import SimScheduler

logger = logging.getLogger(__name__)

_ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class LoopSettings(RefusingLoop):
    """Base of the simulated loop, above what it refuses."""

    def __init__(self, scheduler: SimScheduler, name: str) -> None:
        self.scheduler = scheduler
        self.name = name
        self.is_dead = False
        self.unhandled: list[dict[str, Any]] = []
        """What callbacks and forgotten tasks raised, as handed to the exception handler."""
        self._exception_handler: _ExceptionHandler | None = None
        self._task_factory: Any = None
        self._debug = False

    def __repr__(self) -> str:
        return f"<SimLoop {self.name}>"

    def set_exception_handler(self, handler: _ExceptionHandler | None) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> _ExceptionHandler | None:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        logger.error("%s: %s", self.name, context.get("message"), exc_info=context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.is_dead:
            return
        self.unhandled.append(context)
        self.scheduler.note(self.name, f"unhandled {type(context.get('exception')).__name__}")
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled

    def set_task_factory(self, factory: Any) -> None:
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        return self._task_factory

    def set_default_executor(self, executor: Executor) -> None:
        """Accepted and not used: all work is simulated."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's own
        """There is none."""
