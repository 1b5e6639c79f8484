"""Becomes another program that is asked to stop when the process that started it is gone, however that ended.

Run as a script: `bound_child.py PARENT_PID PROGRAM ARGUMENT...`. It imports nothing of Martlet, so that it costs a few
milliseconds. Where the system has no such thing (it is Linux's), the program runs without.
"""

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Never returns: this process becomes the command, or ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)  # it went before we could say that we want to know
    os.execv(command[0], command)  # noqa: S606 - that is what this is for


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
