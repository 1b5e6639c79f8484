"""How a run that never got going ends: with a sentence and a status, whatever it was."""

from pathlib import Path

import pytest

from martlet.spark.pipelines import launch as launching
from martlet.spark.pipelines.flows import PipelineRun, RunOptions
from martlet.spark.pipelines.launch import LaunchRequest, launch
from martlet.spark.pipelines.state_directory import RunDirectory
from martlet.spark.pipelines.status import RunState
from martlet.spark.pipelines.supervisor import PipelineFailed


def test_whatever_ends_a_run_is_in_its_status_and_the_trace_is_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_session(*_arguments: object, **_options: object) -> None:
        raise ValueError("nobody foresaw this")

    def define(_run: PipelineRun) -> None:
        """Never reached."""

    monkeypatch.setattr(launching, "start_session", broken_session)
    options = RunOptions(bootstrap="", group="run", starting={})
    request = LaunchRequest(name="run", pipeline="file.py", state=str(tmp_path), run=options)
    with pytest.raises(PipelineFailed, match="pipeline run failed: ValueError: nobody foresaw this"):
        launch(request, define, lambda _status: None)
    directory = RunDirectory(str(tmp_path), "run")
    status = directory.read_status()
    assert status is not None
    assert (status.state, status.last_error) == (RunState.FAILED, "ValueError: nobody foresaw this")
    assert "in broken_session" in directory.spark_log.read_text("utf-8")
