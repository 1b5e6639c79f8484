"""Progress: a line that changes on a terminal, few lines elsewhere."""

import pytest
from sim.clock import SimClock

from martlet.cli import progress
from martlet.cli.progress import Progress


def test_elsewhere_a_line_is_written_when_it_differs_and_some_seconds_have_passed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = SimClock()
    line = Progress(clock)
    for step in range(13):
        line.show(f"moved {step // 2}")
        clock.advance(1_000)
    line.end()
    assert capsys.readouterr().err.splitlines() == ["moved 0", "moved 2", "moved 5"]


def test_nothing_is_shown_of_what_is_soon_over(capsys: pytest.CaptureFixture[str]) -> None:
    clock = SimClock()
    line = Progress(clock, quiet_ms=1_000)
    for step in range(3):
        line.show(f"moved {step}")
        clock.advance(600)
    line.end()
    assert capsys.readouterr().err.splitlines() == ["moved 2"]


def test_on_a_terminal_the_line_is_overwritten_and_cleared(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "is_terminal", lambda _: True)
    line = Progress(SimClock())
    line.show("one")
    line.show("one")
    line.show("two\x07")
    line.end()
    line.end()
    assert capsys.readouterr().err == "\r\x1b[Kone\r\x1b[Ktwo\\x07\r\x1b[K"
