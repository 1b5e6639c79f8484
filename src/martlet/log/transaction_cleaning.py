"""What compaction knows of transactions: which data was aborted, and which markers are not needed any more.

Rules: pure; fed with every batch of the segments that are compacted, in the log's order, from the log's first segment
on. Only decided transactions are compacted.

How it works: aborted data goes at once, whatever its keys. A marker goes when no data of its transaction came before it
and its deadline has passed, as a tombstone's does. The last batch of a producer stays, emptied if need be: the last one
with sequence numbers, or for a producer that has none in its epoch the last marker, which carries the epoch.
Proved by: tests/unit/log/test_transaction_cleaning.py, tests/properties/test_log_transactions.py
"""

from bisect import bisect_right
from collections.abc import Iterable

from martlet.log.aborted_index import AbortedTransaction
from martlet.log.producer_state import ProducerEntry
from martlet.wire.batch import BatchHeader


class LastOfProducers:
    """Which batch must stay for each producer that may still write."""

    __slots__ = ("_epochs", "_offsets")

    def __init__(self, producers: Iterable[tuple[int, ProducerEntry]] = ()) -> None:
        self._offsets: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        for producer_id, entry in producers:
            if entry.batches:
                self._offsets[producer_id] = entry.batches[-1].last_offset
            else:
                self._epochs[producer_id] = entry.epoch

    def has(self, header: BatchHeader) -> bool:
        if header.is_control:
            return self._epochs.get(header.producer_id) == header.producer_epoch
        return self._offsets.get(header.producer_id) == header.last_offset


class TransactionCleaning:
    """One walk over the transactions of a log."""

    __slots__ = ("_aborted", "_with_data")

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for one in aborted:
            self._aborted.setdefault(one.producer_id, []).append(one)
        self._with_data: set[int] = set()
        """Producers of whose open transaction there is data."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch holds data of an aborted transaction."""
        if not header.is_transactional or header.is_control:
            return False
        ended = self._aborted.get(header.producer_id, [])
        number = bisect_right(ended, header.base_offset, key=lambda one: one.first_offset) - 1
        return number >= 0 and header.base_offset < ended[number].last_offset

    def begin_or_end(self, header: BatchHeader) -> bool:
        """Take the next batch; whether it is a marker of a transaction that has no data any more."""
        if not header.is_transactional:
            return False
        if header.is_control:
            has_data = header.producer_id in self._with_data
            self._with_data.discard(header.producer_id)
            return not has_data
        if header.record_count:
            self._with_data.add(header.producer_id)
        return False
