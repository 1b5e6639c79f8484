"""A Spark standalone cluster on loopback: a master and workers, each a process of its own, as on several machines.

Ports are chosen by the system, and named by the processes in their logs. A worker and the executors it starts are one
process group, so that leaving the `with` ends all of them, whatever they do.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil  # type: ignore[import-untyped]
import pyspark

from bench.processes import ProcessFailed

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_AT: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Successfully registered with master (\S+)")
_READY_SECONDS: Final = 90.0


class SparkCluster:
    """One master and some workers with a core each. Made with `with`."""

    def __init__(self, folder: Path, *, workers: int = 2, worker_memory: str = "800m") -> None:
        self.url = ""
        self._folder = folder
        self._workers = workers
        self._worker_memory = worker_memory
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self.url = self._start("master", _AT, _MASTER)
            for number in range(self._workers):
                work = self._folder / f"work-{number}"
                limits = ["--cores", "1", "--memory", self._worker_memory, "--work-dir", str(work)]
                self._start(f"worker-{number}", _REGISTERED, _WORKER, *limits, self.url)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def executors(self) -> list[psutil.Process]:
        """The executors there are now, of whatever application."""
        found = []
        for worker in self._processes[1:]:
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(worker.pid).children(recursive=True)
                found += [child for child in children if _runs_executor(child)]
        return found

    def _start(self, name: str, ready: re.Pattern[str], kind: str, *arguments: str) -> str:
        """Start a process and wait until its log says that it is ready; returns what the log tells."""
        home = Path(pyspark.__file__).parent
        log = self._folder / f"{name}.log"
        places = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        settings = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), kind, *places, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | settings,
                start_new_session=True,
            )
        self._processes.append(process)
        deadline = time.monotonic() + _READY_SECONDS
        while (found := ready.search(log.read_text("utf-8", "replace"))) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ProcessFailed(f"Spark's {name} did not start: {log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.1)
        return found.group(1)

    def _end(self) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()


def _runs_executor(process: psutil.Process) -> bool:
    try:
        return any(_EXECUTOR in argument for argument in process.cmdline())
    except psutil.NoSuchProcess:
        return False
