"""How a running pipeline is shown: one line on a terminal, JSON lines for programs, a note now and then else."""

import json
import shutil
import sys
from types import TracebackType
from typing import Final, Self

import click

from martlet.base.clock import SystemClock
from martlet.cli.output import format_duration, is_terminal, print_note, printable
from martlet.cli.waiting_line import WaitingLine
from martlet.spark.pipelines.status import RunState, RunStatus

_NOTE_INTERVAL_MS: Final = 10_000
_ENDS: Final = frozenset({RunState.FINISHED, RunState.STOPPED, RunState.FAILED})


class ProgressPrinter:
    """Takes every status of a run; prints what is news."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._on_terminal = is_terminal(sys.stderr) and not as_json
        self._shown: tuple[object, ...] | None = None
        self._waiting: WaitingLine | None = None
        self._noted_at_ms = 0
        self._clock = SystemClock()

    def show(self, status: RunStatus) -> None:
        if self._as_json:
            news = (status.state, *((flow.batch, flow.rows, flow.restarts) for flow in status.flows))
            if news != self._shown:
                self._shown = news
                click.echo(json.dumps(status.as_data(), ensure_ascii=False))
                sys.stdout.flush()
            return
        line = progress_line(status)
        self._end_waiting()
        if self._on_terminal and status.state is RunState.STARTING:
            self._waiting = WaitingLine(line)
            self._waiting.start()
            return
        if self._on_terminal:
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"\r\x1b[K{line[:width]}", nl=status.state in _ENDS, err=True)
            return
        state_is_new = self._shown != (status.state,)
        if state_is_new or self._clock.monotonic_ms() - self._noted_at_ms >= _NOTE_INTERVAL_MS:
            self._shown = (status.state,)
            self._noted_at_ms = self._clock.monotonic_ms()
            print_note(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_waiting()
        if kind is not None and self._on_terminal:
            click.echo(err=True)

    def _end_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.end()
            self._waiting = None


def progress_line(status: RunStatus) -> str:
    """`fraud running: batch 12, 40,000 rows, 5,000/s in, 9,000/s out, 0.8 s a batch, 12 behind (1 s)`."""
    parts = []
    for flow in status.flows:
        facts = [f"{flow.rows:,} rows"]
        if flow.batch is not None:
            facts.insert(0, f"batch {flow.batch}")
        if flow.input_rows_per_second is not None and flow.processed_rows_per_second is not None:
            facts.append(f"{flow.input_rows_per_second:,.0f}/s in")
            facts.append(f"{flow.processed_rows_per_second:,.0f}/s out")
        if flow.batch_ms is not None:
            facts.append(f"{flow.batch_ms / 1000:.1f} s a batch")
        if flow.lag_messages is not None:
            age = f" ({format_duration(int(flow.lag_seconds * 1000))})" if flow.lag_seconds else ""
            facts.append(f"{flow.lag_messages:,} behind{age}")
        if flow.state_rows is not None:
            facts.append(f"{flow.state_rows:,} in state")
        if flow.restarts:
            facts.append(f"started again {flow.restarts} times")
        name = f"{flow.name}: " if len(status.flows) > 1 else ""
        parts.append(name + ", ".join(facts))
    details = f": {'; '.join(parts)}" if parts else ""
    if status.state is RunState.STARTING:
        details = ": Spark takes some seconds"
    elif status.state is RunState.RUNNING and all(flow.batch is None and not flow.rows for flow in status.flows):
        # Nothing else changes until the first batch is done.
        details = f" for {format_duration(status.updated_at_ms - status.started_at_ms)}{details}"
    error = f" - {status.last_error}" if status.last_error and status.state is RunState.FAILED else ""
    return printable(f"{status.name} {status.state.value}{details}{error}")
