"""What publishers were answered and readers were given, and the judge over it, in the way of Jepsen's Kafka workload.

Rules: no I/O, no clock, no chance. Publishers and readers report to a `History` from any thread; a report only adds.
`judge` is asked once, when the cluster has healed, every publisher has its last answer, and every partition has been
read from its beginning to its end (`final`). Topics must keep everything: no retention, no compaction, no deletion.

How it works: every message names itself (partition, producer, number) and its content follows from that name, so a
changed byte is noticed. Every publish ends in one of three ways: acknowledged (at an offset, if the answer named
one), refused for certain, or unknown. Unknown is the outcome of every publish without a report: it may be there or
not, but at most once, and once it has been read, it must stay.

The anomalies:
1. INCONSISTENT: two different messages at one offset, from any acknowledgement or any read, at any time.
2. DUPLICATE: one message at two offsets.
3. LOST: acknowledged, or read, and not there in the end although later offsets are.
4. UNSEEN: acknowledged, or read, above everything that is there in the end.
5. REORDERED: messages of one producer stand in another order than it sent them.
6. ABORTED_READ: refused for certain, and there.
7. STRANGE: content that was never sent, or sent to another partition.
8. SKIPPED: a reader that only goes forward was not given a message below one that it was given.
9. BACKWARD: a reader was given an offset at or below one it had, without having sought it.
10. COMPLAINT: what a publisher or reader noticed itself, such as a producer that failed for good.

Offsets may have gaps where nothing is, so contiguity is never asked for.

Proved by: tests/unit/sim/test_history_checker.py
"""

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

_NOWHERE: Final = -1
Offsets: TypeAlias = "array[int]"
_TEXT_BYTES_SHOWN: Final = 40


class Anomaly(Enum):
    """What can be wrong; the module's head says what each means."""

    INCONSISTENT = "inconsistent offset"
    DUPLICATE = "duplicate"
    LOST = "lost"
    UNSEEN = "unseen"
    REORDERED = "reordered"
    ABORTED_READ = "aborted read"
    STRANGE = "strange"
    SKIPPED = "skipped"
    BACKWARD = "backward"
    COMPLAINT = "complaint"


class Violation(NamedTuple):
    anomaly: Anomaly
    text: str
    partition: str = ""
    offsets: tuple[int, ...] = ()
    """Where to look for the cause, when it is known."""

    def __str__(self) -> str:
        return f"{self.anomaly.value}: {self.text}"


class Name(NamedTuple):
    """One message for ever: the number rises by one with each message of that producer to that partition."""

    partition: str
    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.producer}/{self.number}"


class ReadMessage(NamedTuple):
    offset: int
    value: bytes


def value_of(name: Name) -> bytes:
    """The content of a message: its name, and 0 to 255 bytes that follow from it."""
    head = str(name).encode()
    digest = hashlib.blake2b(head).digest()
    return head + b":" + (digest * 4)[: digest[0]]


def name_of(value: bytes) -> Name | None:
    """The name of a message that is exactly as it was sent; None for any other content."""
    try:
        partition, producer, number = value.partition(b":")[0].decode("ascii").rsplit("/", 2)
        name = Name(partition, producer, int(number))
    except ValueError:
        return None
    return name if value == value_of(name) else None


@dataclass(slots=True)
class _Partition:
    """All that is known of one partition."""

    at: dict[int, Name] = field(default_factory=dict)
    """The first message that any client heard of or was given at an offset."""
    offsets_of: dict[Name, int] = field(default_factory=dict)
    acknowledged: dict[Name, int] = field(default_factory=dict)
    refused: set[Name] = field(default_factory=set)
    read: set[Name] = field(default_factory=set)
    final: dict[int, Name] | None = None


class History:
    """What happened to the messages of one run."""

    def __init__(self) -> None:
        self._partitions: dict[str, _Partition] = defaultdict(_Partition)
        self._sent: dict[tuple[str, str], int] = defaultdict(int)
        self._runs: dict[tuple[str, str], list[Offsets]] = defaultdict(list)
        self._violations: list[Violation] = []

    def sending(self, producer: str, partition: str) -> Name:
        """The name of the next message; a producer's messages to a partition are named by one thread."""
        number = self._sent[producer, partition]
        self._sent[producer, partition] = number + 1
        return Name(partition, producer, number)

    def acknowledged(self, name: Name, offset: int | None) -> None:
        """The broker has it; at this offset, if the answer named one."""
        known = self._partitions[name.partition]
        if name in known.refused or name in known.acknowledged:
            self.complain(f"{name} was acknowledged after its sender knew an outcome")
        known.acknowledged[name] = _NOWHERE if offset is None else offset
        if offset is not None:
            self._stands(name.partition, offset, name, "acknowledged")

    def refused(self, name: Name) -> None:
        """The broker said for certain that it does not have it."""
        known = self._partitions[name.partition]
        if name in known.acknowledged:
            self.complain(f"{name} was refused after it had been acknowledged")
        known.refused.add(name)

    def sought(self, reader: str, partition: str) -> None:
        """This reader goes on from another place: what it is given next need not follow what it had."""
        self._runs[reader, partition].append(array("q"))

    def saw(self, reader: str, partition: str, messages: Iterable[ReadMessage]) -> None:
        """This reader was given these, in this order."""
        runs = self._runs[reader, partition]
        if not runs:
            runs.append(array("q"))
        run = runs[-1]
        for offset, value in messages:
            if run and offset <= run[-1]:
                self._wrong(Anomaly.BACKWARD, f"{reader} was given offset {offset} of {partition} after {run[-1]}")
            run.append(offset)
            name = self._known(partition, offset, value, reader)
            if name is not None:
                self._partitions[partition].read.add(name)
                self._stands(partition, offset, name, f"given to {reader}")

    def final(self, partition: str, messages: Iterable[ReadMessage]) -> None:
        """All of a partition, read from its beginning to its end when all was over. May be reported several times."""
        content: dict[int, Name] = {}
        last = _NOWHERE
        for offset, value in messages:
            if offset <= last:
                self._wrong(Anomaly.BACKWARD, f"reading {partition} back gave offset {offset} after {last}")
            last = offset
            name = self._known(partition, offset, value, "the final reader")
            if name is not None:
                content[offset] = name
                self._stands(partition, offset, name, "there in the end")
        self._partitions[partition].final = content

    def complain(self, text: str) -> None:
        self._wrong(Anomaly.COMPLAINT, text)

    @property
    def acknowledged_count(self) -> int:
        return sum(len(known.acknowledged) for known in tuple(self._partitions.values()))

    def counts(self) -> dict[str, int]:
        """How many there are of each kind, for a report."""
        partitions = tuple(self._partitions.values())
        sent = sum(tuple(self._sent.values()))
        refused = sum(len(known.refused) for known in partitions)
        return {
            "sent": sent,
            "acknowledged": self.acknowledged_count,
            "refused": refused,
            "unknown": sent - self.acknowledged_count - refused,
            "read meanwhile": sum(len(known.read) for known in partitions),
            "read back": sum(len(known.final or ()) for known in partitions),
        }

    def found_so_far(self) -> list[Violation]:
        """What is wrong already, whatever may still come."""
        return list(self._violations)

    def judge(self) -> list[Violation]:
        """Everything that is wrong."""
        found = self.found_so_far()
        for partition, known in sorted(self._partitions.items()):
            if known.final is None:
                found.append(Violation(Anomaly.COMPLAINT, f"{partition} was not read back"))
                continue
            found += _missing(known, known.final)
            found += _reordered(known, known.final)
            found += _aborted(known)
        for (reader, partition), runs in sorted(self._runs.items()):
            found += self._skipped(reader, partition, runs)
        return found

    def _wrong(self, anomaly: Anomaly, text: str, partition: str = "", offsets: tuple[int, ...] = ()) -> None:
        self._violations.append(Violation(anomaly, text, partition, offsets))

    def _known(self, partition: str, offset: int, value: bytes, reader: str) -> Name | None:
        """The message this is, if it was sent here."""
        name = name_of(value)
        if name is not None and name.partition == partition and name.number < self._sent[name.producer, partition]:
            return name
        what = value[:_TEXT_BYTES_SHOWN]
        self._wrong(Anomaly.STRANGE, f"{partition}, offset {offset}: {reader} was given {what!r}")
        return None

    def _stands(self, partition: str, offset: int, name: Name, how: str) -> None:
        """A client heard of or was given this message at this offset."""
        known = self._partitions[partition]
        first = known.at.setdefault(offset, name)
        if first != name:
            text = f"{partition}, offset {offset}: {name} {how}, but it was {first} before"
            self._wrong(Anomaly.INCONSISTENT, text, partition, (offset,))
        place = known.offsets_of.setdefault(name, offset)
        if place != offset:
            text = f"{name} {how} at offset {offset}, but it was at {place} before"
            self._wrong(Anomaly.DUPLICATE, text, partition, (place, offset))

    def _skipped(self, reader: str, partition: str, runs: list[Offsets]) -> list[Violation]:
        final = self._partitions[partition].final
        found = []
        for run in runs:
            if final is None or len(run) < 2:
                continue
            given = set(run)
            passed_over = [offset for offset in final if run[0] < offset < run[-1] and offset not in given]
            found += [
                Violation(Anomaly.SKIPPED, f"{reader} was not given {final[offset]} at offset {offset} of {partition}")
                for offset in sorted(passed_over)
            ]
        return found


def _missing(known: _Partition, final: dict[int, Name]) -> list[Violation]:
    """What a client knew to be there, or was given, and is not there in the end."""
    there = set(final.values())
    end = max(final, default=_NOWHERE)
    found = []
    for name in sorted((known.acknowledged.keys() | known.read) - there):
        offset = known.offsets_of.get(name, _NOWHERE)
        anomaly = Anomaly.UNSEEN if offset > end else Anomaly.LOST
        how = "acknowledged" if name in known.acknowledged else "read"
        found.append(Violation(anomaly, f"{name}, {how} at offset {offset}; the end is {end}"))
    return found


def _reordered(known: _Partition, final: dict[int, Name]) -> list[Violation]:
    last: dict[str, Name] = {}
    found = []
    for offset, name in sorted(final.items()):
        if known.offsets_of[name] != offset:
            continue  # a duplicate, and nothing else
        before = last.setdefault(name.producer, name)
        if name.number < before.number:
            found.append(Violation(Anomaly.REORDERED, f"{name} stands at offset {offset}, after {before}"))
        else:
            last[name.producer] = name
    return found


def _aborted(known: _Partition) -> list[Violation]:
    return [
        Violation(Anomaly.ABORTED_READ, f"{name} was refused and stands at offset {known.offsets_of[name]}")
        for name in sorted(known.refused & known.offsets_of.keys())
    ]


def summary_of(violations: Iterable[Violation]) -> str:
    """How many of each kind: `lost 3, duplicate 1`, or `none`."""
    counted = Counter(violation.anomaly.value for violation in violations)
    return ", ".join(f"{kind} {count}" for kind, count in counted.most_common()) or "none"
