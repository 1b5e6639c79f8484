"""Logging set-up on the standard library: text for people on a terminal, one JSON object per line elsewhere.

Code logs as usual, `logger.info("partition opened", extra={"partition": "orders-0"})`, and both forms carry
the extra fields. Whatever came from outside may sit in a message or a field, so both forms keep every entry on
one line and free of control characters; only a traceback of ours in the text form takes more lines.

`LogThrottle` is for lines that a stranger can cause at will: the first of a kind is written, the repeats
are counted, and when the interval is over one line says how many there were.

Rules: only the process's entry point calls `set_up_logging`; a library user's logging is never touched.

Proved by: tests/unit/observe/test_logs.py.
"""

import json
import logging
import re
import sys
from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from martlet.base.clock import Clock

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

FORMATS: Final = ("auto", "text", "json")

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OWN_FIELDS: Final = frozenset({"at", "level", "logger", "message", "exception"})
_PLAIN_VALUE: Final = re.compile(r"[\w.:/@+\-*\[\]]+")


class _MartletHandler(logging.StreamHandler[TextIO]):
    """The handler `set_up_logging` installed, recognisable so that a second call replaces it."""


def set_up_logging(level: str, log_format: str = "auto", stream: TextIO | None = None) -> None:
    """Send everything from `level` up to `stream` (by default standard error). May be called again.

    Raises ValueError, naming what is allowed, for a level or format that does not exist.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    if log_format not in FORMATS:
        raise ValueError(f"log format {log_format!r} is not one of {', '.join(FORMATS)}")
    target = sys.stderr if stream is None else stream
    handler = _MartletHandler(target)
    is_text = log_format == "text" or (log_format == "auto" and target.isatty())
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _MartletHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller passed as `extra`; a name of our own gets an underscore behind it."""
    return {
        f"{name}_" if name in _OWN_FIELDS else name: value
        for name, value in vars(record).items()
        if name not in _STANDARD_FIELDS
    }


class TextFormatter(logging.Formatter):
    """`2026-11-15T09:30:00.125Z INFO broker.app: ready kafka=127.0.0.1:9092`"""

    def format(self, record: logging.LogRecord) -> str:
        logger = record.name.removeprefix("martlet.")
        line = f"{_instant(record)} {record.levelname} {logger}: {_on_one_line(record.getMessage())}"
        for name, value in extra_fields(record).items():
            text = str(value)
            shown = text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text)
            line += f" {name}={shown}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `at`, `level`, `logger`, `message`, the extra fields, and `exception` if any."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update(extra_fields(record))
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _instant(record: logging.LogRecord) -> str:
    instant = datetime.fromtimestamp(record.created, UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{instant.microsecond // 1000:03d}Z"


def _on_one_line(text: str) -> str:
    # isprintable() is False for every control character, line separator and lone surrogate.
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _as_extra(fields: dict[str, object]) -> dict[str, object]:
    # The standard library raises on an extra field that has the name of one of its own.
    return {f"{name}_" if name in _STANDARD_FIELDS else name: value for name, value in fields.items()}


class LogThrottle:
    """Writes the first line of each kind per interval and counts the rest. Owned by one event loop.

    At most `lines_max` kinds are written and remembered per interval, so a stranger with many addresses gains
    nothing. An interval ends with the first call after its time, or with `flush`: call that when the process
    stops, and now and then before.
    """

    def __init__(
        self,
        logger: logging.Logger,
        clock: Clock,
        *,
        interval_ms: int = 10_000,
        lines_max: int = 20,
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._interval_ms = interval_ms
        self._lines_max = lines_max
        self._interval_began_at_ms = clock.monotonic_ms()
        self._suppressed: dict[Hashable, int] = {}
        self._suppressed_past_limit = 0

    def warning(self, kind: Hashable, message: str, **fields: object) -> None:
        """Log `message` with `fields` unless this kind, or all kinds together, had their lines this interval."""
        if self._clock.monotonic_ms() - self._interval_began_at_ms >= self._interval_ms:
            self.flush()
        if kind in self._suppressed:
            self._suppressed[kind] += 1
        elif len(self._suppressed) >= self._lines_max:
            self._suppressed_past_limit += 1
        else:
            self._suppressed[kind] = 0
            self._logger.warning("%s", message, extra=_as_extra(fields))

    def flush(self) -> None:
        """Begin a new interval; say how many lines of the last one were not written."""
        for kind, count in self._suppressed.items():
            if count:
                self._logger.warning("repeats not logged", extra={"kind": kind, "count": count})
        if self._suppressed_past_limit:
            self._logger.warning("further lines not logged", extra={"count": self._suppressed_past_limit})
        self._suppressed.clear()
        self._suppressed_past_limit = 0
        self._interval_began_at_ms = self._clock.monotonic_ms()
