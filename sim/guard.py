"""Refuses the real world while a simulation runs: sockets, threads, child processes, sleeping, files opened to write.

Python's audit events see such calls wherever they are made, in C code too, and an audit hook that raises stops them
before they happen. A hook cannot be taken out again, so it is put in by the first simulation of a process and does
nothing while none runs. Two calls that older Pythons do not audit are replaced while a simulation runs instead.
Reading files stays allowed, because imports do; clocks and randomness cannot be watched this way, and what reads
them shows up as two different trace hashes of one seed. A simulation runs in one thread: others of the process, such as
that of a real broker which a test run shares, go on as they were.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

_REFUSED: Final = {
    "os.fork": "a real process",
    "os.posix_spawn": "a real process",
    "socket.__new__": "a real socket; use the running loop's create_server or create_connection",
    "socket.getaddrinfo": "a real name lookup; use the running loop's getaddrinfo",
    "subprocess.Popen": "a real process",
}
_REPLACED: Final[list[tuple[Any, str, str]]] = [
    (threading.Thread, "start", "a real thread; use loop.run_in_executor or asyncio.to_thread"),
    (time, "sleep", "real sleep; use asyncio.sleep"),
]
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class SimEscape(RuntimeError):
    """Code inside the simulation reached for the real world, which would make the run neither safe nor repeatable."""


class _Guard:
    """How deep in simulations this process is; negative never."""

    def __init__(self) -> None:
        self.depth = 0
        self.thread = 0
        self.installed = False
        self._originals: list[Any] = []

    def enter(self) -> None:
        if not self.installed:
            self.installed = True
            sys.addaudithook(self.watch)
        if not self.depth:
            self.thread = threading.get_ident()
            self._originals = [getattr(owner, name) for owner, name, _ in _REPLACED]
            for (owner, name, reason), original in zip(_REPLACED, self._originals, strict=True):
                setattr(owner, name, self._refusal(f"{name}: {reason}", original))
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1
        if not self.depth:
            for (owner, name, _), original in zip(_REPLACED, self._originals, strict=True):
                setattr(owner, name, original)

    def is_watching(self) -> bool:
        return self.depth > 0 and threading.get_ident() == self.thread

    def _refusal(self, reason: str, original: Any) -> Any:
        def refuse(*args: Any, **options: Any) -> Any:
            if self.is_watching():
                raise SimEscape(f"simulated code wants {reason}")
            return original(*args, **options)

        return refuse

    def watch(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.is_watching():
            return
        reason = _REFUSED.get(event)
        if reason is not None:
            raise SimEscape(f"simulated code wants {reason} ({event})")
        if event == "open" and _opens_to_write(arguments):
            raise SimEscape(f"simulated code wants to write the real file {arguments[0]!r}; use the disk port")


def _opens_to_write(arguments: tuple[object, ...]) -> bool:
    path, flags = arguments[0], arguments[2]
    # Importing a module for the first time writes its byte code; `/dev` is where test runners put their output.
    return (
        isinstance(path, str)
        and isinstance(flags, int)
        and bool(flags & _WRITING)
        and "__pycache__" not in path
        and not path.startswith("/dev/")
    )


_guard = _Guard()


@contextlib.contextmanager
def real_world_refused() -> Iterator[None]:
    """While inside, reaching for the real world raises SimEscape."""
    _guard.enter()
    try:
        yield
    finally:
        _guard.leave()
