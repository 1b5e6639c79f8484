"""Records to bytes: the inverse of the index.

Rules: bytes in, bytes out; no batch header, no compression (`wire/batch.py` adds both). The compiled encoder of
`native.py` does the work where it is there; the one here is its plain twin.

How it works: a record is its length, then attributes (always 0), timestamp delta, offset delta, key, value and headers,
all lengths and deltas as zigzag variable-length integers, -1 for null. Small integers come from a table, because nearly
all of them are small and what encoding costs in Python is the making of them.

Proved by: tests/unit/wire/test_records_encode.py, tests/properties/test_records.py
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from martlet.wire.records.compiled import IS_COMPILED

HeaderFields: TypeAlias = tuple[str | bytes, bytes | None]
RecordFields: TypeAlias = tuple[int, bytes | None, bytes | None, Sequence[HeaderFields]]
"""timestamp_ms, key, value, headers."""


_INT64_MAX: Final = (1 << 63) - 1


def encode_records(records: Sequence[RecordFields], base_timestamp: int) -> bytes:
    """The records at offset deltas 0, 1, 2 …, with timestamps relative to `base_timestamp`.

    Raises ValueError when a timestamp is more than 64 bits away from it.
    """
    if IS_COMPILED:
        from martlet.wire.records import native

        return native.encode_records(records, base_timestamp)
    return encode_records_plain(records, base_timestamp)


def varint(value: int) -> bytes:
    """A zigzag variable-length integer of up to 64 bits."""
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise ValueError(f"{value} does not fit 64 bits")
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_TABLE_SIZE: Final = 2048
_TABLE: Final = [varint(value) for value in range(_TABLE_SIZE)]
_NULL: Final = varint(-1)
_NOTHING: Final = b""


def encode_records_plain(records: Sequence[RecordFields], base_timestamp: int) -> bytes:
    """`encode_records` without the compiler."""
    parts: list[bytes] = []
    join = _NOTHING.join
    for offset_delta, (timestamp_ms, key, value, headers) in enumerate(records):
        body = join(
            (
                b"\x00",
                _varint(timestamp_ms - base_timestamp),
                _varint(offset_delta),
                _NULL if key is None else _varint(len(key)),
                key or _NOTHING,
                _NULL if value is None else _varint(len(value)),
                value or _NOTHING,
                _encode_headers(headers) if headers else b"\x00",
            )
        )
        parts.append(_varint(len(body)))
        parts.append(body)
    return join(parts)


def _varint(value: int) -> bytes:
    return _TABLE[value] if 0 <= value < _TABLE_SIZE else varint(value)


def _encode_headers(headers: Sequence[HeaderFields]) -> bytes:
    fields = [_varint(len(headers))]
    for name, value in headers:
        key = name.encode() if isinstance(name, str) else name
        fields += (_varint(len(key)), key)
        fields += (_NULL,) if value is None else (_varint(len(value)), value)
    return _NOTHING.join(fields)
