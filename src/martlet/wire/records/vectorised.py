"""The record index on numpy: a Python loop over the lengths of records only, every other field for all records at once.

Rules: the same as `layout.py` states; every gather is preceded by a check that its positions lie inside their records.

How it works: the loop finds where each record starts and stops. Then a column of positions, one per record, walks
through the fields: one varint of all records per step. Headers go by ordinal, first header of every record, second of
every record that has one, and so on, which is fast for the usual few; a batch with many headers in one record is
scanned the plain way.

Proved by: tests/unit/wire/test_records_index.py, tests/properties/test_records.py
"""

from array import array
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from martlet.wire.records.layout import INT64_MAX, INT64_MIN, CorruptRecords, RecordIndex, RecordSpan, check_spans
from martlet.wire.records.plain import read_varint, scan_headers

_Bytes: TypeAlias = NDArray[np.uint8]
_Ints: TypeAlias = NDArray[np.int64]

_TYPES: Final = {"i": np.int32, "q": np.int64, "B": np.uint8}

_VECTORISED_HEADERS_MAX: Final = 32
"""Headers of one record beyond which a step per ordinal costs more than the plain loop."""


def index_records(data: bytes, spans: Sequence[RecordSpan]) -> RecordIndex:
    """Index every record of the spans, or raise CorruptRecords."""
    count = check_spans(len(data), spans)
    starts: list[int] = []
    bodies: list[int] = []
    stops: list[int] = []
    for span in spans:
        _find_records(data, span, starts, bodies, stops)
    raw = np.frombuffer(data, np.uint8)
    stop = np.array(stops, np.int64)
    position = np.array(bodies, np.int64) + 1

    timestamp_delta, position = _read_numbers(raw, position, stop, 64)
    offset_delta, position = _read_numbers(raw, position, stop, 32)
    bounds = np.empty((count, 4), np.int32)
    null_keys, position = _read_fields(raw, position, stop, bounds[:, 0:2])
    null_values, position = _read_fields(raw, position, stop, bounds[:, 2:4])
    header_counts, position = _read_numbers(raw, position, stop, 32)
    if np.any((header_counts < 0) | (header_counts > (stop - position) // 2)):
        raise CorruptRecords("more headers than bytes for them")
    header_bounds, header_null_values = _read_headers(data, raw, position, stop, header_counts)

    record_bounds = np.empty((count, 2), np.int32)
    record_bounds[:, 0] = starts
    record_bounds[:, 1] = stop
    return RecordIndex(
        count,
        _view(record_bounds, "i"),
        _view(bounds, "i"),
        _view(_offsets(spans, offset_delta), "q"),
        _view(_timestamps(spans, timestamp_delta), "q"),
        _view(null_keys, "B"),
        _view(null_values, "B"),
        _view(header_counts, "i"),
        header_bounds,
        header_null_values,
    )


def _find_records(data: bytes, span: RecordSpan, starts: list[int], bodies: list[int], stops: list[int]) -> None:
    """Add where each record of the span starts, where what its length counts starts, and where it stops."""
    position, end = span.start, span.end
    for _ in range(span.record_count):
        starts.append(position)
        # The one- and two-byte lengths of nearly all records, without a call.
        if position + 1 < end and data[position + 1] < 0x80:
            first = data[position]
            if first < 0x80:
                length, position = (first >> 1) ^ -(first & 1), position + 1
            else:
                value = first & 0x7F | data[position + 1] << 7
                length, position = (value >> 1) ^ -(value & 1), position + 2
        else:
            length, position = read_varint(data, position, end)
        bodies.append(position)
        position += length
        if length < 0 or position > end:
            raise CorruptRecords(f"a record of {length} bytes ends at byte {position}")
        stops.append(position)
    if position != end:
        raise CorruptRecords(f"the records end at byte {position} instead of {end}")


def _read_numbers(raw: _Bytes, position: _Ints, stop: _Ints, bits: int) -> tuple[_Ints, _Ints]:
    """One zigzag integer at each position; returns them and the positions after them."""
    if np.any(position >= stop):
        raise CorruptRecords("a number is cut short")
    byte = raw[position].astype(np.uint64)
    value = byte & np.uint64(0x7F)
    after = position + 1
    more = np.flatnonzero(byte > 0x7F)
    shift = 7
    while more.size:
        if shift >= bits:
            raise CorruptRecords("a number is too long")
        at = after[more]
        if np.any(at >= stop[more]):
            raise CorruptRecords("a number is cut short")
        byte = raw[at].astype(np.uint64)
        if shift + 7 > bits and np.any(byte >> np.uint64(bits - shift)):
            raise CorruptRecords(f"a number exceeds {bits} bits")
        value[more] |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        after[more] = at + 1
        more = more[byte > 0x7F]
        shift += 7
    decoded = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
    return decoded, after


def _read_fields(
    raw: _Bytes, position: _Ints, stop: _Ints, bounds: NDArray[np.int32]
) -> tuple[NDArray[np.uint8], _Ints]:
    """One length-prefixed field at each position; fills start and end, returns which are null and what follows."""
    length, position = _read_numbers(raw, position, stop, 32)
    end = position + np.maximum(length, 0)
    if np.any(end > stop):
        raise CorruptRecords("a field is longer than its record")
    bounds[:, 0] = position
    bounds[:, 1] = end
    return (length < 0).astype(np.uint8), end


def _read_headers(
    data: bytes, raw: _Bytes, position: _Ints, stop: _Ints, counts: _Ints
) -> tuple["memoryview[int]", "memoryview[int]"]:
    total = int(counts.sum())
    if total and int(counts.max()) > _VECTORISED_HEADERS_MAX:
        return _read_headers_one_by_one(data, position, stop, counts)
    bounds = np.empty((total, 4), np.int32)
    null_values = np.empty(total, np.uint8)
    first_row = np.cumsum(counts) - counts
    for ordinal in range(int(counts.max()) if total else 0):
        records = np.flatnonzero(counts > ordinal)
        rows = first_row[records] + ordinal
        found = np.empty((len(records), 4), np.int32)
        is_null, at = _read_fields(raw, position[records], stop[records], found[:, 0:2])
        if is_null.any():
            raise CorruptRecords("a header without a name")
        null_values[rows], at = _read_fields(raw, at, stop[records], found[:, 2:4])
        bounds[rows] = found
        position[records] = at
    if np.any(position != stop):
        raise CorruptRecords("a record does not end where its length says")
    return _view(bounds, "i"), _view(null_values, "B")


def _read_headers_one_by_one(
    data: bytes, position: _Ints, stop: _Ints, counts: _Ints
) -> tuple["memoryview[int]", "memoryview[int]"]:
    bounds = array("i")
    null_values = bytearray()
    for at, end, count in zip(position.tolist(), stop.tolist(), counts.tolist(), strict=True):
        if scan_headers(data, at, end, count, bounds, null_values) != end:
            raise CorruptRecords("a record does not end where its length says")
    return memoryview(bounds), memoryview(null_values)


def _offsets(spans: Sequence[RecordSpan], delta: _Ints) -> _Ints:
    counts = [span.record_count for span in spans]
    ascends = np.ones(len(delta), np.bool_)
    ascends[1:] = delta[1:] > delta[:-1]
    firsts = np.cumsum([0, *counts])[:-1]
    ascends[firsts[np.array(counts, np.int64) > 0]] = True
    highest = np.repeat(np.array([span.last_offset_delta for span in spans], np.int64), counts)
    if np.any((delta < 0) | (delta > highest) | ~ascends):
        raise CorruptRecords("offset deltas do not ascend within the batch")
    return np.repeat(np.array([span.base_offset for span in spans], np.int64), counts) + delta


def _timestamps(spans: Sequence[RecordSpan], delta: _Ints) -> _Ints:
    counts = [span.record_count for span in spans]
    base = np.repeat(np.array([span.timestamp_ms for span in spans], np.int64), counts)
    fixed = np.repeat(np.array([span.uses_log_append_time for span in spans], np.bool_), counts)
    delta = np.where(fixed, 0, delta)
    # Compared before adding, because the sum would wrap around silently.
    too_high = (delta > 0) & (base > INT64_MAX - np.maximum(delta, 0))
    too_low = (delta < 0) & (base < INT64_MIN - np.minimum(delta, 0))
    if np.any(too_high | too_low):
        raise CorruptRecords("a timestamp exceeds 64 bits")
    return base + delta


def _view(numbers: NDArray[Any], code: Literal["i", "q", "B"]) -> "memoryview[int]":
    """The numbers as a flat view of the item type that the other implementations have."""
    if numbers.size == 0:
        return memoryview(array(code))
    flat = np.ascontiguousarray(numbers, _TYPES[code]).reshape(-1)
    return flat.data.cast("B").cast(code)
