"""The record index and the record encoder in the subset of Python that mypyc compiles to C.

Rules: read `layout.py` for what is valid; this module agrees with `plain.py` on every input. It raises ValueError,
which `index.py` translates, and imports nothing of ours, so that it compiles alone. Without compilation it runs far
slower than `plain.py`: `compiled.py` decides whether it may be used.

How it works: native 64-bit integers and `vec` (packed arrays) instead of objects. Plain code with a call per number is
what mypyc turns into the fastest C; tricks that help CPython hurt here. The sizes of all arrays are known before the
scan, except that of the headers, which therefore get a second pass.

Invariants:
1. No byte at or past a record's stop is read, and no stop lies past the span's end; every access is bounds-checked
   besides.
2. Arithmetic cannot overflow: lengths have 32 bits, positions 31, and timestamps are compared before they are added.

Proved by: tests/unit/wire/test_records_index.py, tests/properties/test_records.py
"""

from collections.abc import Sequence

from librt.strings import BytesWriter
from librt.vecs import vec
from mypy_extensions import i32, i64, u8

_LOW_63_BITS: i64 = 0x7FFF_FFFF_FFFF_FFFF


def read_varint(data: bytes, position: i64, stop: i64) -> tuple[i64, i64]:
    """A zigzag integer of at most 32 bits that ends before `stop`."""
    value: i64 = 0
    shift: i64 = 0
    while True:
        if position >= stop:
            raise ValueError("a number is cut short")
        byte = i64(data[position])
        position += 1
        if shift == 28 and byte > 15:
            raise ValueError("a number exceeds 32 bits")
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def read_varlong(data: bytes, position: i64, stop: i64) -> tuple[i64, i64]:
    """A zigzag integer of at most 64 bits that ends before `stop`."""
    value: i64 = 0
    shift: i64 = 0
    while True:
        if position >= stop:
            raise ValueError("a number is cut short")
        byte = i64(data[position])
        position += 1
        if shift == 63 and byte > 1:
            raise ValueError("a number exceeds 64 bits")
        value |= (byte & 127) << shift
        if byte < 128:
            # The shift of a native integer keeps the sign, zigzag wants zeros.
            return ((value >> 1) & _LOW_63_BITS) ^ -(value & 1), position
        shift += 7


def read_field(data: bytes, position: i64, stop: i64) -> tuple[i64, i64, bool]:
    """Start and end of a length-prefixed field, and whether it is null."""
    length, position = read_varint(data, position, stop)
    if length < 0:
        return position, position, True
    end = position + length
    if end > stop:
        raise ValueError("a field is longer than its record")
    return position, end, False


class Columns:
    """The columns of a RecordIndex."""

    def __init__(self, count: i64) -> None:
        self.record_bounds: vec[i32] = vec[i32]([i32(0)] * (2 * count))
        self.bounds: vec[i32] = vec[i32]([i32(0)] * (4 * count))
        self.offsets: vec[i64] = vec[i64]([i64(0)] * count)
        self.timestamps: vec[i64] = vec[i64]([i64(0)] * count)
        self.null_keys: vec[u8] = vec[u8]([u8(0)] * count)
        self.null_values: vec[u8] = vec[u8]([u8(0)] * count)
        self.header_counts: vec[i32] = vec[i32]([i32(0)] * count)
        self.header_bounds: vec[i32] = vec[i32]()
        self.header_null_values: vec[u8] = vec[u8]()


def add_timestamp(base: i64, delta: i64) -> i64:
    if delta > 0:
        if base > _LOW_63_BITS - delta:
            raise ValueError("a timestamp exceeds 64 bits")
    elif base < -_LOW_63_BITS - 1 - delta:
        raise ValueError("a timestamp exceeds 64 bits")
    return base + delta


def scan_span(data: bytes, span: tuple[i64, i64, i64, i64, i64, i64, bool], columns: Columns, row: i64) -> i64:
    """Fill the columns from `row` on with one span's records; returns how many headers they have."""
    position, end, count, base_offset, last_offset_delta, timestamp_ms, one_time = span
    record_bounds = columns.record_bounds
    bounds = columns.bounds
    offsets = columns.offsets
    timestamps = columns.timestamps
    header_counts = columns.header_counts
    previous_delta: i64 = -1
    headers: i64 = 0
    for _ in range(count):
        start = position
        length, position = read_varint(data, position, end)
        stop = position + length
        if length < 0 or stop > end:
            raise ValueError("a record is longer than its batch")
        delta, position = read_varlong(data, position + 1, stop)
        timestamps[row] = timestamp_ms if one_time else add_timestamp(timestamp_ms, delta)
        delta, position = read_varint(data, position, stop)
        if delta <= previous_delta or delta > last_offset_delta:
            raise ValueError("offset deltas do not ascend within the batch")
        previous_delta = delta
        offsets[row] = base_offset + delta
        record_bounds[2 * row] = i32(start)
        record_bounds[2 * row + 1] = i32(stop)
        field, position, is_null = read_field(data, position, stop)
        bounds[4 * row] = i32(field)
        bounds[4 * row + 1] = i32(position)
        if is_null:
            columns.null_keys[row] = 1
        field, position, is_null = read_field(data, position, stop)
        bounds[4 * row + 2] = i32(field)
        bounds[4 * row + 3] = i32(position)
        if is_null:
            columns.null_values[row] = 1
        header_count, position = read_varint(data, position, stop)
        if header_count < 0 or header_count > (stop - position) // 2:
            raise ValueError("more headers than bytes for them")
        if header_count == 0 and position != stop:
            raise ValueError("a record does not end where its length says")
        header_counts[row] = i32(header_count)
        headers += header_count
        position = stop
        row += 1
    if position != end:
        raise ValueError("the records do not end where their batch does")
    return headers


def scan_headers(data: bytes, columns: Columns, count: i64, headers: i64) -> None:
    """Fill the columns of headers; the scan of the records has left them out."""
    header_bounds = vec[i32]([i32(0)] * (4 * headers))
    null_values = vec[u8]([u8(0)] * headers)
    header: i64 = 0
    for row in range(count):
        if columns.header_counts[row] == 0:
            continue
        stop = i64(columns.record_bounds[2 * row + 1])
        header_count, position = read_varint(data, i64(columns.bounds[4 * row + 3]), stop)
        for _ in range(header_count):
            start, position, is_null = read_field(data, position, stop)
            if is_null:
                raise ValueError("a header without a name")
            header_bounds[4 * header] = i32(start)
            header_bounds[4 * header + 1] = i32(position)
            start, position, is_null = read_field(data, position, stop)
            header_bounds[4 * header + 2] = i32(start)
            header_bounds[4 * header + 3] = i32(position)
            if is_null:
                null_values[header] = 1
            header += 1
        if position != stop:
            raise ValueError("a record does not end where its length says")
    columns.header_bounds = header_bounds
    columns.header_null_values = null_values


def index_spans(data: bytes, spans: list[tuple[i64, i64, i64, i64, i64, i64, bool]], count: i64) -> Columns:
    """The columns of all records of the spans, which together claim `count` of them."""
    columns = Columns(count)
    row: i64 = 0
    headers: i64 = 0
    for span in spans:
        headers += scan_span(data, span, columns, row)
        row += span[2]
    if headers > 0:
        scan_headers(data, columns, count, headers)
    return columns


def write_varint(out: BytesWriter, value: i64) -> None:
    """Append a zigzag integer."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 127 or rest < 0:
        out.append(u8((rest & 127) | 128))
        rest = (rest >> 7) & (_LOW_63_BITS >> 6)
    out.append(u8(rest))


def varint_bytes(value: i64) -> i64:
    """How many bytes `write_varint` takes."""
    rest = (value << 1) ^ (value >> 63)
    size: i64 = 1
    while rest > 127 or rest < 0:
        size += 1
        rest = (rest >> 7) & (_LOW_63_BITS >> 6)
    return size


def field_bytes(field: bytes | None) -> i64:
    if field is None:
        return 1
    length = i64(len(field))
    return varint_bytes(length) + length


def write_field(out: BytesWriter, field: bytes | None) -> None:
    if field is None:
        out.append(1)
    else:
        write_varint(out, i64(len(field)))
        out.write(field)


def header_names(headers: Sequence[tuple[str | bytes, bytes | None]]) -> list[bytes]:
    return [name.encode() if isinstance(name, str) else name for name, _ in headers]


def headers_bytes(names: list[bytes], headers: Sequence[tuple[str | bytes, bytes | None]]) -> i64:
    size: i64 = 0
    for name in names:
        size += field_bytes(name)
    for _, value in headers:
        size += field_bytes(value)
    return size


def write_headers(out: BytesWriter, names: list[bytes], headers: Sequence[tuple[str | bytes, bytes | None]]) -> None:
    row: i64 = 0
    for _, value in headers:
        write_field(out, names[row])
        write_field(out, value)
        row += 1  # noqa: SIM113 - a native integer, which enumerate() is not


def subtract_timestamp(timestamp_ms: i64, base: i64) -> i64:
    """The delta of a timestamp; refuses one that needs more than 64 bits."""
    if base < 0:
        if timestamp_ms > _LOW_63_BITS + base:
            raise ValueError("timestamps too far apart for one batch")
    elif timestamp_ms < -_LOW_63_BITS - 1 + base:
        raise ValueError("timestamps too far apart for one batch")
    return timestamp_ms - base


def encode_records(
    records: Sequence[tuple[int, bytes | None, bytes | None, Sequence[tuple[str | bytes, bytes | None]]]],
    base_timestamp: i64,
) -> bytes:
    """The records at offset deltas 0, 1, 2 …, with timestamps relative to `base_timestamp`."""
    out = BytesWriter()
    offset_delta: i64 = 0
    for timestamp_ms, key, value, headers in records:
        delta = subtract_timestamp(i64(timestamp_ms), base_timestamp)
        header_count = i64(len(headers))
        size = 1 + varint_bytes(delta) + varint_bytes(offset_delta) + varint_bytes(header_count)
        size += field_bytes(key) + field_bytes(value)
        if header_count > 0:
            names = header_names(headers)
            write_varint(out, size + headers_bytes(names, headers))
        else:
            names = []
            write_varint(out, size)
        out.append(0)
        write_varint(out, delta)
        write_varint(out, offset_delta)
        write_field(out, key)
        write_field(out, value)
        write_varint(out, header_count)
        if header_count > 0:
            write_headers(out, names, headers)
        offset_delta += 1  # noqa: SIM113
    return out.getvalue()
