"""`martlet pipeline`: run data pipelines on Spark, see how they do, stop them."""

import threading
from typing import Final

import click

from martlet.base.clock import SystemClock
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import json_option
from martlet.cli.output import format_bytes, format_duration, print_facts, print_json, print_note, print_table
from martlet.cli.pipeline_run import run, state_option
from martlet.spark.pipelines.catalogue import READY
from martlet.spark.pipelines.state_directory import RunDirectory, known_runs
from martlet.spark.pipelines.status import FlowStatus, RunState, RunStatus

_STOP_POLL_SECONDS: Final = 0.2
_BAD: Final = frozenset({RunState.FAILED, RunState.DIED})


@click.group()
def pipeline() -> None:
    """Run data pipelines on Spark, see how they do, stop them."""


pipeline.add_command(run)


@pipeline.command("list")
@state_option
@json_option
def list_pipelines(state: str, as_json: bool) -> None:
    """Show the ready pipelines, and the runs on this machine."""
    runs = [status for found in known_runs(state) if (status := found.read_status())]
    if as_json:
        ready = [{"name": each.name, "summary": each.summary} for each in READY.values()]
        print_json({"ready": ready, "runs": [status.as_data() for status in runs]})
        return
    print_table(["READY PIPELINE", "WHAT IT DOES"], [[each.name, each.summary] for each in READY.values()])
    click.echo()
    if not runs:
        print_note(f"nothing has been run with its state in {state}; `martlet pipeline run NAME` starts one")
        return
    print_table(
        ["RUN", "PIPELINE", "STATE", "ROWS", "LAG", "BEHIND", "SEEN"],
        [
            [
                status.name,
                status.pipeline,
                status.state.value,
                sum(flow.rows for flow in status.flows),
                _total_lag(status),
                _behind(status),
                f"{format_duration(SystemClock().now_ms() - status.updated_at_ms)} ago",
            ]
            for status in runs
        ],
    )


@pipeline.command("status", short_help="Show how a run does: rates, lag, state, last error.")
@click.argument("name")
@click.option("--check", is_flag=True, help="Exit with code 8 if it failed or died.")
@state_option
@json_option
def show_status(name: str, check: bool, state: str, as_json: bool) -> int:
    """Show how a run does: its rates, its lag, its state, its last error."""
    status = _status_of(state, name)
    if as_json:
        print_json(status.as_data())
    else:
        _print_status(status)
    return ExitCode.CHECK_FAILED if check and status.state in _BAD else ExitCode.OK


@pipeline.command()
@click.argument("name")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for its end.",
)
@state_option
@json_option
def stop(name: str, timeout: float, state: str, as_json: bool) -> None:
    """Stop a run after the batch it is in; nothing is lost or repeated."""
    directory = RunDirectory(state, name)
    status = _status_of(state, name)
    if not directory.is_held():
        raise CommandFailed(ExitCode.CONFLICT, f"pipeline {name} is not running, it {_past(status.state)}")
    directory.ask_to_stop()
    clock, waiting = SystemClock(), threading.Event()
    deadline = clock.monotonic_ms() + int(timeout * 1000)
    while directory.is_held():
        if clock.monotonic_ms() > deadline:
            raise CommandFailed(
                ExitCode.TIMEOUT,
                f"pipeline {name} is still in its batch after {timeout:g} s; it will stop after it",
                f"`martlet pipeline status {name}` shows when it has",
            )
        waiting.wait(_STOP_POLL_SECONDS)
    status = _status_of(state, name)
    if as_json:
        print_json(status.as_data())
    print_note(f"pipeline {name} {_past(status.state)}")


def _status_of(state: str, name: str) -> RunStatus:
    status = RunDirectory(state, name).read_status()
    if status is None:
        raise CommandFailed(
            ExitCode.NOT_FOUND, f"there is no run {name!r} in {state}", "`martlet pipeline list` shows the runs"
        )
    return status


def _past(state: RunState) -> str:
    return {RunState.FINISHED: "has finished", RunState.STOPPED: "has stopped", RunState.FAILED: "has failed"}.get(
        state, "has died" if state is RunState.DIED else f"is {state.value}"
    )


def _print_status(status: RunStatus) -> None:
    now_ms = SystemClock().now_ms()
    print_facts(
        {
            "run": status.name,
            "pipeline": status.pipeline,
            "state": status.state.value,
            "process": status.pid,
            "master": status.master,
            "started": f"{format_duration(now_ms - status.started_at_ms)} ago",
            "seen": f"{format_duration(now_ms - status.updated_at_ms)} ago",
            "last error": status.last_error,
        }
    )
    if status.flows:
        click.echo()
        headers = ["FLOW", "BATCH", "ROWS", "IN/S", "OUT/S", "BATCH TIME", "LAG", "BEHIND", "STATE", "RESTARTS"]
        print_table(headers, [_flow_row(flow) for flow in status.flows])


def _flow_row(flow: FlowStatus) -> list[str | int | None]:
    state = None
    if flow.state_rows is not None:
        state = f"{flow.state_rows:,} rows, {format_bytes(flow.state_bytes or 0)}"
    return [
        flow.name,
        flow.batch,
        flow.rows,
        _rate(flow.input_rows_per_second),
        _rate(flow.processed_rows_per_second),
        None if flow.batch_ms is None else f"{flow.batch_ms / 1000:.1f} s",
        flow.lag_messages,
        None if flow.lag_seconds is None else format_duration(int(flow.lag_seconds * 1000)),
        state,
        flow.restarts,
    ]


def _rate(rows_per_second: float | None) -> int | None:
    return None if rows_per_second is None else round(rows_per_second)


def _total_lag(status: RunStatus) -> int | None:
    known = [flow.lag_messages for flow in status.flows if flow.lag_messages is not None]
    return sum(known) if known else None


def _behind(status: RunStatus) -> str | None:
    known = [flow.lag_seconds for flow in status.flows if flow.lag_seconds is not None]
    return format_duration(int(max(known) * 1000)) if known else None
