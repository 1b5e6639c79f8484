"""What a run leaves on disk, and how others see whether it lives."""

from pathlib import Path

import pytest

from martlet.spark.pipelines.state_directory import RunDirectory, RunDirectoryError, RunInUse, known_runs
from martlet.spark.pipelines.status import FlowStatus, RunState, RunStatus


def status(state: RunState) -> RunStatus:
    flow = FlowStatus("archive", batch=3, rows=40, lag_messages=2, lag_seconds=1.5)
    return RunStatus("orders", "archive", state, 7, "local[*]", 1_000, 2_000, (flow,), None)


def test_a_status_comes_back_as_it_was_written(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path), "orders")
    with directory.hold():
        directory.write_status(status(RunState.RUNNING))
        assert directory.read_status() == status(RunState.RUNNING)


def test_a_run_whose_process_is_gone_has_died_and_one_that_ended_has_not(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path), "orders")
    with directory.hold():
        directory.write_status(status(RunState.RUNNING))
    assert directory.read_status() == status(RunState.DIED)
    directory.write_status(status(RunState.FINISHED))
    assert directory.read_status() == status(RunState.FINISHED)


def test_two_runs_of_one_name_are_refused_and_a_later_one_is_not(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path), "orders")
    with directory.hold():
        assert directory.is_held()
        with pytest.raises(RunInUse, match="pipeline orders is running already"), directory.hold():
            pass
    assert not directory.is_held()
    with directory.hold():
        pass


def test_an_old_request_to_stop_does_not_stop_a_new_run(tmp_path: Path) -> None:
    directory = RunDirectory(str(tmp_path), "orders")
    with directory.hold():
        directory.ask_to_stop()
        assert directory.is_asked_to_stop()
    with directory.hold():
        assert not directory.is_asked_to_stop()


def test_only_runs_that_left_a_status_are_known(tmp_path: Path) -> None:
    RunDirectory(str(tmp_path), "empty").path.mkdir()
    directory = RunDirectory(str(tmp_path), "orders")
    with directory.hold():
        directory.write_status(status(RunState.RUNNING))
    assert [run.name for run in known_runs(str(tmp_path))] == ["orders"]
    assert known_runs(str(tmp_path / "nowhere")) == []


@pytest.mark.parametrize("name", ["", "../etc", "a/b", ".hidden", "x" * 101])
def test_a_name_that_is_no_directory_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunDirectoryError, match="cannot name a pipeline"):
        RunDirectory(str(tmp_path), name)
