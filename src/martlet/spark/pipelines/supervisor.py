"""Runs a pipeline: starts its flows, watches them, starts failed ones again, ends them between batches.

How it works: one loop, a few times a second. Spark's figures come through `ProgressHistory`, the lag from the brokers;
both make a `RunStatus` that is written to the run's directory and handed to the command that shows it. The run ends
when all flows have ended, when it is asked to stop (the stop file, or a signal), or when a flow fails for good.

Stopping: the stop file also tells the source to give no further batch, so a query comes to rest after the batch it is
in, and only then is it stopped. Nothing is interrupted.

A flow that fails after it has processed something is started again from its checkpoint, a few times with growing
pauses, and so is one that has waited for its first message a while: that is for brokers that were away. One that fails
at its start has a mistake in it, and ends the run; unless it is known to pass, as when a busy machine could not start a
process in time.

Invariants: (SPK-13) a stop that was asked for loses and repeats nothing; (SPK-14) the status file always says how the
run ended, unless its process was killed, which the lock shows.

Proved by: tests/spark/test_supervisor.py.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from martlet.base.clock import Clock, SystemClock
from martlet.base.errors import MartletError
from martlet.spark.pipelines.failure_text import described_failure, failure_text, is_passing
from martlet.spark.pipelines.flows import BatchFlow, PipelineRun, StreamFlow
from martlet.spark.pipelines.lag_probe import Lag, probe_lag
from martlet.spark.pipelines.progress_history import ProgressHistory
from martlet.spark.pipelines.state_directory import RunDirectory
from martlet.spark.pipelines.status import FlowStatus, RunState, RunStatus

_POLL_SECONDS: Final = 0.3
_REST_POLL_SECONDS: Final = 0.02
_EMPTY_BATCHES_SECONDS: Final = 10.0
_LAG_INTERVAL_MS: Final = 2_000
_MAINTENANCE_INTERVAL_MS: Final = 60_000
_LAST_REPORT_SECONDS: Final = 10.0
_RESTARTS_MAX: Final = 5
_SETTLED_MS: Final = 30_000
"""A query that has lasted so long works, though it has had nothing to do yet; without a broker it fails sooner."""
_RESTART_PAUSE_SECONDS: Final = 1.0

Tell = Callable[[RunStatus], None]


class PipelineFailed(MartletError):
    """A pipeline ended because something went wrong; the text is the reason."""


class Runner:
    """One run from its start to its end; `run_to_end` may be called once."""

    def __init__(
        self, run: PipelineRun, directory: RunDirectory, status: RunStatus, tell: Tell, clock: Clock | None = None
    ) -> None:
        self._run = run
        self._directory = directory
        self._status = status
        self._tell = tell
        self._clock = clock or SystemClock()
        self._book = ProgressHistory()
        self._woken = threading.Event()
        self._lag_at_ms = 0
        self._maintained_at_ms = self._clock.monotonic_ms()
        self._watches: list[_StreamWatch | _BatchWatch] = []

    def wake(self) -> None:
        """Look at the stop file at once; may be called from a signal handler."""
        self._woken.set()

    def run_to_end(self) -> RunStatus:
        """Start, watch, end; returns the last status, which says how it ended."""
        self._run.spark.streams.addListener(self._book)
        try:
            self._watches = [self._watch(flow) for flow in self._run.flows]
            self._note(RunState.RUNNING)
            for watch in self._watches:
                watch.start()
            ended = self._watch_all()
        except Exception as error:  # noqa: BLE001 - supervisor: whatever ends a run shows in its status (SPK-14)
            for watch in self._watches:
                watch.abandon()
            return self._note(RunState.FAILED, described_failure(error, self._directory.spark_log))
        finally:
            self._run.spark.streams.removeListener(self._book)
        return self._note(ended)

    def _watch(self, flow: StreamFlow | BatchFlow) -> "_StreamWatch | _BatchWatch":
        if isinstance(flow, BatchFlow):
            return _BatchWatch(flow)
        return _StreamWatch(flow, self._book, f"{self._directory.name}.{flow.name}", self._clock)

    def _watch_all(self) -> RunState:
        while True:
            if self._directory.is_asked_to_stop():
                self._note(RunState.STOPPING)
                for watch in self._watches:
                    watch.come_to_rest()
                self._ask_lag()
                self._maintain()
                return RunState.STOPPED
            ended = [watch.has_ended(self._pause) for watch in self._watches]
            if all(ended):
                self._ask_lag()
                self._maintain()
                return RunState.FINISHED
            if self._clock.monotonic_ms() - self._lag_at_ms >= _LAG_INTERVAL_MS:
                self._ask_lag()
            if self._clock.monotonic_ms() - self._maintained_at_ms >= _MAINTENANCE_INTERVAL_MS:
                self._maintain()
            self._note(RunState.RUNNING)
            self._pause(_POLL_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._woken.wait(seconds)
        self._woken.clear()

    def _ask_lag(self) -> None:
        for watch in self._watches:
            if isinstance(watch, _StreamWatch):
                watch.lag = probe_lag(self._run.options.bootstrap, self._book.of(watch.query_name).positions)
        self._lag_at_ms = self._clock.monotonic_ms()

    def _maintain(self) -> None:
        for watch in self._watches:
            if isinstance(watch, _StreamWatch):
                watch.maintain(self._directory.spark_log)
        self._maintained_at_ms = self._clock.monotonic_ms()

    def _note(self, state: RunState, error: str | None = None) -> RunStatus:
        flows = tuple(watch.status() for watch in self._watches)
        last_error = error or next((flow.last_error for flow in flows if flow.last_error), self._status.last_error)
        self._status = replace(
            self._status, state=state, updated_at_ms=self._clock.now_ms(), flows=flows, last_error=last_error
        )
        self._directory.write_status(self._status)
        self._tell(self._status)
        return self._status


class _StreamWatch:
    """One query under the runner's eyes."""

    def __init__(self, flow: StreamFlow, book: ProgressHistory, query_name: str, clock: Clock) -> None:
        self.flow = flow
        self._clock = clock
        self._started_at_ms = 0
        self.query_name = query_name
        self.lag = Lag()
        self._book = book
        self._query: StreamingQuery | None = None
        self._restarts = 0
        self._rows_at_restart = 0
        self._failures_in_a_row = 0
        self._last_error: str | None = None

    def start(self) -> None:
        self._query = self.flow.start()
        self._started_at_ms = self._clock.monotonic_ms()

    def has_ended(self, pause: Callable[[float], None]) -> bool:
        """Whether it came to its end; a failed one is started again, or raises what it failed with."""
        if self._query is None or self._query.isActive:
            return False
        error = self._query.exception()
        # What Spark has to report comes by a thread of its own, the last batch's figures with the rest.
        self._book.wait_for_end(str(self._query.runId), _LAST_REPORT_SECONDS)
        if error is None:
            return True
        rows = self._book.of(self.query_name).rows
        self._failures_in_a_row = 1 if rows > self._rows_at_restart else self._failures_in_a_row + 1
        was_settled = self._clock.monotonic_ms() - self._started_at_ms > _SETTLED_MS
        is_mistake = rows == 0 and not was_settled and not is_passing(error)
        if is_mistake or self._failures_in_a_row > _RESTARTS_MAX:
            raise PipelineFailed(failure_text(error))
        self._last_error = failure_text(error)
        self._restarts += 1
        self._rows_at_restart = rows
        pause(_RESTART_PAUSE_SECONDS * 2 ** (self._failures_in_a_row - 1))
        self.start()
        return False

    def come_to_rest(self) -> None:
        """End it after the batch it is in; the source gives no other (SPK-13)."""
        query = self._query
        if query is None or not query.isActive:
            return
        waiting = threading.Event()
        empty_seconds = 0.0
        # Between two triggers nothing is under way, and the next one finds nothing new. A stateful query may run empty
        # batches without end and leave no such moment.
        while query.status["isTriggerActive"] and empty_seconds < _EMPTY_BATCHES_SECONDS:
            waiting.wait(_REST_POLL_SECONDS)
            empty_seconds = 0.0 if query.status["isDataAvailable"] else empty_seconds + _REST_POLL_SECONDS
        query.stop()
        self._book.wait_for_end(str(query.runId), _LAST_REPORT_SECONDS)

    def maintain(self, log: Path) -> None:
        """What keeps the flow's target in order; when it fails, that is logged and it is tried again the next time."""
        if self.flow.maintenance is None:
            return
        try:
            self.flow.maintenance()
        except Exception as error:  # noqa: BLE001 - supervisor: maintenance that fails must not end the flow
            self._last_error = described_failure(error, log)

    def abandon(self) -> None:
        """End it as it is."""
        if self._query is not None and self._query.isActive:
            self._query.stop()

    def status(self) -> FlowStatus:
        progress = self._book.of(self.query_name)
        return FlowStatus(
            name=self.flow.name,
            batch=progress.batch,
            rows=progress.rows,
            input_rows_per_second=progress.input_rows_per_second,
            processed_rows_per_second=progress.processed_rows_per_second,
            batch_ms=progress.batch_ms,
            lag_messages=self.lag.messages,
            lag_seconds=self.lag.seconds,
            state_rows=progress.state_rows,
            state_bytes=progress.state_bytes,
            restarts=self._restarts,
            last_error=self._last_error,
        )


class _BatchWatch:
    """Work with an end of its own, done where it is started: Spark's sessions belong to the thread that made them."""

    def __init__(self, flow: BatchFlow) -> None:
        self.flow = flow
        self._rows = 0

    def start(self) -> None:
        self._rows = self.flow.work()

    def has_ended(self, _pause: Callable[[float], None]) -> bool:
        return True

    def come_to_rest(self) -> None:
        """A batch has no moment between batches: it was let finish."""

    def abandon(self) -> None:
        """Nothing runs."""

    def status(self) -> FlowStatus:
        return FlowStatus(name=self.flow.name, rows=self._rows)
