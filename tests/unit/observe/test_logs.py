"""Log lines: one entry per line whatever is in it, fields in both forms, repeats counted instead of written."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from martlet.observe.logs import JsonFormatter, LogThrottle, TextFormatter, set_up_logging


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at_ms = 0

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def record(message: str, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"name": "martlet.broker.app", "levelname": "INFO", "msg": message, "created": 1_700_000_000.5}
    )
    vars(made).update(fields)
    return made


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_shows_time_level_logger_message_and_fields() -> None:
    line = TextFormatter().format(record("ready", kafka="127.0.0.1:9092", partitions=3))
    assert line == "2023-11-14T22:13:20.500Z INFO broker.app: ready kafka=127.0.0.1:9092 partitions=3"


def test_json_carries_the_same_as_fields() -> None:
    entry = json.loads(JsonFormatter().format(record("ready", kafka="127.0.0.1:9092", partitions=3)))
    assert entry == {
        "at": "2023-11-14T22:13:20.500Z",
        "level": "info",
        "logger": "martlet.broker.app",
        "message": "ready",
        "kafka": "127.0.0.1:9092",
        "partitions": 3,
    }


@pytest.mark.parametrize(
    "hostile", ["a\nERROR broker: forged", "\x1b[2J", "a\u2028b", "\ud800", 'quote" and space', ""]
)
def test_hostile_text_stays_on_one_printable_line(hostile: str) -> None:
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record(f"refused {hostile}", topic=hostile))
        assert line.isprintable()
        assert len(line.splitlines()) == 1


def test_an_exception_is_part_of_the_entry() -> None:
    made = record("failed")
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "ValueError: bad" in TextFormatter().format(made)
    line = JsonFormatter().format(made)
    assert len(line.splitlines()) == 1
    assert "ValueError: bad" in json.loads(line)["exception"]


def test_a_field_named_like_one_of_ours_does_not_overwrite_it() -> None:
    entry = json.loads(JsonFormatter().format(record("ready", level="shallow", at=5)))
    assert entry["level"] == "info"
    assert entry["level_"] == "shallow"
    assert entry["at_"] == 5


def test_a_value_json_does_not_know_is_written_as_text() -> None:
    assert json.loads(JsonFormatter().format(record("x", thing={1})))["thing"] == "{1}"


@pytest.mark.parametrize(
    ("log_format", "stream", "is_json"),
    [
        ("auto", io.StringIO(), True),
        ("auto", Terminal(), False),
        ("text", io.StringIO(), False),
        ("json", Terminal(), True),
    ],
)
def test_the_form_follows_the_setting_and_the_stream(
    root_logger: logging.Logger, log_format: str, stream: io.StringIO, is_json: bool
) -> None:
    set_up_logging("info", log_format, stream)
    logging.getLogger("martlet.test").info("hello", extra={"n": 1})
    assert stream.getvalue().startswith("{") == is_json


def test_setting_up_again_replaces_the_handler_and_the_level(root_logger: logging.Logger) -> None:
    first, second = io.StringIO(), io.StringIO()
    set_up_logging("info", "text", first)
    set_up_logging("error", "text", second)
    logging.getLogger("martlet.test").warning("quiet")
    logging.getLogger("martlet.test").error("loud")
    assert first.getvalue() == ""
    assert "quiet" not in second.getvalue()
    assert "loud" in second.getvalue()


@pytest.mark.parametrize(("level", "log_format"), [("loud", "text"), ("info", "xml")])
def test_an_unknown_level_or_format_is_named_with_what_is_allowed(level: str, log_format: str) -> None:
    with pytest.raises(ValueError, match=r"(loud|xml).*is not one of"):
        set_up_logging(level, log_format, io.StringIO())


def throttle(clock: HandClock, **options: int) -> LogThrottle:
    return LogThrottle(logging.getLogger("martlet.test_throttle"), clock, **options)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object]]:
    return [(entry.getMessage(), getattr(entry, "count", None)) for entry in caplog.records]


def test_repeats_of_a_kind_are_counted_and_reported_in_the_next_interval(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    logs = throttle(clock, interval_ms=1_000)
    for _ in range(5):
        logs.warning("tls", "TLS bytes on the Kafka port", address="10.0.0.1")
    assert lines(caplog) == [("TLS bytes on the Kafka port", None)]
    assert caplog.records[0].__dict__["address"] == "10.0.0.1"
    clock.at_ms = 1_000
    logs.warning("tls", "TLS bytes on the Kafka port", address="10.0.0.1")
    assert lines(caplog)[1:] == [("repeats not logged", 4), ("TLS bytes on the Kafka port", None)]


def test_different_kinds_do_not_hide_each_other(caplog: pytest.LogCaptureFixture) -> None:
    logs = throttle(HandClock())
    logs.warning("tls", "TLS")
    logs.warning("http", "HTTP")
    assert lines(caplog) == [("TLS", None), ("HTTP", None)]


def test_many_kinds_together_are_bounded_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    logs = throttle(HandClock(), lines_max=3)
    for number in range(1_000):
        logs.warning(("garbage", number), "garbage")
    assert len(caplog.records) == 3
    logs.flush()
    assert lines(caplog)[3:] == [("further lines not logged", 997)]
    logs.flush()
    assert len(caplog.records) == 4


def test_a_field_named_like_one_of_the_standard_library_does_not_raise(caplog: pytest.LogCaptureFixture) -> None:
    throttle(HandClock()).warning("k", "m", name="topic", args=1)
    assert caplog.records[0].__dict__["name_"] == "topic"


def test_a_percent_sign_in_the_message_is_only_text(caplog: pytest.LogCaptureFixture) -> None:
    throttle(HandClock()).warning("k", "100 %s")
    assert caplog.records[0].getMessage() == "100 %s"
