"""The words of --from."""

import pytest

from martlet.base.errors import ApiError
from martlet.base.ids import TopicPartition
from martlet.cli.start_position import Start, StartKind, _position, parse_start

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(StartKind.EARLIEST)),
        ("beginning", Start(StartKind.EARLIEST)),
        ("latest", Start(StartKind.LATEST)),
        ("end", Start(StartKind.LATEST)),
        ("-10", Start(StartKind.LAST, 10)),
        ("42", Start(StartKind.OFFSET, 42)),
        ("@1793520000000", Start(StartKind.TIME, 1793520000000)),
        ("@-15m", Start(StartKind.TIME, NOW_MS - 900_000)),
        ("@-2d", Start(StartKind.TIME, NOW_MS - 172_800_000)),
        ("@2026-11-01T00:00:00+00:00", Start(StartKind.TIME, 1793491200000)),
    ],
)
def test_every_way_to_say_where_to_start_is_understood(text: str, start: Start) -> None:
    assert parse_start(text, NOW_MS) == start


def test_a_time_without_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC-3")
    time.tzset()
    try:
        assert parse_start("@2026-11-01T03:00", NOW_MS).number == 1793491200000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "soon",
            "'soon' is not a valid start; allowed are earliest, latest, "
            "-N (the last N of each partition), @TIME, or an offset",
        ),
        (
            "@soon",
            "'@soon' is not a valid time; allowed are @2026-11-01T08:00, @1793520000000 (ms since 1970), "
            "or @-15m (s, m, h or d ago)",
        ),
        (
            "@9999-99-99",
            "'@9999-99-99' is not a valid time; allowed are @2026-11-01T08:00, @1793520000000 (ms since 1970), "
            "or @-15m (s, m, h or d ago)",
        ),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid (start|time)") as caught:
        parse_start(text, NOW_MS)
    assert str(caught.value) == sentence


def test_positions_stay_within_what_the_partition_holds() -> None:
    partition = TopicPartition("t", 0)
    held = range(5, 20)
    assert _position(Start(StartKind.EARLIEST), partition, held) == 5
    assert _position(Start(StartKind.LATEST), partition, held) == 20
    assert _position(Start(StartKind.LAST, 3), partition, held) == 17
    assert _position(Start(StartKind.LAST, 300), partition, held) == 5
    assert _position(Start(StartKind.OFFSET, 2), partition, held) == 5
    assert _position(Start(StartKind.OFFSET, 20), partition, held) == 20
    with pytest.raises(ApiError, match="t-0 has no offset 21 yet; it holds 5 up to but not including 20"):
        _position(Start(StartKind.OFFSET, 21), partition, held)
