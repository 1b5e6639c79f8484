"""The processes of a benchmark: the broker by its command line, the bare loop, the load clients. All are ended here.

Rules: every process is started with a `with`, or belongs to something that is, so that none outlives the run. Facts
about a running one (memory, processor time) are read from the kernel.
"""

import contextlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self, cast

from bench.wire_client import WireClient

ROOT: Final = Path(__file__).resolve().parents[1]
READY_SECONDS_MAX: Final = 120.0
STOP_SECONDS_MAX: Final = 90.0

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_IDLE_SECONDS_MAX: Final = 20.0
_IDLE_LOOK_SECONDS: Final = 0.5
_IDLE_SHARE: Final = 0.05


class ProcessFailed(Exception):
    """A process ended, or did not answer, when it should have worked."""


def free_port() -> int:
    """A port without a listener, below those the kernel gives to outgoing connections.

    Only there is it safe to try a port again and again until a server listens: a connection that gets the very port it
    wants to reach as its own connects to itself, answers itself, and keeps the server from listening.
    """
    for _ in range(1000):
        port = random.randrange(15_000, _outgoing_ports_from())
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ProcessFailed("no free port was found")


def _outgoing_ports_from() -> int:
    try:
        return max(16_000, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0]))
    except OSError:
        return 32_000


def end_with_children() -> None:
    """Make SIGTERM unwind this process as Ctrl-C does, so that what it has started is ended."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def raise_file_limit() -> int:
    """Allow this process and its children as many open files as the machine lets them; returns how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class ServerProcess:
    """A server in a process of its own; its output goes to a file beside its data."""

    def __init__(self, command: Sequence[str], port: int, output: Path) -> None:
        self.command = list(command)
        self.port = port
        self.output = output
        self.started_at = 0.0
        self.environment: dict[str, str] = {}
        """Variables the process gets beside those of this one."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ProcessFailed("the server is not running")
        return self._process.pid

    def start(self) -> Self:
        """Start the process; it may not serve yet when this returns."""
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"} | self.environment
        self.started_at = time.perf_counter()
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.output.parent,
            )
        return self

    def wait_listening(self) -> float:
        """Return once connections are accepted: the seconds since the process was started."""
        deadline = self.started_at + READY_SECONDS_MAX
        while time.perf_counter() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return time.perf_counter() - self.started_at
            self.check_running()
            time.sleep(0.002)
        raise ProcessFailed(f"nothing listens on port {self.port} after {READY_SECONDS_MAX:.0f} s: {self.last_words()}")

    def check_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise ProcessFailed(f"{type(self).__name__} has ended: {self.last_words()}")

    def last_words(self) -> str:
        """The end of what it printed."""
        try:
            return self.output.read_text("utf-8", "replace")[-2000:]
        except OSError:
            return ""

    def stop(self) -> float:
        """End it cleanly; the seconds that took."""
        started = time.perf_counter()
        self._end(signal.SIGTERM)
        return time.perf_counter() - started

    def kill(self) -> None:
        """kill -9"""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Take it off the processor without ending it."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.send_signal(how)
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS_MAX)
            raise ProcessFailed(f"no end after {STOP_SECONDS_MAX:.0f} s: {self.last_words()}") from None

    def resident_bytes(self) -> int:
        """Memory it occupies now."""
        return self._status_kilobytes("VmRSS") * 1024

    def resident_bytes_max(self) -> int:
        """The most memory it has occupied."""
        return self._status_kilobytes("VmHWM") * 1024

    def _status_kilobytes(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text("ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise ProcessFailed(f"the kernel does not tell {name}")

    def cpu_seconds(self) -> float:
        """Processor time it has used, in user and kernel."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND

    def wait_idle(self) -> None:
        """Wait until it has nothing to do: a broker goes on preparing itself for a second after its start."""
        deadline = time.monotonic() + _IDLE_SECONDS_MAX
        while time.monotonic() < deadline:
            before = self.cpu_seconds()
            time.sleep(_IDLE_LOOK_SECONDS)
            if self.cpu_seconds() - before <= _IDLE_LOOK_SECONDS * _IDLE_SHARE:
                return
        raise ProcessFailed(f"the process is not idle {_IDLE_SECONDS_MAX:.0f} s after its start")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and kind is None:
            with contextlib.suppress(ProcessLookupError):
                self.thaw()
            self.stop()
        else:
            self.kill()


class BrokerProcess(ServerProcess):
    """A Martlet broker as a user starts it: `martlet up`."""

    def __init__(self, directory: Path, *, port: int | None = None, extra: Sequence[str] = ()) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data = directory / "data"
        port = port or free_port()
        command = [sys.executable, "-c", "from martlet.cli.main import main; main()", "up"]
        command += ["--data", str(self.data), "--kafka", f"127.0.0.1:{port}", "--operations", "127.0.0.1:0", *extra]
        super().__init__(command, port, directory / "broker.log")

    def client(self) -> WireClient:
        return WireClient(self.port)

    def start_and_wait(self) -> Self:
        self.start()
        self.wait_listening()
        return self


class BareProcess(ServerProcess):
    """The bare loop; `options` are its flags."""

    def __init__(self, directory: Path, **options: object) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        command = [sys.executable, "-m", "bench.bare_loop", "--port", str(port), "--data", str(directory)]
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                command.append(flag)
            elif value is not False and value is not None:
                command += [flag, str(value)]
        super().__init__(command, port, directory / "bare.out")

    def start_and_wait(self) -> Self:
        self.start()
        self.wait_listening()
        return self


class HelperProcess:
    """A process that takes one JSON object on a line of its input and prints one per answer."""

    def __init__(self, module: str, specification: Mapping[str, object], *, python: str = sys.executable) -> None:
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self._process = subprocess.Popen(
            [python, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.tell(json.dumps(specification))

    def tell(self, line: str) -> None:
        pipe = cast(IO[str], self._process.stdin)
        pipe.write(line + "\n")
        pipe.flush()

    def answer(self) -> dict[str, Any]:
        """The next object it prints; raises when it reports a failure or ends instead."""
        line = cast(IO[str], self._process.stdout).readline()
        if not line:
            raise ProcessFailed(f"a helper process ended without an answer (status {self._process.wait()})")
        answer = cast(dict[str, Any], json.loads(line))
        if "failed" in answer:
            raise ProcessFailed(answer["failed"])
        return answer

    def kill(self) -> None:
        """End it in the middle of its work."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # It ends with its input, but after a failure that is not waited for.
        if kind is not None:
            self._process.kill()
        with contextlib.suppress(OSError):
            cast(IO[str], self._process.stdin).close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)
        cast(IO[str], self._process.stdout).close()


def run_helper(module: str, specification: Mapping[str, object], *, python: str = sys.executable) -> dict[str, Any]:
    """Start a helper, wait for its one answer, end it."""
    with HelperProcess(module, specification, python=python) as process:
        return process.answer()
