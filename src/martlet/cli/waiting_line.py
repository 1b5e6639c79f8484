"""A line on a terminal that counts the seconds of something that says nothing by itself, like Spark's start.

It writes to a copy of standard error made at its start: what it waits for may have turned standard error to a log.
"""

import os
import shutil
import sys
import threading
from typing import Final

from martlet.base.clock import SystemClock
from martlet.cli.output import printable

_TICK_SECONDS: Final = 1.0


class WaitingLine:
    """Shown from `start` to `end`; both may be called once, `end` from any thread."""

    def __init__(self, text: str) -> None:
        self._text = printable(text)
        self._over = threading.Event()
        self._stream = os.dup(sys.stderr.fileno())
        self._thread = threading.Thread(target=self._count, name="waiting-line", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        os.close(self._stream)

    def _count(self) -> None:
        clock = SystemClock()
        began_ms = clock.monotonic_ms()
        while True:
            seconds = (clock.monotonic_ms() - began_ms) // 1000
            width = shutil.get_terminal_size().columns - 1
            os.write(self._stream, f"\r\x1b[K{f'{self._text} ({seconds} s)'[:width]}".encode())
            if self._over.wait(_TICK_SECONDS):
                return
