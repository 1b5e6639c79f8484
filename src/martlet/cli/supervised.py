"""One supervised child process: started, listened to, and started again with growing pauses when it crashes.

What a child prints to standard error is passed on with its label in front of each line. What it prints to standard
output is its announcement, which its owner reads. A child that ends well by itself was ended on purpose
and stays down; one that never came up at all is not tried again, because it would fail again.

A child is bound to its parent (`bound_child.py`) and has a session of its own, so that Ctrl-C reaches the parent only,
which then stops its children in order.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import BinaryIO, Final

import click

from martlet.cli import bound_child
from martlet.cli.output import has_colour, printable

_PAUSE_SECONDS: Final = 1.0
_PAUSE_SECONDS_MAX: Final = 30.0
_STEADY_SECONDS: Final = 60.0
"""A child that ran so long crashed for another reason than the last time: pauses start over."""
_CHUNK_BYTES: Final = 65_536
_LINE_BYTES_MAX: Final = 1 << 20


class ChildNotStarted(Exception):
    """A child ended before it was up; carries its exit code."""

    def __init__(self, label: str, exit_code: int) -> None:
        super().__init__(f"{label} could not be started")
        self.exit_code = exit_code


class Child:
    """Run by `run`, asked to end by `stop`; `up` is set when it first says that it is up."""

    def __init__(
        self,
        label: str,
        command: Callable[[], Sequence[str]],
        announced: Callable[[str], bool],
        *,
        width: int = 0,
        error_file: BinaryIO | None = None,
    ) -> None:
        """`command` is asked at every start; `announced` gets each line of output and says when all is said.

        With an `error_file` the child's own words go there and not to the terminal.
        """
        self.label = label
        self.up = asyncio.Event()
        self._command = command
        self._announced = announced
        self._width = max(width, len(label))
        self._error_file = error_file
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()

    @property
    def process_id(self) -> int | None:
        """Of the process that runs now."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def run(self) -> int:
        """Until it has ended for good; returns its exit code. Raises ChildNotStarted when it never came up."""
        loop = asyncio.get_running_loop()
        pause = _PAUSE_SECONDS
        while True:
            began = loop.time()
            exit_code = await self._run_once()
            if self._stopping.is_set():
                return exit_code
            if not self.up.is_set():
                raise ChildNotStarted(self.label, exit_code)
            if exit_code == 0:
                self.say("stopped; it is not started again")
                return exit_code
            if loop.time() - began > _STEADY_SECONDS:
                pause = _PAUSE_SECONDS
            self.say(f"{_how_it_ended(exit_code)}; starting it again in {pause:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                return exit_code
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    def stop(self) -> None:
        """Ask it to end well; it is not started again."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._stopping.set()
        self._signal(signal.SIGKILL)

    def say(self, text: str) -> None:
        """A line under this child's label, on standard error."""
        label = f"{self.label:<{self._width}} |"
        if has_colour(sys.stderr):
            label = click.style(label, fg="cyan")
        click.echo(f"{label} {printable(text)}", err=True)

    # --- one life of the process

    async def _run_once(self) -> int:
        # Isolated: the small script must not be given other modules by the environment.
        bound = [sys.executable, "-I", "-S", bound_child.__file__, str(os.getpid())]
        self._process = process = await asyncio.create_subprocess_exec(
            *bound,
            *self._command(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE if self._error_file is None else self._error_file,
            start_new_session=True,
        )
        if self._stopping.is_set():
            self._signal(signal.SIGTERM)
        await asyncio.gather(_each_line(process.stdout, self._take), _each_line(process.stderr, self.say))
        return await process.wait()

    def _take(self, line: str) -> None:
        if self._announced(line):
            self.up.set()

    def _signal(self, number: signal.Signals) -> None:
        if self.process_id is not None and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


async def _each_line(stream: asyncio.StreamReader | None, take: Callable[[str], None]) -> None:
    """Every line as it comes; one without an end in sight is cut."""
    rest = b""
    while stream is not None and (chunk := await stream.read(_CHUNK_BYTES)):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_BYTES_MAX:
            lines.append(rest)
            rest = b""
        for line in lines:
            take(line.decode(errors="replace").rstrip("\r"))
    if rest:
        take(rest.decode(errors="replace"))


def _how_it_ended(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with code {exit_code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"was ended by signal {-exit_code}"
