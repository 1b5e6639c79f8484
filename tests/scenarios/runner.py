"""Runs golden scenarios: text files that tell a story as commands, each with the output it must have.

A file opens with a comment that says what the story is and which rule it proves. Then come blocks, set apart by blank
lines:

    # why this step
    join group=g member=a
    ----
    parked join g a
    timer rebalance g in 3000

`run_scenario` gives each command line to the function of its verb and compares what comes back with the lines below
`----`; with `rewrite` it writes what came back into the file instead. `Transcript` is a `MachineContext` that notes
down everything a machine does, in the short form the files use.
"""

import dataclasses
import shlex
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from martlet.coordinator.result import Machine, Parked, RecordCodec, Result, SetTimer
from tests.machine_context import MachineContext, Pending

SEPARATOR = "----"

Command = Callable[[dict[str, str]], list[str]]
M = TypeVar("M", bound=Machine[Any])


class Block(NamedTuple):
    """One step of a story; `number` is the line its command stands in."""

    number: int
    comments: list[str]
    command: str
    expected: list[str]


def run_scenario(path: Path, commands: Mapping[str, Command], rewrite: bool) -> None:
    """Play the story in the file; fails at the first command whose output is not the expected one."""
    head, blocks = parse(path.read_text("utf-8"))
    assert head, f"{path.name} does not open with a comment that tells its story"
    assert blocks, f"{path.name} has no commands"
    played: list[Block] = []
    for block in blocks:
        verb, arguments = words_of(block.command)
        assert verb in commands, f"{path.name}:{block.number}: no such command: {verb}"
        shown = [line for text in commands[verb](arguments) for line in text.splitlines()]
        if not rewrite:
            assert shown == block.expected, f"{path.name}:{block.number}: {block.command}\n" + "\n".join(shown)
        played.append(block._replace(expected=shown))
    if rewrite:
        path.write_text(format_scenario(head, played), "utf-8")


def parse(text: str) -> tuple[list[str], list[Block]]:
    """The opening comment, and the blocks."""
    lines = text.splitlines()
    head = list(takewhile(lambda line: line.startswith("#"), lines))
    return head, list(_blocks(lines, len(head)))


def _blocks(lines: list[str], start: int) -> Iterator[Block]:
    place = start
    while place < len(lines):
        comments: list[str] = []
        while place < len(lines) and (not lines[place].strip() or lines[place].startswith("#")):
            if lines[place].strip():
                comments.append(lines[place])
            place += 1
        if place == len(lines):
            return
        number, command = place + 1, lines[place]
        place += 1
        assert lines[place : place + 1] == [SEPARATOR], f"line {number}: no {SEPARATOR} after {command!r}"
        expected = list(takewhile(str.strip, lines[place + 1 :]))
        place += 1 + len(expected)
        yield Block(number, comments, command, expected)


def words_of(command: str) -> tuple[str, dict[str, str]]:
    """Verb and arguments; a word without `=` is an argument with an empty value, quotes keep spaces together."""
    verb, *rest = shlex.split(command)
    pairs = (word.partition("=") for word in rest)
    return verb, {name: value for name, _, value in pairs}


def format_scenario(head: list[str], blocks: list[Block]) -> str:
    """The text of a scenario; the inverse of `parse`."""
    parts = ["\n".join(head)]
    parts += ["\n".join([*block.comments, block.command, SEPARATOR, *block.expected]) for block in blocks]
    return "\n\n".join(parts) + "\n"


def short(value: object) -> str:
    """A value as one short line: dataclasses without the fields that have their default, bytes as text if they are."""
    if isinstance(value, Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = [f"{field.name}={short(getattr(value, field.name))}" for field in _telling_fields(value)]
        return " ".join([type(value).__name__, *shown])
    if isinstance(value, bytes):
        return value.decode() if value.isascii() and value.decode().isprintable() else "0x" + value.hex()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{short(key)}: {short(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(short, value))) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(short, value)) + "]"
    return str(value)


def _telling_fields(value: Any) -> Iterator[dataclasses.Field[Any]]:
    for field in dataclasses.fields(value):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if getattr(value, field.name) != default:
            yield field


class Transcript(MachineContext[M]):
    """A machine's context that notes down all it does; `take_lines` gives what was noted since it was last asked."""

    def __init__(
        self,
        make: Callable[[], M],
        codec: RecordCodec[Any],
        show: Callable[[object], str] = short,
        now_ms: int = 1_000_000,
    ) -> None:
        super().__init__(make, codec, now_ms)
        self._show = show
        self._lines: list[str] = []

    def take_lines(self) -> list[str]:
        taken, self._lines = self._lines, []
        return taken

    def note(self, line: str) -> None:
        """Add a line of one's own, such as an error a command caught."""
        self._lines.append(line)

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (at_ms := self.timers.next_at_ms()) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            key = self.timers.pop_due(self.now_ms)
            assert key is not None
            self.note(f"fired {' '.join(key)} after {ms - (end_ms - self.now_ms)}")
            self._carry_out(self.machine.on_timer(key, self.now_ms), None)
        self.now_ms = end_ms

    def _carry_out(self, result: Result[Any], pending: Pending | None) -> None:
        if isinstance(result.response, Parked):
            key = result.response.key
            self.note(f"parked {' '.join(key)}")
            if key in self.waiting:
                self.note(f"replaced {' '.join(key)}: {self._show(result.response.if_replaced)}")
        elif result.response is not None:
            self.note(f"response {self._show(result.response)}")
        for record in result.records:
            kind = "event" if self.codec.encode(record) is None else "stored"
            self.note(f"{kind} {self._show(record)}")
        for timer in result.timers:
            when = f"in {timer.delay_ms}" if isinstance(timer, SetTimer) else "cancelled"
            self.note(f"timer {' '.join(timer.key)} {when}")
        super_waiting = {*self.waiting}
        if isinstance(result.response, Parked):
            super_waiting.add(result.response.key)
        for answer in result.answers:
            nobody = "" if answer.key in super_waiting else " (nobody waits)"
            self.note(f"answer {' '.join(answer.key)}: {self._show(answer.response)}{nobody}")
        super()._carry_out(result, pending)
