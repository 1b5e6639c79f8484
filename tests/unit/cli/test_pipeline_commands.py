"""`martlet pipeline` without Spark: its options, what it lists and shows, and what it refuses."""

import dataclasses
import json
from pathlib import Path

import pytest

from martlet.cli.pipeline_progress import progress_line
from martlet.spark.pipelines.catalogue import READY
from martlet.spark.pipelines.state_directory import RunDirectory
from martlet.spark.pipelines.status import FlowStatus, RunState, RunStatus
from tests.unit.cli.command_line import martlet

FLOW = FlowStatus(
    "archive",
    batch=3,
    rows=4_000,
    input_rows_per_second=120.4,
    processed_rows_per_second=900.0,
    batch_ms=1_500,
    lag_messages=20,
    lag_seconds=61.0,
    state_rows=7,
    state_bytes=2048,
    restarts=1,
    last_error="the broker is away",
)


def left_behind(state: Path, run_state: RunState) -> RunDirectory:
    """A run that is over, with its status."""
    directory = RunDirectory(str(state), "orders")
    status = RunStatus("orders", "archive", run_state, 7, "local[*]", 1_000, 2_000, (FLOW,), FLOW.last_error)
    with directory.hold():
        directory.write_status(status)
    return directory


def test_every_ready_pipeline_has_a_help_with_all_its_options() -> None:
    for pipeline in READY.values():
        shown = martlet("pipeline", "run", pipeline.name, "--help")
        assert shown.exit_code == 0
        for field in dataclasses.fields(pipeline.options):
            assert f"--{field.name.replace('_', '-')}" in shown.stdout


def test_a_wrong_name_is_answered_with_the_ready_pipelines_and_the_nearest() -> None:
    refused = martlet("pipeline", "run", "archiv")
    assert refused.exit_code == 2
    assert "did you mean 'archive'?" in refused.stderr
    assert all(name in refused.stderr for name in READY)


def test_a_required_option_that_is_missing_is_named() -> None:
    refused = martlet("pipeline", "run", "archive", "--topic", "orders")
    assert (refused.exit_code, "missing option '--to'" in refused.stderr) == (2, True)


def test_a_start_that_a_pipeline_cannot_have_is_refused(tmp_path: Path) -> None:
    refused = martlet(
        "pipeline", "run", "fraud", "--from", "-10", "--state", str(tmp_path), "--bootstrap", "127.0.0.1:1"
    )
    assert (refused.exit_code, "earliest, latest or @TIME" in refused.stderr) == (2, True)


def test_a_file_without_flows_and_a_directory_without_project_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1\n", "utf-8")
    no_flow = martlet("pipeline", "run", str(tmp_path / "empty.py"), "--state", str(tmp_path / "state"))
    assert (no_flow.exit_code, "has no flow" in no_flow.stderr) == (2, True)
    no_project = martlet("pipeline", "run", f"{tmp_path}/", "--state", str(tmp_path / "state"))
    assert (no_project.exit_code, "holds no spark-pipeline.yml" in no_project.stderr) == (2, True)


def test_the_list_shows_ready_pipelines_and_runs(tmp_path: Path) -> None:
    left_behind(tmp_path, RunState.FINISHED)
    listed = json.loads(martlet("pipeline", "list", "--state", str(tmp_path), "--json").stdout)
    assert [each["name"] for each in listed["ready"]] == list(READY)
    assert [(run["name"], run["state"]) for run in listed["runs"]] == [("orders", "finished")]
    table = martlet("pipeline", "list", "--state", str(tmp_path)).stdout
    assert "orders  archive   finished  4000   20  1 m 1 s" in table


def test_a_status_shows_rates_lag_state_and_the_last_error(tmp_path: Path) -> None:
    left_behind(tmp_path, RunState.RUNNING)
    shown = martlet("pipeline", "status", "orders", "--state", str(tmp_path))
    assert shown.exit_code == 0
    assert "state       died" in shown.stdout
    assert "last error  the broker is away" in shown.stdout
    assert "archive      3  4000   120    900  1.5 s        20  1 m 1 s  7 rows, 2.0 KiB         1" in shown.stdout
    data = json.loads(martlet("pipeline", "status", "orders", "--state", str(tmp_path), "--json").stdout)
    assert (data["state"], data["flows"][0]["lag_messages"], data["flows"][0]["batch_ms"]) == ("died", 20, 1_500)


@pytest.mark.parametrize(("state", "code"), [(RunState.FINISHED, 0), (RunState.FAILED, 8), (RunState.RUNNING, 8)])
def test_a_check_fails_for_a_run_that_failed_or_died(tmp_path: Path, state: RunState, code: int) -> None:
    left_behind(tmp_path, state)
    assert martlet("pipeline", "status", "orders", "--check", "--state", str(tmp_path)).exit_code == code


def test_a_run_that_does_not_run_cannot_be_stopped_and_one_that_never_was_is_not_found(tmp_path: Path) -> None:
    left_behind(tmp_path, RunState.FINISHED)
    over = martlet("pipeline", "stop", "orders", "--state", str(tmp_path))
    assert (over.exit_code, "is not running, it has finished" in over.stderr) == (5, True)
    for verb in ("stop", "status"):
        assert martlet("pipeline", verb, "nobody", "--state", str(tmp_path)).exit_code == 3


def test_a_stop_that_takes_too_long_says_so_and_leaves_the_request(tmp_path: Path) -> None:
    directory = left_behind(tmp_path, RunState.RUNNING)
    with directory.hold():
        late = martlet("pipeline", "stop", "orders", "--timeout", "0.1", "--state", str(tmp_path))
        assert (late.exit_code, "will stop after it" in late.stderr) == (7, True)
        assert directory.is_asked_to_stop()


def test_the_progress_line_tells_the_figures_of_every_flow() -> None:
    status = RunStatus("orders", "archive", RunState.RUNNING, 7, "local[*]", 1_000, 2_000, (FLOW,))
    assert progress_line(status) == (
        "orders running: batch 3, 4,000 rows, 120/s in, 900/s out, 1.5 s a batch, 20 behind (1 m 1 s), 7 in state, "
        "started again 1 times"
    )
    first = dataclasses.replace(status, updated_at_ms=9_000, flows=(FlowStatus("archive"),))
    assert progress_line(first) == "orders running for 8 s: 0 rows"
    starting = dataclasses.replace(status, state=RunState.STARTING, flows=())
    assert progress_line(starting) == "orders starting: Spark takes some seconds"
    failed = dataclasses.replace(status, state=RunState.FAILED, flows=(), last_error="no \x1b[31m disk")
    assert progress_line(failed) == "orders failed - no \\x1b[31m disk"
