"""From a request to a finished run: the session, the pipeline's flows, the runner, signals, and the end of it all.

How it works: the run's directory is locked first, so a second run of the same name is refused before Spark starts. What
Spark's processes print goes to the run's log, because the terminal belongs to the command. SIGINT and SIGTERM ask the
run to stop; a second one interrupts it.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from martlet.base.clock import SystemClock
from martlet.spark.pipelines.failure_text import described_failure
from martlet.spark.pipelines.flows import PipelineRun, RunOptions
from martlet.spark.pipelines.shipping import packages_archive, shipping_environment, shipping_settings, ships_to
from martlet.spark.pipelines.state_directory import RunDirectory
from martlet.spark.pipelines.status import RunState, RunStatus
from martlet.spark.pipelines.supervisor import PipelineFailed, Runner, Tell
from martlet.spark.session import start_session

PACKAGES: Final = ".packages"
"""Below the directory of all runs: what was packed for executors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What to run and where."""

    name: str
    pipeline: str
    """What the user called it: a ready pipeline's name or a file."""
    state: str
    run: RunOptions
    master: str = "local[*]"
    settings: Mapping[str, str] = field(default_factory=dict)
    """More settings for Spark."""
    same_environment: bool = False
    """Executors elsewhere have this Python environment at the same path; nothing need be sent."""


def launch(request: LaunchRequest, define: Callable[[PipelineRun], None], tell: Tell) -> RunStatus:
    """Run a pipeline until it ends; `define` adds its flows. Raises PipelineFailed when it could not go on."""
    directory = RunDirectory(request.state, request.name)
    with directory.hold():
        status = first_status(request)
        directory.write_status(status)
        tell(status)
        try:
            settings = {**_shipped(request), **request.settings}
            with output_to(str(directory.spark_log)):
                spark = start_session(request.name, master=request.master, settings=settings)
            try:
                run = PipelineRun(spark, directory, request.run)
                define(run)
                runner = Runner(run, directory, status, tell)
                with stopping_on_signals(directory, runner):
                    status = runner.run_to_end()
            finally:
                spark.stop()
        except Exception as error:  # noqa: BLE001 - supervisor: whatever ends a run shows in its status
            status = ended_badly(status, described_failure(error, directory.spark_log))
            directory.write_status(status)
    if status.state is RunState.FAILED:
        raise PipelineFailed(f"pipeline {request.name} failed: {status.last_error}")
    return status


def _shipped(request: LaunchRequest) -> dict[str, str]:
    """Settings that give executors elsewhere what they need; none for those that have it."""
    if request.same_environment or not ships_to(request.master):
        return {}
    os.environ.update(shipping_environment())
    return shipping_settings(packages_archive(Path(request.state).absolute() / PACKAGES))


def first_status(request: LaunchRequest) -> RunStatus:
    now_ms = SystemClock().now_ms()
    return RunStatus(
        name=request.name,
        pipeline=request.pipeline,
        state=RunState.STARTING,
        pid=os.getpid(),
        master=request.master,
        started_at_ms=now_ms,
        updated_at_ms=now_ms,
    )


def ended_badly(status: RunStatus, error: str) -> RunStatus:
    """The status of a run that never got going."""
    return RunStatus(
        name=status.name,
        pipeline=status.pipeline,
        state=RunState.FAILED,
        pid=status.pid,
        master=status.master,
        started_at_ms=status.started_at_ms,
        updated_at_ms=SystemClock().now_ms(),
        flows=status.flows,
        last_error=error,
    )


@contextlib.contextmanager
def output_to(path: str) -> Iterator[None]:
    """Whatever is started inside writes its standard error to the file, for all its life."""
    sys.stderr.flush()
    kept = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)


@contextlib.contextmanager
def stopping_on_signals(directory: RunDirectory, runner: Runner) -> Iterator[None]:
    """SIGINT and SIGTERM ask for a stop; the second one is not asked but done."""

    def ask(_number: int, _frame: FrameType | None) -> None:
        if directory.is_asked_to_stop():
            raise KeyboardInterrupt
        directory.ask_to_stop()
        runner.wake()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
