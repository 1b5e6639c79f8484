"""What compaction leaves of one batch.

Rules: bytes in, bytes out. Offsets never change: a cleaned batch keeps base offset and last offset delta, only its
records become fewer. A batch that must stay for its offsets or its producer stays as a bare header when all its
records go.

How it works: a record goes when a later one has the same key, or when it has no key. A tombstone (no value) stays until
consumers have had `delete_retention_ms` to see it: the first cleaning writes that deadline into the batch (attribute
bit 6; the base timestamp is then the deadline, as in Kafka), a later one drops the tombstone when it has passed.
A transaction's marker gets such a deadline when none of its data came before it (`transaction_cleaning`), and goes when
that has passed. Batches whose records cannot be opened and control batches of other kinds stay as they are.

Invariants: CLEAN-1 of every key the last record survives, unless it is a tombstone past its deadline; CLEAN-2 cleaning
twice is cleaning once.
Proved by: tests/unit/log/test_compaction.py, tests/properties/test_log_compaction.py
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from martlet.base.errors import ApiError
from martlet.log.transaction_cleaning import TransactionCleaning
from martlet.wire.batch import COMPRESSION_MASK, BatchHeader, rebuild_batch
from martlet.wire.records.encode import varint
from martlet.wire.records.index import RecordIndex, index_records, unpack_batches

DELETE_HORIZON_BIT: Final = 0x40
_OPENED_BYTES_MAX: Final = 64 << 20
_DIGEST_BYTES: Final = 16


def key_digest(key: bytes) -> bytes:
    """A key by a name of fixed size; two keys share one with a chance that can be neglected."""
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


def keys_of_batch(batch: bytes, header: BatchHeader) -> list[tuple[bytes, int]]:
    """Digest and offset of every keyed record; nothing for a batch that cleaning leaves alone."""
    opened = None if header.is_control else _open(batch, header)
    if opened is None:
        return []
    data, index = opened
    bounds = index.bounds
    return [
        (key_digest(data[bounds[4 * row] : bounds[4 * row + 1]]), index.offsets[row])
        for row in range(index.record_count)
        if not index.null_keys[row]
    ]


class BatchCleaner:
    """Cleans batches against the latest offset of each key."""

    __slots__ = ("_delete_retention_ms", "_latest_offset", "_now_ms", "_transactions")

    def __init__(
        self,
        latest_offset: Callable[[bytes], int],
        transactions: TransactionCleaning,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._latest_offset = latest_offset
        self._transactions = transactions
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def clean(self, batch: bytes, header: BatchHeader, *, must_stay: bool) -> bytes | None:
        """The batch to write in place of `batch`; None when nothing of it is left."""
        is_marker_without_data = self._transactions.begin_or_end(header)
        if header.is_control and header.record_count:
            return self._clean_marker(batch, header, must_stay=must_stay) if is_marker_without_data else batch
        if self._transactions.is_aborted(header):
            return _bare(header) if must_stay else None
        opened = _open(batch, header)
        if opened is None:
            return batch if must_stay or header.record_count else None
        data, index = opened
        rows = [row for row in range(index.record_count) if self._stays(data, index, row, header)]
        if not rows:
            return _bare(header) if must_stay else None
        wants_deadline = not header.attributes & DELETE_HORIZON_BIT and any(index.null_values[row] for row in rows)
        if len(rows) == index.record_count and not wants_deadline:
            return batch
        header = header._replace(record_count=len(rows))
        if not header.uses_log_append_time:
            header = header._replace(max_timestamp=max(index.timestamps[row] for row in rows))
        if not wants_deadline:
            slices = [data[index.record_bounds[2 * row] : index.record_bounds[2 * row + 1]] for row in rows]
            return rebuild_batch(header, b"".join(slices))
        return self._with_deadline(header, data, index, rows)

    def _clean_marker(self, batch: bytes, header: BatchHeader, *, must_stay: bool) -> bytes | None:
        if header.attributes & DELETE_HORIZON_BIT:
            if self._now_ms < header.base_timestamp:
                return batch
            return _bare(header) if must_stay else None
        opened = _open(batch, header)
        return batch if opened is None else self._with_deadline(header, *opened, [0])

    def _with_deadline(self, header: BatchHeader, data: bytes, index: RecordIndex, rows: list[int]) -> bytes:
        deadline_ms = self._now_ms + self._delete_retention_ms
        header = header._replace(attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=deadline_ms)
        return rebuild_batch(header, b"".join(_retimed(data, index, row, deadline_ms) for row in rows))

    def _stays(self, data: bytes, index: RecordIndex, row: int, header: BatchHeader) -> bool:
        if index.null_keys[row]:
            return False
        if index.offsets[row] < self._latest_offset(
            key_digest(data[index.bounds[4 * row] : index.bounds[4 * row + 1]])
        ):
            return False
        is_past_deadline = header.attributes & DELETE_HORIZON_BIT and self._now_ms >= header.base_timestamp
        return not (index.null_values[row] and is_past_deadline)


def _open(batch: bytes, header: BatchHeader) -> tuple[bytes, RecordIndex] | None:
    if header.record_count == 0:
        return None
    try:
        data, spans = unpack_batches(batch, max_bytes=_OPENED_BYTES_MAX, check_crc=False)
        return data, index_records(data, spans)
    except ApiError:
        return None


def _bare(header: BatchHeader) -> bytes:
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return rebuild_batch(header._replace(record_count=0, attributes=attributes), b"")


def _retimed(data: bytes, index: RecordIndex, row: int, base_timestamp: int) -> bytes:
    """A record's bytes with its timestamp relative to another base."""
    start, end = index.record_bounds[2 * row], index.record_bounds[2 * row + 1]
    at = _after_varint(data, start)
    rest = _after_varint(data, at + 1)
    body = data[at : at + 1] + varint(index.timestamps[row] - base_timestamp) + data[rest:end]
    return varint(len(body)) + body


def _after_varint(data: bytes, position: int) -> int:
    while data[position] & 0x80:
        position += 1
    return position + 1
