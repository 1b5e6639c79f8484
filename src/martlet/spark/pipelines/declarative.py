"""Runs a project of Spark Declarative Pipelines with Martlet's formats at hand, and tells how it went.

Spark's own `spark-pipelines` does the work, in a process of its own; nothing of it is rebuilt here. What is added: the
interpreter that has the package, a catalog that lasts (without one, the second run of a project fails because its
tables seem to exist already), a log, and a status like any other run's.

The framework is a client of Spark Connect: it runs on `local[N]`, for which it starts a server, or on a server. A
declarative run is triggered: it processes what is there and ends. Proved by: tests/spark/test_declarative.py.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from martlet.base.clock import SystemClock
from martlet.spark.pipelines.state_directory import RunDirectory, RunDirectoryError
from martlet.spark.pipelines.status import RunState, RunStatus

SPECIFICATIONS: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
_LAST_LINES: Final = 20
_NAMES_ERROR: Final = re.compile(r"Error\b|Exception\b|\[[A-Z][A-Z0-9]*(?:[_.][A-Z0-9]+)+\]")
"""A kind of exception, or a condition of Spark's: `[TABLE_OR_VIEW_NOT_FOUND]`."""


def find_specification(path: str) -> str | None:
    """The project's file: the path itself, or the one in that directory; None when it is no project."""
    if os.path.isfile(path) and path.endswith((".yml", ".yaml")):
        return path
    found = (os.path.join(path, name) for name in SPECIFICATIONS)
    return next((each for each in found if os.path.isfile(each)), None)


def run_project(
    specification: str,
    directory: RunDirectory,
    status: RunStatus,
    settings: Mapping[str, str],
    tell: Callable[[RunStatus], None],
) -> RunStatus:
    """Run the project to its end; what it prints goes to the run's log."""
    with directory.hold():
        status = _noted(directory, replace(status, state=RunState.RUNNING), tell)
        with open(directory.spark_log, "ab") as log:
            process = subprocess.Popen(  # noqa: S603 (the user's own project)
                _command(specification, directory, status.master, settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory.path,  # where the catalog's database leaves its own log
                env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            )
            while process.poll() is None:
                if directory.is_asked_to_stop():
                    process.send_signal(signal.SIGTERM)
                try:
                    process.wait(0.5)
                except subprocess.TimeoutExpired:
                    continue
                except KeyboardInterrupt:
                    directory.ask_to_stop()
        if directory.is_asked_to_stop():
            return _noted(directory, replace(status, state=RunState.STOPPED), tell)
        if process.returncode:
            failed = replace(status, state=RunState.FAILED, last_error=last_error(directory.spark_log))
            return _noted(directory, failed, tell)
        return _noted(directory, replace(status, state=RunState.FINISHED), tell)


def _noted(directory: RunDirectory, status: RunStatus, tell: Callable[[RunStatus], None]) -> RunStatus:
    status = replace(status, updated_at_ms=SystemClock().now_ms())
    directory.write_status(status)
    tell(status)
    return status


def _command(specification: str, directory: RunDirectory, master: str, settings: Mapping[str, str]) -> list[str]:
    tool = Path(sys.executable).parent / "spark-pipelines"
    if not tool.exists():
        raise RunDirectoryError(
            "spark-pipelines is not installed with this Python; pip install '.[spark]' in Martlet's source directory"
        )
    if not master.startswith(("local", "sc://")):
        raise RunDirectoryError(
            f"a declarative project runs on local[N] or on a Spark Connect server, sc://HOST:15002, not on {master}"
        )
    catalog = Path(os.path.abspath(directory.path)) / "catalog"
    lasting = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(catalog / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={catalog / 'metastore'};create=true",
    }
    command = [str(tool), "run", "--spec", os.path.abspath(specification), "--remote", master]
    for name, value in {**lasting, **settings}.items():
        command += ["--conf", f"{name}={value}"]
    return command


def last_error(log: Path) -> str:
    """The last line of the log that names an error."""
    lines = log.read_text("utf-8", "replace").splitlines()
    errors = [line for line in lines if _NAMES_ERROR.search(line)]
    return (errors or lines[-_LAST_LINES:] or ["no output"])[-1].strip()
