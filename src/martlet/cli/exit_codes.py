"""The exit codes of `martlet`, a promise to scripts: a number keeps its meaning."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell sees when the command ends."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    CONFLICT = 5
    NOT_REACHABLE = 6
    TIMEOUT = 7
    CHECK_FAILED = 8
    INTERRUPTED = 130


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "done",
    ExitCode.FAILURE: "failed",
    ExitCode.USAGE: "wrong command line, setting or value",
    ExitCode.NOT_FOUND: "no such topic or other thing",
    ExitCode.NOT_ALLOWED: "not allowed",
    ExitCode.CONFLICT: "exists already or is in use",
    ExitCode.NOT_REACHABLE: "no broker reachable",
    ExitCode.TIMEOUT: "no answer in time",
    ExitCode.CHECK_FAILED: "a check found something wrong",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
}


def epilog() -> str:
    """The table as the last paragraph of `martlet --help`."""
    lines = "\n".join(f"  {code.value:>3}  {MEANINGS[code]}" for code in ExitCode)
    return f"\b\nExit codes:\n{lines}"
