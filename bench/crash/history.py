"""What was sent, what was acknowledged, what was read: the history of a crash test, and the judge over it.

Rules: no I/O and no clock. Publishers and readers report here from their threads; `violations` judges. Every value
names itself (kind, partition, number) and its content follows from that name, so that a changed byte is noticed.

Every publish ends in one of three ways: acknowledged at an offset, refused for certain, or unknown, when the broker
died before its answer came. An unknown one may be there or not, but at most once.

What must hold of everything read back:
1. What was acknowledged is there, at the offset acknowledged, with the content sent.
2. Nothing is there twice. (Idempotent publishers send again after a crash; the others never do.)
3. What was refused is not there, and nothing is there that was not sent.
4. Each publisher's messages to a partition stand in the order sent; offsets only rise.
5. What a reader was once given at an offset stays there for ever.

Proved by: tests/crash/test_crash_judge.py
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

VIOLATIONS_SHOWN = 20


class Kind(Enum):
    """Who sent a message."""

    IDEMPOTENT = "i"
    SINGLE = "s"
    PROBE = "p"


class Name(NamedTuple):
    """One message for ever: the number rises by one with each message of that kind to that partition."""

    kind: Kind
    partition: int
    number: int


class ReadMessage(NamedTuple):
    offset: int
    value: bytes


def value_of(name: Name) -> bytes:
    """The content of a message: its name, and 0 to 400 bytes that follow from it."""
    head = f"{name.kind.value}-{name.partition}-{name.number}".encode()
    digest = hashlib.blake2b(head).digest()
    size = digest[0] + digest[1] % 146
    return head + b":" + (digest * 7)[:size]


def name_of(value: bytes) -> Name | None:
    """The name a value claims, if it can be read."""
    try:
        kind, partition, number = value.partition(b":")[0].decode("ascii").split("-")
        return Name(Kind(kind), int(partition), int(number))
    except ValueError:
        return None


@dataclass
class History:
    """Filled by several threads, each of which only adds; judged while no thread needs to wait."""

    sent: dict[tuple[Kind, int], int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: dict[Name, int] = field(default_factory=dict)
    refused: set[Name] = field(default_factory=set)
    unknown: set[Name] = field(default_factory=set)
    seen: dict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    complaints: list[str] = field(default_factory=list)
    """What publishers and readers noticed themselves, such as a fatal error of a producer."""

    def next_name(self, kind: Kind, partition: int) -> Name:
        """The name of the next message; each kind has one sender only."""
        number = self.sent[kind, partition]
        self.sent[kind, partition] = number + 1
        return Name(kind, partition, number)

    def saw(self, partition: int, messages: Iterable[ReadMessage]) -> None:
        """A reader was given these."""
        seen = self.seen[partition]
        for offset, value in messages:
            if seen.setdefault(offset, value) != value:
                self.complaints.append(f"partition {partition}, offset {offset}: a reader was given two messages")

    def acknowledged_of(self, kind: Kind) -> int:
        return sum(name.kind is kind for name in tuple(self.acknowledged))


def violations(
    history: History, content: Mapping[int, Sequence[ReadMessage]], acknowledged: Mapping[Name, int] | None = None
) -> list[str]:
    """Everything that is wrong with `content`, the messages of each partition in the order read.

    `acknowledged` are those acknowledged before reading began, when publishing goes on meanwhile.
    """
    must_be_there = history.acknowledged if acknowledged is None else acknowledged
    found = list(history.complaints)
    places: dict[Name, int] = {}
    for partition, messages in content.items():
        found += _wrong_in_partition(history, partition, messages, places)
        found += _unstable(history, partition, messages)
    for name, offset in must_be_there.items():
        if name not in places:
            found.append(f"lost: {_text(name)}, acknowledged at offset {offset}")
        elif places[name] != offset:
            found.append(f"moved: {_text(name)}, acknowledged at offset {offset}, is at {places[name]}")
    return found


def _wrong_in_partition(
    history: History, partition: int, messages: Sequence[ReadMessage], places: dict[Name, int]
) -> list[str]:
    found = []
    last_offset = -1
    last_number: dict[Kind, int] = {}
    for offset, value in messages:
        if offset <= last_offset:
            found.append(f"partition {partition}: offset {offset} comes after {last_offset}")
        last_offset = offset
        name = name_of(value)
        if name is None or value != value_of(name):
            found.append(f"changed: partition {partition}, offset {offset} holds {value[:40]!r}")
            continue
        if name.partition != partition or name.number >= history.sent.get((name.kind, partition), 0):
            found.append(f"never sent: {_text(name)}, found in partition {partition} at offset {offset}")
        elif name in places:
            found.append(f"duplicate: {_text(name)} at offsets {places[name]} and {offset}")
        elif name.number < last_number.get(name.kind, -1):
            found.append(f"out of order: {_text(name)} at offset {offset} after number {last_number[name.kind]}")
        elif name in history.refused:
            found.append(f"refused, but there: {_text(name)} at offset {offset}")
        places.setdefault(name, offset)
        last_number[name.kind] = max(name.number, last_number.get(name.kind, -1))
    return found


def _unstable(history: History, partition: int, messages: Sequence[ReadMessage]) -> list[str]:
    """What a reader has seen and is no longer so."""
    now = dict(messages)
    # The reader may be ahead of what was read back; below its end nothing may differ.
    end = messages[-1].offset if messages else -1
    return [
        f"partition {partition}, offset {offset}: once read as {value[:40]!r}, now {now.get(offset, b'nothing')[:40]!r}"
        for offset, value in tuple(history.seen[partition].items())
        if offset <= end and now.get(offset) != value
    ]


def _text(name: Name) -> str:
    return f"{name.kind.name.lower()} message {name.number} of partition {name.partition}"
