"""What transactional producers were answered and readers of committed data were given, and the judge over it.

Rules: no I/O, no clock, no chance; reports may come from any thread and only add. `judge` is asked once, when all has
healed and every partition has been read from its beginning to its end by a reader of committed data (`final`).

How it works: a value names the producer, its transaction, its place in it, and the input message it was made from, if
any. A transaction ends in one of three ways: *done* (its commit was answered), *given up* (its abort was answered, or
no commit was ever sent), or unknown. An unknown one may be there or not, but whole.

The anomalies:
1. ABORTED_READ: a value of a transaction that was given up, anywhere, at any time.
2. TORN: of a transaction that is done or unknown, some values are there and some are not.
3. LOST: a transaction is done and nothing of it is there; or an input that the group has passed has no output.
4. DUPLICATE: a value at two offsets, or an input with two outputs.
5. ORDER: a producer's values of one partition in another order than it wrote them.
6. MOVED: two values at one offset, or a reader that was given an offset at or below one it had.
7. SKIPPED: a reader that only goes forward was not given a value below one that it was given.
8. OFFSETS: the group's position is none that a committed transaction has left.
9. STRANGE: a value that was never written.

Partitions are not compared with each other while the run goes on: a reader may see one of them earlier than another.

Proved by: tests/unit/sim/test_transaction_history.py
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

_TEXT_BYTES_SHOWN: Final = 60
_START: Final = -1


class TransactionAnomaly(Enum):
    """What can be wrong; the module's head says what each means."""

    ABORTED_READ = "aborted read"
    TORN = "torn transaction"
    LOST = "lost"
    DUPLICATE = "duplicate"
    ORDER = "order"
    MOVED = "moved"
    SKIPPED = "skipped"
    OFFSETS = "offsets"
    STRANGE = "strange"


class TransactionViolation(NamedTuple):
    anomaly: TransactionAnomaly
    text: str

    def __str__(self) -> str:
        return f"{self.anomaly.value}: {self.text}"


class Place(NamedTuple):
    """An input message: partition and offset."""

    partition: str
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"


class End(Enum):
    """How a transaction ended, as far as its producer knows."""

    GIVEN_UP = "given up"
    UNKNOWN = "unknown"
    DONE = "done"


@dataclass
class Transaction:
    """One of one producer, with all it has written and the positions it leaves if it is committed."""

    producer: str
    number: int
    end: End = End.GIVEN_UP
    values: list[tuple[str, bytes]] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.producer}/{self.number} ({self.end.value})"


@dataclass
class _Partition:
    at: dict[int, bytes] = field(default_factory=dict)
    offset_of: dict[bytes, int] = field(default_factory=dict)
    final: dict[int, bytes] | None = None


class TransactionHistory:
    """What happened to the transactions of one run."""

    def __init__(self) -> None:
        self._transactions: dict[str, list[Transaction]] = defaultdict(list)
        self._written: dict[tuple[str, bytes], tuple[Transaction, Place | None]] = {}
        self._partitions: dict[str, _Partition] = defaultdict(_Partition)
        self._runs: dict[tuple[str, str], list[list[int]]] = defaultdict(list)
        self._found: list[TransactionViolation] = []

    # --- producers

    def begin(self, producer: str) -> Transaction:
        """The producer begins another one; without more it is given up."""
        transactions = self._transactions[producer]
        transactions.append(Transaction(producer, len(transactions)))
        return transactions[-1]

    def writing(self, transaction: Transaction, partition: str, source: Place | None = None) -> bytes:
        """The value that the transaction is about to write there, made from that input."""
        number = len(transaction.values)
        value = f"{transaction.producer}/{transaction.number}/{number} {source or '-'}".encode()
        transaction.values.append((partition, value))
        self._written[partition, value] = (transaction, source)
        return value

    def leaving(self, transaction: Transaction, partition: str, position: int) -> None:
        """The group is to go on there if the transaction is committed."""
        transaction.positions[partition] = position

    def committing(self, transaction: Transaction) -> None:
        """From now on it may be committed."""
        transaction.end = End.UNKNOWN

    def committed(self, transaction: Transaction) -> None:
        """The commit was answered."""
        transaction.end = End.DONE

    def aborted(self, transaction: Transaction) -> None:
        """The abort was answered: even if a commit was sent before, it has not happened."""
        transaction.end = End.GIVEN_UP

    # --- readers of committed data

    def sought(self, reader: str, partition: str) -> None:
        """This reader goes on from another place."""
        self._runs[reader, partition].append([])

    def saw(self, reader: str, partition: str, offset: int, value: bytes) -> None:
        """This reader was given that."""
        runs = self._runs[reader, partition]
        if not runs:
            runs.append([])
        if runs[-1] and offset <= runs[-1][-1]:
            self._wrong(TransactionAnomaly.MOVED, f"{reader} was given {partition}/{offset} after {runs[-1][-1]}")
        runs[-1].append(offset)
        self._stands(reader, partition, offset, value)

    def final(self, partition: str, messages: Iterable[tuple[int, bytes]]) -> None:
        """All committed data of a partition, when all was over."""
        content: dict[int, bytes] = {}
        for offset, value in messages:
            content[offset] = value
            self._stands("the final reader", partition, offset, value)
        self._partitions[partition].final = content

    def complain(self, text: str) -> None:
        """Something that only the caller could notice."""
        self._wrong(TransactionAnomaly.STRANGE, text)

    # --- the judgement

    def counts(self) -> dict[str, int]:
        """How many transactions ended how, and how many values are there."""
        ends = [transaction.end for some in self._transactions.values() for transaction in some]
        return {
            **{end.value: ends.count(end) for end in End},
            "values": sum(len(known.final or ()) for known in self._partitions.values()),
        }

    def found_so_far(self) -> list[TransactionViolation]:
        """What is wrong already, whatever may still come."""
        return list(self._found)

    def judge(
        self, positions: Mapping[str, int] | None = None, inputs: Iterable[Place] = ()
    ) -> list[TransactionViolation]:
        """Everything that is wrong; the group stands at `positions` and should have passed all `inputs`."""
        found = [*self._found, *self._aborted_reads()]
        for partition, known in sorted(self._partitions.items()):
            if known.final is None:
                found.append(TransactionViolation(TransactionAnomaly.STRANGE, f"{partition} was not read back"))
        there = {(name, value) for name, known in self._partitions.items() for value in (known.final or {}).values()}
        for transactions in self._transactions.values():
            for transaction in transactions:
                found += _judge_transaction(transaction, there)
        for partition, known in sorted(self._partitions.items()):
            found += self._judge_order(partition, known.final or {})
        outputs = self._outputs(there)
        found += _twice(outputs)
        found += self._judge_positions(outputs, positions or {})
        found += [
            TransactionViolation(TransactionAnomaly.LOST, f"input {place} has no output")
            for place in inputs
            if place not in outputs
        ]
        for (reader, partition), runs in sorted(self._runs.items()):
            found += self._judge_runs(reader, partition, runs)
        return list(dict.fromkeys(found))

    def _judge_order(self, partition: str, final: dict[int, bytes]) -> list[TransactionViolation]:
        last: dict[str, tuple[int, int]] = {}
        found = []
        for offset, value in sorted(final.items()):
            known = self._written.get((partition, value))
            if known is None:
                continue
            transaction, place = known[0], (known[0].number, _number_of(value))
            if place < last.get(transaction.producer, (_START, _START)):
                text = f"{value!r} stands at {partition}/{offset}, after what {transaction.producer} wrote later"
                found.append(TransactionViolation(TransactionAnomaly.ORDER, text))
            last[transaction.producer] = place
        return found

    def _outputs(self, there: set[tuple[str, bytes]]) -> dict[Place, set[str]]:
        """The transactions through which each input went."""
        outputs: dict[Place, set[str]] = defaultdict(set)
        for key in there:
            known = self._written.get(key)
            if known is not None and known[1] is not None:
                outputs[known[1]].add(str(known[0]))
        return outputs

    def _judge_positions(
        self, outputs: Mapping[Place, set[str]], positions: Mapping[str, int]
    ) -> list[TransactionViolation]:
        found = []
        for partition, position in positions.items():
            possible = {
                transaction.positions[partition]
                for some in self._transactions.values()
                for transaction in some
                if transaction.end is not End.GIVEN_UP and partition in transaction.positions
            }
            if position > 0 and position not in possible:
                text = f"the group is at {partition}:{position}, where no committed transaction has left it"
                found.append(TransactionViolation(TransactionAnomaly.OFFSETS, text))
            beyond = [place.offset for place in outputs if place.partition == partition and place.offset >= position]
            if beyond:
                text = f"the group is at {partition}:{position}, and {min(beyond)} has an output"
                found.append(TransactionViolation(TransactionAnomaly.OFFSETS, text))
        return found

    def _judge_runs(self, reader: str, partition: str, runs: list[list[int]]) -> list[TransactionViolation]:
        final = self._partitions[partition].final or {}
        found = []
        for run in runs:
            if len(run) < 2:
                continue
            given = set(run)
            for offset in sorted(final):
                if run[0] < offset < run[-1] and offset not in given:
                    text = f"{reader} was not given {final[offset]!r} at {partition}/{offset}"
                    found.append(TransactionViolation(TransactionAnomaly.SKIPPED, text))
        return found

    def _stands(self, reader: str, partition: str, offset: int, value: bytes) -> None:
        shown = value[:_TEXT_BYTES_SHOWN]
        known = self._partitions[partition]
        written = self._written.get((partition, value))
        if written is None:
            self._wrong(TransactionAnomaly.STRANGE, f"{partition}/{offset}: {reader} was given {shown!r}")
            return
        first = known.at.setdefault(offset, value)
        if first != value:
            text = f"{partition}/{offset}: {reader} was given {shown!r}, it was {first!r} before"
            self._wrong(TransactionAnomaly.MOVED, text)
        place = known.offset_of.setdefault(value, offset)
        if place != offset:
            self._wrong(TransactionAnomaly.DUPLICATE, f"{shown!r} stands at {partition}/{place} and {offset}")

    def _aborted_reads(self) -> list[TransactionViolation]:
        """Values of transactions that were given up, given to any reader."""
        return [
            TransactionViolation(TransactionAnomaly.ABORTED_READ, f"{value!r} of {transaction} in {partition}")
            for partition, known in sorted(self._partitions.items())
            for value in known.offset_of
            for transaction in [self._written[partition, value][0]]
            if transaction.end is End.GIVEN_UP
        ]

    def _wrong(self, anomaly: TransactionAnomaly, text: str) -> None:
        self._found.append(TransactionViolation(anomaly, text))


def _judge_transaction(transaction: Transaction, there: set[tuple[str, bytes]]) -> list[TransactionViolation]:
    if transaction.end is End.GIVEN_UP or not transaction.values:
        return []
    present = [value for value in transaction.values if value in there]
    if not present and transaction.end is End.DONE:
        return [TransactionViolation(TransactionAnomaly.LOST, f"nothing of {transaction} is there")]
    if present and len(present) < len(transaction.values):
        missing = next(value for value in transaction.values if value not in there)
        text = f"{len(present)} of {len(transaction.values)} values of {transaction} are there; not {missing}"
        return [TransactionViolation(TransactionAnomaly.TORN, text)]
    return []


def _twice(outputs: Mapping[Place, set[str]]) -> list[TransactionViolation]:
    return [
        TransactionViolation(TransactionAnomaly.DUPLICATE, f"input {place} went through {sorted(through)}")
        for place, through in sorted(outputs.items())
        if len(through) > 1
    ]


def _number_of(value: bytes) -> int:
    return int(value.partition(b" ")[0].rpartition(b"/")[2])
