"""A broker in a process of its own: for what can only be seen from outside, its memory, its crash, its limits."""

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil  # type: ignore[import-untyped]

_ROOT = Path(__file__).resolve().parents[2]
_STOP_SECONDS = 30


class BrokerProcess:
    """Started by `start`, ended by `stop` (clean) or `kill` (as a crash would); its data outlives it."""

    def __init__(self, data: Path, *, open_files_max: int | None = None, **settings: Any) -> None:
        self.settings = {"kafka": "127.0.0.1:0", "operations": "127.0.0.1:0", **settings, "data": str(data)}
        self.data = data
        self.address = ""
        self.operations_url = ""
        self.log_path = data.parent / f"{data.name}.log"
        self._open_files_max = open_files_max
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        assert self._process is None, "it is running already"
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.broker.broker_entry", json.dumps(self.settings)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=_ROOT,
                preexec_fn=self._limit_open_files if self._open_files_max else None,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.kill()
            raise AssertionError(f"the broker did not start:\n{self.log_path.read_text()}")
        addresses = json.loads(line)
        self.address = addresses["kafka"]
        self.operations_url = f"http://{addresses['operations']}"
        # A second start takes the same port, as a server's does: clients must find it again.
        self.settings["kafka"] = self.address
        return self

    def stop(self) -> None:
        """SIGTERM, and wait for the clean end."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: no marker, no flush, no goodbye."""
        self._end(signal.SIGKILL)

    def rss_bytes(self) -> int:
        rss: int = psutil.Process(self.pid).memory_info().rss
        return rss

    def cpu_seconds(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def _end(self, signal_number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal_number)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def _limit_open_files(self) -> None:
        assert self._open_files_max is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (self._open_files_max, self._open_files_max))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(signal.SIGTERM if error is None else signal.SIGKILL)
