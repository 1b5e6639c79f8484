"""What the three implementations of the record index agree on: their input, their output, their one error.

Rules: types and the checks that do not need the bytes. What a valid record is, is said once, here:

    length varint · attributes i8 · timestamp delta varlong · offset delta varint ·
    key length varint (negative for null) + bytes · value likewise · header count varint ·
    per header: key length varint (not negative) + bytes, value length varint (negative for null) + bytes

RECL-1 A varint has at most five bytes and 32 bits, a varlong ten bytes and 64 bits; both are zigzag.
RECL-2 Everything of a record lies within its length and fills it exactly; the records fill their span exactly.
RECL-3 Offset deltas ascend strictly from 0 or more to at most the batch's `last_offset_delta`.
RECL-4 base timestamp + delta fits 64 bits, unless the batch has one time for all its records.

Anything else is CorruptRecords, in every implementation.

Proved by: tests/unit/wire/test_records_index.py, tests/properties/test_records.py
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from martlet.base.errors import ApiError, ErrorCode

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, two lengths and a header count of one byte each."""

INDEXED_BYTES_MAX: Final = (1 << 31) - 1
"""Positions are 32-bit."""

INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)

Numbers: TypeAlias = "memoryview[int]"
"""A typed view of native integers: reads as a sequence, converts to numpy or Arrow without a copy."""


class CorruptRecords(ApiError):
    """The bytes are not the records they claim to be."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"the records cannot be read: {reason}")


class RecordSpan(NamedTuple):
    """Where the uncompressed records of one batch lie, and what their deltas are relative to."""

    start: int
    end: int
    record_count: int
    base_offset: int
    last_offset_delta: int
    timestamp_ms: int
    """What the deltas are added to, or the time of all records alike."""
    uses_log_append_time: bool


class RecordIndex(NamedTuple):
    """Positions and numbers of all records of some spans, row after row; positions count from the data's start.

    Item type in parentheses: i is 32-bit, q is 64-bit, B is a byte that is 0 or 1. All views are read-only in spirit.
    """

    record_count: int
    record_bounds: Numbers
    """(i) two a record: where its length begins, where the record ends."""
    bounds: Numbers
    """(i) four a record, ascending: key start, key end, value start, value end; start = end for null."""
    offsets: Numbers
    """(q)"""
    timestamps: Numbers
    """(q) milliseconds."""
    null_keys: Numbers
    """(B)"""
    null_values: Numbers
    """(B)"""
    header_counts: Numbers
    """(i)"""
    header_bounds: Numbers
    """(i) four a header: key start, key end, value start, value end."""
    header_null_values: Numbers
    """(B)"""


def check_spans(data_bytes: int, spans: Sequence[RecordSpan]) -> int:
    """How many records the spans claim, after making sure that their bytes could hold them."""
    if data_bytes > INDEXED_BYTES_MAX:
        raise CorruptRecords(f"{data_bytes} bytes at once, more than {INDEXED_BYTES_MAX}")
    total = 0
    for start, end, count, base_offset, last_offset_delta, timestamp_ms, _ in spans:
        if not 0 <= start <= end <= data_bytes:
            raise CorruptRecords(f"a batch from byte {start} to {end} in {data_bytes} bytes")
        if not 0 <= count <= (end - start) // RECORD_BYTES_MIN:
            raise CorruptRecords(f"{count} records in {end - start} bytes")
        if not 0 <= base_offset <= INT64_MAX - max(last_offset_delta, 0):
            raise CorruptRecords(f"a batch at offset {base_offset}")
        if not INT64_MIN <= timestamp_ms <= INT64_MAX:
            raise CorruptRecords(f"a batch of time {timestamp_ms}")
        if count == 0 and start != end:
            raise CorruptRecords(f"{end - start} bytes for no records")
        total += count
    return total
