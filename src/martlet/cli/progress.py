"""How far something long has come: one line that changes on a terminal, few lines elsewhere; on standard error.

A line that is not on a terminal is written when it differs and some seconds have passed, so that a log of a long move
tells its story without drowning in it.
"""

import sys
from types import TracebackType
from typing import Final, Self

import click

from martlet.base.clock import Clock, SystemClock
from martlet.cli.output import is_terminal, printable_lines

_LINE_INTERVAL_MS: Final = 5_000
_CLEAR: Final = "\r\x1b[K"


class Progress:
    """Made for one long act and ended with it, whatever its end."""

    def __init__(self, clock: Clock | None = None, *, quiet_ms: int = 0) -> None:
        """Nothing is shown of an act that takes no longer than `quiet_ms`."""
        self._clock = clock or SystemClock()
        self._quiet_until_ms = self._clock.monotonic_ms() + quiet_ms
        self._shown = ""
        self._shown_at_ms: int | None = None

    def show(self, text: str) -> None:
        """This is how far it has come."""
        if text == self._shown:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._quiet_until_ms:
            return
        if is_terminal(sys.stderr):
            click.echo(f"{_CLEAR}{printable_lines(text)}", err=True, nl=False, color=True)
        elif self._shown_at_ms is not None and now_ms - self._shown_at_ms < _LINE_INTERVAL_MS:
            return
        else:
            click.echo(printable_lines(text), err=True)
        self._shown, self._shown_at_ms = text, now_ms

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Leave no half line behind."""
        if self._shown and is_terminal(sys.stderr):
            click.echo(_CLEAR, err=True, nl=False, color=True)
        self._shown = ""
