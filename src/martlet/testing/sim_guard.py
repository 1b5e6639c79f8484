"""Refuses the real world while a simulation runs: sockets, threads, child processes, sleeping, files opened to write.

Python's audit events see such calls wherever they are made, in C code too, and an audit hook that raises stops them
before they happen. A hook cannot be taken out again, so it is put in by the first simulation of a process and does
nothing while none runs. Two calls that older Pythons do not audit are replaced while a simulation runs instead.
Reading files stays allowed, because imports do; clocks and randomness cannot be watched this way, and what reads
them shows up as two different trace hashes of one seed.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, NoReturn

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
        self.installed = False
        self._originals: list[Any] = []

    def enter(self) -> None:
        if not self.installed:
            self.installed = True
            sys.addaudithook(self.watch)
        if not self.depth:
            self._originals = [getattr(owner, name) for owner, name, _ in _REPLACED]
            for owner, name, reason in _REPLACED:
                setattr(owner, name, _refusal(f"{name}: {reason}"))
        self.depth += 1

    def leave(self) -> None:
        self.depth -= 1
        if not self.depth:
            for (owner, name, _), original in zip(_REPLACED, self._originals, strict=True):
                setattr(owner, name, original)

    def watch(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.depth:
            return
        reason = _REFUSED.get(event)
        if reason is not None:
            raise SimEscape(f"simulated code wants {reason} ({event})")
        if event == "open" and _opens_to_write(arguments):
            raise SimEscape(f"simulated code wants to write the real file {arguments[0]!r}; use the disk port")


def _refusal(reason: str) -> Any:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise SimEscape(f"simulated code wants {reason}")

    return refuse


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
