"""A real etcd in a process of its own, on loopback ports of its own, with its data in a test's
folder.

It can be killed, paused and started again on the same port. `call` speaks to its gateway without any of our code, for
what a test must arrange or check on its own.
"""

import asyncio
import json
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from martlet.stores.etcd_options import EtcdAddress, EtcdEndpoint

_HOST = "127.0.0.1"
_START_SECONDS_MAX = 30.0
_PORTS_TRIED_MAX = 5


@dataclass(frozen=True)
class ServerTls:
    """The server's side of TLS, with certificates demanded from clients, and a client's context to try it with."""

    flags: Sequence[str]
    context: ssl.SSLContext


@dataclass(frozen=True)
class Place:
    """A member's part in a cluster of several: its name, its port for the others, and who belongs to it."""

    name: str
    peer_port: int
    members: str


_ALONE = Place("only", 0, f"only=http://{_HOST}:0")


class EtcdProcess:
    """Started by `start` or as a context manager; ended by `stop`."""

    def __init__(
        self, directory: Path, *, flags: Sequence[str] = (), tls: ServerTls | None = None, place: Place = _ALONE
    ) -> None:
        binary = shutil.which("etcd")
        assert binary is not None, "these tests need etcd: install the package etcd-server (Debian) or its like"
        self.port = 0
        self._binary = binary
        self._directory = directory
        self._flags = flags
        self._tls = tls
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def endpoint(self) -> EtcdEndpoint:
        return EtcdEndpoint(_HOST, self.port)

    def address(self, prefix: str = "test") -> EtcdAddress:
        return EtcdAddress((self.endpoint,), f"/{prefix}/")

    def start(self, *, wait: bool = True) -> None:
        """Start it, on the port it had if it had one, and wait until it serves."""
        if self.port:
            self._launch()
            if wait:
                self.wait_until_ready()
            return
        for attempt in range(_PORTS_TRIED_MAX):
            self.port = free_port()
            try:
                self._launch()
                self.wait_until_ready()
                return
            except _Ended:
                # etcd must be given its port, and another process may have taken it meanwhile.
                if attempt == _PORTS_TRIED_MAX - 1:
                    raise

    def _launch(self) -> None:
        scheme = "https" if self._tls else "http"
        client = f"{scheme}://{_HOST}:{self.port}"
        peer = f"http://{_HOST}:{self._place.peer_port}"
        self._directory.mkdir(exist_ok=True)
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._binary,
                    *("--name", self._place.name, "--data-dir", str(self._directory / "data")),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", self._place.members),
                    # Leases may be as short as one second then.
                    *("--heartbeat-interval", "10", "--election-timeout", "100"),
                    *(self._tls.flags if self._tls else ()),
                    *self._flags,
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def stop(self) -> None:
        """End it, however it is; its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    kill = stop
    """There is no gentler way that a test would need: SIGKILL."""

    async def restart(self) -> None:
        """Kill it and start it again while the event loop goes on, so that broken connections are noticed."""
        await asyncio.to_thread(self.kill)
        await asyncio.to_thread(self.start)

    def pause(self) -> None:
        """Stop it, and come back when its last thread has stopped."""
        self._signal(signal.SIGSTOP)
        assert self._process is not None
        threads = Path(f"/proc/{self._process.pid}/task")
        deadline = time.monotonic() + _START_SECONDS_MAX
        while any(not _is_stopped(thread) for thread in threads.iterdir()):
            assert time.monotonic() < deadline, "etcd does not stop"

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def call(self, path: str, message: dict[str, object], token: str | None = None) -> dict[str, Any]:
        """Ask the gateway; an error of etcd's is an `HTTPError`."""
        scheme = "https" if self._tls else "http"
        request = urllib.request.Request(
            f"{scheme}://{_HOST}:{self.port}{path}",
            json.dumps(message).encode(),
            {"Authorization": token} if token else {},
        )
        context = self._tls.context if self._tls else None
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            error.close()
            raise
        assert isinstance(found, dict)
        return found

    def revision(self) -> int:
        return int(self.call("/v3/kv/range", {"key": "AA=="})["header"]["revision"])

    def compact(self, revision: int) -> None:
        """Forget the history up to that revision."""
        self.call("/v3/kv/compaction", {"revision": str(revision), "physical": True})

    def delete_everything(self) -> None:
        """As with `etcdctl del --prefix ""`: all keys by one request."""
        self.call("/v3/kv/deleterange", {"key": "AA==", "range_end": "AA=="})

    def delete_one_after_the_other(self) -> None:
        """All keys, in their order, each by a request of its own."""
        listed = self.call("/v3/kv/range", {"key": "AA==", "range_end": "AA==", "keys_only": True})
        for found in listed.get("kvs", []):
            self.call("/v3/kv/deleterange", {"key": found["key"]})

    def put_as_a_stranger(self, count: int = 1) -> None:
        """Change keys that are none of ours."""
        for _ in range(count):
            self.call("/v3/kv/put", {"key": "c3RyYW5nZXI=", "value": "eA=="})

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        assert self._process is not None
        try:
            is_ready = False
            while not is_ready:
                is_ready = self._serves()
                # Checked last: if this one has ended, another one answered.
                if self._process.poll() is not None:
                    raise _Ended(f"etcd did not start:\n{(self._directory / 'log').read_text()[-2000:]}")
                assert time.monotonic() < deadline, "etcd does not serve"
                time.sleep(0.02)
        except BaseException:
            self.stop()
            raise

    def _serves(self) -> bool:
        try:
            self.call("/v3/kv/range", {"key": "AA=="})
        except urllib.error.HTTPError as error:
            return error.code in (400, 404)  # it serves, though not us: authentication is on, or the gateway off
        except OSError:
            return False
        return True


class _Ended(AssertionError):
    """The process ended by itself."""


def _is_stopped(thread: Path) -> bool:
    # The state follows the name, which is in parentheses.
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"


_GIVEN: set[int] = set()


def free_port() -> int:
    """A port that is free, below those that the system gives to outgoing connections: it stays free for a while."""
    chance = random.SystemRandom()  # the seeded generator gives every worker the same
    while True:
        port = chance.randrange(20_000, 32_000)
        if port in _GIVEN:
            continue
        _GIVEN.add(port)
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            return port
