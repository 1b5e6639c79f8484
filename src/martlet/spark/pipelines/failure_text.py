"""One sentence out of what Spark says when something fails: the words of the code that raised it, without the traces.

Spark wraps an exception of Python code into several of its own, with the stacks of two languages. What a person needs
is the innermost line; everything is in the run's log.

Proved by: tests/unit/spark/test_failure_text.py.
"""

import re
import traceback
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from martlet.base.errors import MartletError

SPARK_FAILURES: Final = (PySparkException, Py4JError)
"""What Spark raises: its own exceptions, and those of the other side that it has no name for."""

_PYTHON_LINE: Final = re.compile(
    r"^(?:pyspark\.errors\.\S+: )?([A-Za-z_][\w.]*(?:Error|Exception|Refused|Lost|Failed|Unknown|Gone|Out)): (.+)$",
    re.MULTILINE,
)
_WRAPPER: Final = re.compile(r"terminated with exception: (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+$")
_TRACEBACK: Final = "Traceback (most recent call last)"


_PASSING: Final = ("Python worker failed to connect back",)
"""Spark gives a planner process ten seconds to start, which a busy machine may need longer for."""


def is_passing(error: BaseException) -> bool:
    """Whether the same may well work at the next try, though nothing has worked yet."""
    return any(words in str(error) for words in _PASSING)


def described_failure(error: BaseException, log: Path) -> str:
    """What to report about anything that ended a run; the trace of the unforeseen goes to the log."""
    if isinstance(error, (*SPARK_FAILURES, MartletError)):
        return failure_text(error)
    with open(log, "a", encoding="utf-8") as stream:
        traceback.print_exception(error, file=stream)
    return f"{type(error).__name__}: {failure_text(error)}"


def failure_text(error: BaseException) -> str:
    """What to tell about a failure of Spark's, in one line."""
    text = str(error)
    if _TRACEBACK in text:
        raised = _PYTHON_LINE.findall(text.rpartition(_TRACEBACK)[2])
        if raised:
            kind, words = raised[0]
            short = kind.rpartition(".")[2]
            return _tidy(words if _is_ours(kind) else f"{short}: {words}")
    wrapped = _WRAPPER.search(text)
    if wrapped:
        return _tidy(wrapped.group(1))
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _tidy(first)


def _is_ours(kind: str) -> bool:
    return kind.startswith("martlet.")


def _tidy(words: str) -> str:
    return _STATE.sub("", words.strip())
