"""Tables, facts and numbers as they appear on the terminal, to the letter."""

from martlet.cli.output import (
    display_width,
    format_bytes,
    format_count,
    format_duration,
    printable,
    render_facts,
    render_table,
)


def test_a_table_aligns_text_left_and_numbers_right() -> None:
    table = render_table(["TOPIC", "PARTITIONS", "RACK"], [["orders", 12, "a"], ["x", 3, None]])
    assert table == "TOPIC   PARTITIONS  RACK\norders          12  a\nx                3  -"


def test_a_table_without_rows_is_its_header() -> None:
    assert render_table(["A", "B"], []) == "A  B"


def test_a_column_without_any_value_is_no_column_of_numbers() -> None:
    assert render_table(["RACK", "N"], [[None, 1], [None, 22]]) == "RACK   N\n-      1\n-     22"


def test_wide_characters_keep_the_columns_straight() -> None:
    assert display_width("注文") == 4
    assert display_width("e\N{COMBINING ACUTE ACCENT}") == 1
    assert render_table(["N", "M"], [["注文", "x"], ["ab", "y"]]) == "N     M\n注文  x\nab    y"


def test_control_characters_cannot_drive_the_terminal() -> None:
    assert printable("a\x1b[31mb\n") == "a\\x1b[31mb\\n"
    assert "\x1b" not in render_table(["V"], [["\x1b]0;title\x07"]])


def test_the_last_column_is_folded_to_the_width_of_the_terminal() -> None:
    rows = [["a", "one two three four five six seven"], ["b", ""]]
    assert render_table(["N", "MEANING"], rows, width=27) == ("N  MEANING\na  one two three four five\n   six seven\nb")
    assert render_table(["N", "MEANING"], rows, width=5) == render_table(["N", "MEANING"], rows, width=27)


def test_the_header_is_bold_only_with_colour() -> None:
    assert render_table(["A"], [["x"]], colour=True) == "\x1b[1mA\x1b[0m\nx"


def test_facts_stand_in_two_columns() -> None:
    assert render_facts({"topic": "t", "partitions": 3, "rack": None}) == "topic       t\npartitions  3\nrack        -"


def test_sizes_and_counts_read_well() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 1536, 10 * 2**20, 3 * 2**40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "10.0 MiB",
        "3.0 TiB",
    ]
    assert format_count(1, "message") == "1 message"
    assert format_count(12_000, "message") == "12,000 messages"
    assert format_count(2, "entry", "entries") == "2 entries"


def test_durations_are_shown_in_their_two_largest_units() -> None:
    second, minute, hour, day = 1_000, 60_000, 3_600_000, 86_400_000
    assert [
        format_duration(span) for span in (0, 999, 59 * second, minute, hour - 1, hour, day - 1, day, 90 * day)
    ] == [
        "0 s",
        "0 s",
        "59 s",
        "1 m 0 s",
        "59 m 59 s",
        "1 h 0 m",
        "23 h 59 m",
        "1 d 0 h",
        "90 d 0 h",
    ]
