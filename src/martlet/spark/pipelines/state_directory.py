"""Where a pipeline's run leaves its traces: a directory with its status, its lock, its checkpoints and Spark's log.

    <state>/<name>/status.json    what the runner saw last, replaced as a whole
    <state>/<name>/run.lock       held by the running process: a status without its holder is that of a dead run
    <state>/<name>/stop           the request to stop; the source sees it too and gives no further batch
    <state>/<name>/checkpoint/    Spark's, one folder per flow
    <state>/<name>/spark.log      what Spark and its workers say

Rules: nothing here knows Spark; `list`, `status` and `stop` work from these files without starting it.
Proved by: tests/unit/spark/test_state_directory.py.
"""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from martlet.base.errors import MartletError
from martlet.spark.pipelines.status import RunState, RunStatus

DEFAULT_STATE: Final = "martlet-pipelines"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class RunDirectoryError(MartletError):
    """A run's directory cannot be used as asked."""


class RunInUse(RunDirectoryError):
    """Another process runs the pipeline of this name."""


class RunDirectory:
    """The directory of one named run; may not exist yet."""

    def __init__(self, state: str, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise RunDirectoryError(f"{name!r} cannot name a pipeline; letters, digits, dots and dashes can")
        self.name = name
        self.path = Path(state).absolute() / name
        self.stop_file = self.path / "stop"
        self.spark_log = self.path / "spark.log"

    def checkpoint(self, flow: str) -> str:
        return str(self.path / "checkpoint" / flow)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Be the one run of this name; raises RunInUse when there is another."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / "run.lock", "a", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunInUse(f"pipeline {self.name} is running already") from None
            self.stop_file.unlink(missing_ok=True)
            yield

    def is_held(self) -> bool:
        """Whether a process runs it now."""
        try:
            with open(self.path / "run.lock", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def is_asked_to_stop(self) -> bool:
        return self.stop_file.exists()

    def ask_to_stop(self) -> None:
        self.stop_file.touch()

    def write_status(self, status: RunStatus) -> None:
        draft = self.path / "status.json.draft"
        draft.write_text(json.dumps(status.as_data()), "utf-8")
        draft.replace(self.path / "status.json")

    def read_status(self) -> RunStatus | None:
        """What the last run left, with its state as it is now; None when there was none."""
        try:
            status = RunStatus.from_data(json.loads((self.path / "status.json").read_text("utf-8")))
        except FileNotFoundError:
            return None
        if status.state in (RunState.STARTING, RunState.RUNNING, RunState.STOPPING) and not self.is_held():
            return status.with_state(RunState.DIED)
        return status


def known_runs(state: str) -> list[RunDirectory]:
    """Every run that left a status, by name."""
    try:
        names = sorted(entry.name for entry in os.scandir(state) if entry.is_dir() and _NAME.fullmatch(entry.name))
    except FileNotFoundError:
        return []
    return [found for name in names if (found := RunDirectory(state, name)).read_status() is not None]
