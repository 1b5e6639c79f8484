"""One broker of a cluster in a process of its own: `martlet broker`, with everything a test may do to it."""

import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.processes import ServerProcess

_STOPPED_SECONDS_MAX: Final = 10.0
_TAIL_LINES: Final = 40
_TAIL_BYTES_MAX: Final = 100_000


class ClusterBroker(ServerProcess):
    """Its data, log and ports stay the same through every restart."""

    def __init__(self, number: int, directory: Path, settings: Mapping[str, object]) -> None:
        """`settings` must hold `kafka`, `operations` and `metadata`."""
        self.number = number
        self.directory = directory
        self.data = directory / "data"
        self.operations = str(settings["operations"])
        directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-X", "faulthandler", "-c", "from martlet.cli.main import main; main()", "broker"]
        for key, value in {"broker_id": number, "data": self.data, "log_format": "text", **settings}.items():
            command += ["--set", f"{key}={value}"]
        port = int(str(settings["kafka"]).rpartition(":")[2])
        super().__init__(command, port, directory / "log")

    @property
    def is_running(self) -> bool:
        return self.process_id is not None

    @property
    def process_id(self) -> int | None:
        """None when it has ended or was never started. May be asked from any thread."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def log_of(self, partition: str) -> Path:
        """Where the files of its replica of a partition are, such as `orders-0`."""
        return self.data / f"broker-{self.number}" / partition

    def log_size(self, partition: str) -> int:
        """Bytes of its replica of a partition."""
        return sum(file.stat().st_size for file in self.log_of(partition).glob("*.log"))

    def ask_to_stop(self) -> None:
        """Begin a clean stop and do not wait for it; `stop` waits."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP; come back when its last thread has stopped."""
        self.freeze()
        threads = Path(f"/proc/{self.pid}/task")
        deadline = time.monotonic() + _STOPPED_SECONDS_MAX
        while any(_state(thread) not in "TZ" for thread in threads.iterdir()):
            assert time.monotonic() < deadline, f"broker {self.number} does not stop"

    def resume(self) -> None:
        self.thaw()

    def wipe(self) -> None:
        """Its disk is gone and a new, empty one is in its place; it must not be running."""
        assert not self.is_running
        shutil.rmtree(self.data, ignore_errors=True)

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """The end of its log."""
        try:
            with self.output.open("rb") as log:
                log.seek(max(0, self.output.stat().st_size - _TAIL_BYTES_MAX))
                return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-lines:])
        except OSError:
            return ""


def _state(thread: Path) -> str:
    try:
        # The state follows the name, which is in parentheses.
        return (thread / "stat").read_text("ascii", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
