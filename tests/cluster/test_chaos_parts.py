"""What the chaos run looks at besides the history: the replicas' files and the brokers' logs."""

from pathlib import Path

from bench.chaos.logs import tracebacks
from bench.chaos.replicas import difference

_TRACEBACK = """2026-01-01T00:00:00.000Z ERROR broker.dispatch: it went wrong
Traceback (most recent call last):
  File "a.py", line 1, in first
    second()
  File "b.py", line 2, in second
    raise ValueError("no")
ValueError: no
2026-01-01T00:00:01.000Z INFO broker.app: and on it goes
"""


def log(directory: Path, *segments: bytes) -> Path:
    directory.mkdir(parents=True)
    for number, data in enumerate(segments):
        (directory / f"{number:020d}.log").write_bytes(data)
    return directory


def test_replicas_with_the_same_bytes_do_not_differ_wherever_their_segments_begin(tmp_path: Path) -> None:
    assert difference("orders-0", {1: log(tmp_path / "1", b"ab", b"c"), 2: log(tmp_path / "2", b"abc")}) is None


def test_replicas_with_other_bytes_differ(tmp_path: Path) -> None:
    found = difference("orders-0", {1: log(tmp_path / "1", b"abc"), 2: log(tmp_path / "2", b"abd")})
    assert found is not None
    assert "orders-0" in found


def test_replicas_that_are_not_there_are_not_the_same(tmp_path: Path) -> None:
    assert difference("orders-0", {1: tmp_path / "1", 2: tmp_path / "2"}) is not None
    assert difference("orders-0", {1: log(tmp_path / "3", b"abc"), 2: tmp_path / "2"}) is not None


def test_tracebacks_in_logs_are_counted_by_what_was_raised_and_where(tmp_path: Path) -> None:
    one, other, quiet = tmp_path / "one", tmp_path / "other", tmp_path / "quiet"
    one.write_text(_TRACEBACK + _TRACEBACK)
    other.write_text(_TRACEBACK)
    quiet.write_text("2026-01-01T00:00:01.000Z INFO broker.app: all is well\n")
    assert tracebacks([one, other, quiet]) == [
        '3 × in the brokers\' logs: ValueError: no (File "b.py", line 2, in second)'
    ]
    assert tracebacks([quiet]) == []
