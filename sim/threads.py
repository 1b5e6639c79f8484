"""What stands in for `martlet.base.threads` where there are no threads: the simulated loop's executor and its tasks.

Proved by: tests/unit/base/test_threads.py, tests/unit/base/test_background.py
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from martlet.base.threads import BackgroundWork, OnFailure, Work, report_failure

_T = TypeVar("_T")


class LoopWorkers:
    """What the running loop does with work for an executor."""

    def __init__(self, name: str, threads_max: int) -> None:
        """Takes what `ThreadWorkers` takes; a simulated executor has no limit."""

    def run(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(None, work)

    def close(self) -> None:
        """Nothing was started."""


class _Task:
    def __init__(self, work: Work, name: str, on_failure: OnFailure) -> None:
        self._task = asyncio.create_task(work(), name=name)
        self._task.add_done_callback(lambda task: report_failure(task, on_failure))

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def run_as_task(work: Work, name: str, on_failure: OnFailure) -> BackgroundWork:
    """A task of the running loop."""
    return _Task(work, name, on_failure)
