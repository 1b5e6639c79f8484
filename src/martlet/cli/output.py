"""What goes to the terminal: aligned tables, JSON, notes and errors.

Data goes to standard output, notes and errors to standard error. Colour only on a terminal and never under NO_COLOR.
Whatever came from elsewhere (names, values, messages in a table) is made printable first, so that no byte of it can
drive the terminal.
"""

import json
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final, TextIO, TypeAlias

import click

Cell: TypeAlias = str | int | None

_GAP: Final = "  "
_FOLD_WIDTH_MIN: Final = 24


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def has_colour(stream: TextIO) -> bool:
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printable(text: str) -> str:
    """The text with control characters shown as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def display_width(text: str) -> int:
    """How many columns the text takes: wide East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def render_table(
    headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, colour: bool = False, width: int | None = None
) -> str:
    """Columns as wide as their widest cell; columns of numbers are aligned to the right.

    With a `width`, the last column is folded to stay within it, as long as that leaves it a readable width.
    """
    texts = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(headers)
    numeric = [
        any(isinstance(cell, int) for cell in column) and all(cell is None or isinstance(cell, int) for cell in column)
        for column in columns
    ]
    widths = [max(display_width(text) for text in column) for column in zip(headers, *texts, strict=True)]
    if width is not None:
        left = width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
        widths[-1] = min(widths[-1], max(left, _FOLD_WIDTH_MIN))
    lines = [_line(headers, widths, numeric)]
    for row in texts:
        is_wide = display_width(row[-1]) > widths[-1]
        first, *rest = textwrap.wrap(row[-1], widths[-1], break_on_hyphens=False) if is_wide else [row[-1]]
        lines.append(_line([*row[:-1], first], widths, numeric))
        lines += [_line([*[""] * (len(row) - 1), more], widths, numeric) for more in rest]
    if colour:
        lines[0] = click.style(lines[0], bold=True)
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = []
    for cell, width, right in zip(cells, widths, numeric, strict=True):
        padding = " " * max(0, width - display_width(cell))
        padded.append(padding + cell if right else cell + padding)
    return _GAP.join(padded).rstrip()


def render_facts(facts: Mapping[str, Cell]) -> str:
    """Names and values, one pair a line, values aligned."""
    width = max((display_width(name) for name in facts), default=0)
    return "\n".join(
        f"{name}{' ' * (width - display_width(name))}{_GAP}{'-' if value is None else printable(str(value))}"
        for name, value in facts.items()
    )


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
    click.echo(render_table(headers, rows, colour=has_colour(sys.stdout), width=width))


def print_facts(facts: Mapping[str, Cell]) -> None:
    click.echo(render_facts(facts))


def print_json(value: object) -> None:
    """Indented for people, on one line for programs; either way one JSON document."""
    click.echo(json.dumps(value, indent=2 if is_terminal(sys.stdout) else None, ensure_ascii=False))


def print_note(text: str) -> None:
    """Something about the data, for the person watching."""
    click.echo(printable_lines(text), err=True)


def print_error(message: str, next_step: str | None = None) -> None:
    label = click.style("error:", fg="red", bold=True) if has_colour(sys.stderr) else "error:"
    click.echo(f"{label} {printable_lines(message)}", err=True)
    if next_step:
        click.echo(f" hint: {next_step}", err=True)


def printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.splitlines())


def format_bytes(count: int) -> str:
    """A size for people: three digits that matter and a binary unit."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{value:.1f} {unit}"


def format_count(count: int, singular: str, plural: str | None = None) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def format_duration(milliseconds: int) -> str:
    """A span of time for people: its two largest units."""
    seconds = milliseconds // 1000
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} m {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} m"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"
