"""The record index in plain Python: slow, without dependencies, and the reading of `layout.py` that the others follow.

Rules: nothing is read outside a span, and nothing of a record outside its length.

Proved by: tests/unit/wire/test_records_index.py, tests/properties/test_records.py
"""

from array import array
from collections.abc import Sequence

from martlet.wire.records.layout import INT64_MAX, INT64_MIN, CorruptRecords, RecordIndex, RecordSpan, check_spans


def index_records(data: bytes, spans: Sequence[RecordSpan]) -> RecordIndex:
    """Index every record of the spans, or raise CorruptRecords."""
    count = check_spans(len(data), spans)
    rows = _Rows()
    for span in spans:
        _scan_span(data, span, rows)
    return rows.finish(count)


class _Rows:
    """The columns while they grow."""

    def __init__(self) -> None:
        self.record_bounds = array("i")
        self.bounds = array("i")
        self.offsets = array("q")
        self.timestamps = array("q")
        self.null_keys = bytearray()
        self.null_values = bytearray()
        self.header_counts = array("i")
        self.header_bounds = array("i")
        self.header_null_values = bytearray()

    def finish(self, count: int) -> RecordIndex:
        return RecordIndex(
            count,
            memoryview(self.record_bounds),
            memoryview(self.bounds),
            memoryview(self.offsets),
            memoryview(self.timestamps),
            memoryview(self.null_keys),
            memoryview(self.null_values),
            memoryview(self.header_counts),
            memoryview(self.header_bounds),
            memoryview(self.header_null_values),
        )


def _scan_span(data: bytes, span: RecordSpan, rows: _Rows) -> None:
    position = span.start
    previous_delta = -1
    for _ in range(span.record_count):
        start = position
        length, position = read_varint(data, position, span.end)
        stop = position + length
        if length < 0 or stop > span.end:
            raise CorruptRecords(f"a record of {length} bytes at byte {position}")
        timestamp_delta, position = _read_varlong(data, position + 1, stop)
        offset_delta, position = read_varint(data, position, stop)
        if not previous_delta < offset_delta <= span.last_offset_delta:
            raise CorruptRecords(f"offset delta {offset_delta} after {previous_delta}")
        previous_delta = offset_delta
        rows.record_bounds.extend((start, stop))
        rows.timestamps.append(_timestamp(span, timestamp_delta))
        rows.offsets.append(span.base_offset + offset_delta)
        is_null, position = _scan_field(data, position, stop, rows.bounds)
        rows.null_keys.append(is_null)
        is_null, position = _scan_field(data, position, stop, rows.bounds)
        rows.null_values.append(is_null)
        header_count, position = read_varint(data, position, stop)
        if not 0 <= header_count <= (stop - position) // 2:
            raise CorruptRecords(f"{header_count} headers in {stop - position} bytes")
        rows.header_counts.append(header_count)
        position = scan_headers(data, position, stop, header_count, rows.header_bounds, rows.header_null_values)
        if position != stop:
            raise CorruptRecords(f"a record ends at byte {position} instead of {stop}")
    if position != span.end:
        raise CorruptRecords(f"the records end at byte {position} instead of {span.end}")


def scan_headers(
    data: bytes, position: int, stop: int, count: int, bounds: "array[int]", null_values: bytearray
) -> int:
    """Index `count` headers and return the position after them."""
    for _ in range(count):
        is_null, position = _scan_field(data, position, stop, bounds)
        if is_null:
            raise CorruptRecords(f"a header without a name before byte {position}")
        is_null, position = _scan_field(data, position, stop, bounds)
        null_values.append(is_null)
    return position


def _scan_field(data: bytes, position: int, stop: int, bounds: "array[int]") -> tuple[bool, int]:
    """Add start and end of a length-prefixed field; tells whether it is null, and the position after it."""
    length, position = read_varint(data, position, stop)
    end = position + max(length, 0)
    if end > stop:
        raise CorruptRecords(f"a field of {length} bytes at byte {position}")
    bounds.append(position)
    bounds.append(end)
    return length < 0, end


def _timestamp(span: RecordSpan, delta: int) -> int:
    if span.uses_log_append_time:
        return span.timestamp_ms
    timestamp = span.timestamp_ms + delta
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise CorruptRecords(f"timestamp {timestamp}")
    return timestamp


def read_varint(data: bytes, position: int, stop: int) -> tuple[int, int]:
    """A zigzag integer of at most 32 bits that ends before `stop`."""
    return _read_number(data, position, stop, 32)


def _read_varlong(data: bytes, position: int, stop: int) -> tuple[int, int]:
    return _read_number(data, position, stop, 64)


def _read_number(data: bytes, position: int, stop: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= stop:
            raise CorruptRecords(f"a number at byte {position} is cut short")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise CorruptRecords(f"a number before byte {position} is too long")
    if value >> bits:
        raise CorruptRecords(f"a number before byte {position} exceeds {bits} bits")
    return (value >> 1) ^ -(value & 1), position
