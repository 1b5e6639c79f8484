"""The transactional ids of one shard: the state, its only writer, and lookups; no rules.

Invariants:
TXN-1 The children of an owner are exactly those in the table; their count and bytes are those of the open ones.
TXN-2 Only `replay` changes the table.

Proved by: tests/unit/transactions/test_machine.py, tests/properties/test_transactions_machine.py
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from martlet.transactions.names import shard_key
from martlet.transactions.records import TransactionRecord, TransactionRemoved, TransactionStored
from martlet.transactions.states import TransactionState

DECISION_BYTES_MAX: Final = 4 << 20
"""Estimated bytes of the records of all open children of one group."""

_NO_CHILDREN: Final[Mapping[str, TransactionStored]] = {}
_RECORD_BYTES: Final = 128
_TOPIC_BYTES: Final = 8
_RECORDS_PER_STEP: Final = 200
"""Of one step of a snapshot."""


class _Children:
    """Those of one owner."""

    __slots__ = ("by_id", "open_bytes", "open_count")

    def __init__(self) -> None:
        self.by_id: dict[str, TransactionStored] = {}
        self.open_count = 0
        self.open_bytes = 0

    def put(self, child: TransactionStored) -> None:
        self.remove(child.transactional_id)
        self.by_id[child.transactional_id] = child
        self._count(child, 1)

    def remove(self, transactional_id: str) -> None:
        before = self.by_id.pop(transactional_id, None)
        if before is not None:
            self._count(before, -1)

    def _count(self, child: TransactionStored, sign: int) -> None:
        if child.state is TransactionState.ONGOING:
            self.open_count += sign
            self.open_bytes += sign * record_bytes(child)


class TransactionTable:
    """Owned by the transactions machine."""

    __slots__ = ("_by_id", "_children")

    def __init__(self) -> None:
        self._by_id: dict[str, TransactionStored] = {}
        self._children: dict[str, _Children] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, transactional_id: str) -> TransactionStored | None:
        return self._by_id.get(transactional_id)

    def all(self) -> Iterator[TransactionStored]:
        """Every id, in the order of their first records."""
        return iter(self._by_id.values())

    def children(self, owner: str) -> Mapping[str, TransactionStored]:
        """The children of a group, by their ids."""
        children = self._children.get(owner)
        return _NO_CHILDREN if children is None else children.by_id

    def has_place_for_child(self, owner: str, grown: TransactionStored, count_max: int) -> bool:
        """Whether one decision could hold all open children of the owner if this one stood so."""
        children = self._children.get(owner, _Children())
        before = children.by_id.get(grown.transactional_id)
        is_open = before is not None and before.state is TransactionState.ONGOING
        count = children.open_count + (not is_open)
        size = (
            children.open_bytes + record_bytes(grown) - (record_bytes(before) if before is not None and is_open else 0)
        )
        return count <= count_max and size <= DECISION_BYTES_MAX

    def live_records(self) -> Iterator[Sequence[TransactionRecord]]:
        """The record of every id, some at each step; ids may come and go between the steps."""
        ids = tuple(self._by_id)
        for start in range(0, len(ids), _RECORDS_PER_STEP):
            step = (self._by_id.get(transactional_id) for transactional_id in ids[start : start + _RECORDS_PER_STEP])
            yield [stored for stored in step if stored is not None]

    def replay(self, record: TransactionRecord) -> None:
        """Take a record over, or forget an id that may be gone already."""
        transactional_id = record.transactional_id
        owner = shard_key(transactional_id)
        if isinstance(record, TransactionRemoved):
            self._by_id.pop(transactional_id, None)
            children = self._children.get(owner)
            if children is not None:
                children.remove(transactional_id)
                if not children.by_id:
                    del self._children[owner]
            return
        self._by_id[transactional_id] = record
        if owner != transactional_id:
            self._children.setdefault(owner, _Children()).put(record)


def record_bytes(stored: TransactionStored) -> int:
    """An upper bound of the record's size in the log, for bounding a decision."""
    topics = {partition.topic for partition in stored.partitions}
    names = sum(4 * len(topic) + _TOPIC_BYTES for topic in topics)
    return _RECORD_BYTES + 4 * len(stored.transactional_id) + names + 4 * len(stored.partitions)
