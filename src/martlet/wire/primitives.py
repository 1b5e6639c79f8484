"""The scalar types of the Kafka protocol, read from and written to bytes.

Rules: a reader takes `(data, position)` and returns `(value, next position)`; it checks every length against the
bytes that are there before it slices, and raises ProtocolViolation for anything the protocol does not allow. A writer
appends to a `bytearray`. No reader allocates by a length the peer merely declared.

Integers are big-endian. Variable-length integers carry seven bits per byte, least significant first; the signed ones
are zigzag-coded. "Compact" lengths are an unsigned variable-length integer of n + 1, where 0 stands for null. A tagged
section is a count followed by that many (tag, size, bytes) in strictly ascending order of tag.

Proved by: tests/unit/wire/test_message_primitives.py
"""

from struct import Struct, error
from typing import Final, NoReturn, TypeAlias, TypeVar

from martlet.base.errors import ProtocolViolation

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What a reader reads from; a memoryview must be of single bytes."""

STRING_BYTES_MAX: Final = 32767
"""Longest string in either encoding; the old one cannot say more, and Kafka holds the compact one to the same."""

TAGGED_FIELDS_MAX: Final = 10_000
"""Most fields one tagged section may hold."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UINT32: Final = Struct(">I")


def underflow(position: int) -> NoReturn:
    """The value that starts at `position` does not end before the data does."""
    raise ProtocolViolation(f"the message ends inside the value at byte {position}")


def read_int8(data: Buffer, position: int) -> tuple[int, int]:
    try:
        value = data[position]
    except IndexError:
        underflow(position)
    return value - 256 if value > 127 else value, position + 1


def read_int16(data: Buffer, position: int) -> tuple[int, int]:
    return _read_fixed(_INT16, data, position)


def read_int32(data: Buffer, position: int) -> tuple[int, int]:
    return _read_fixed(_INT32, data, position)


def read_int64(data: Buffer, position: int) -> tuple[int, int]:
    return _read_fixed(_INT64, data, position)


def read_uint32(data: Buffer, position: int) -> tuple[int, int]:
    return _read_fixed(_UINT32, data, position)


def read_uuid(data: Buffer, position: int) -> tuple[bytes, int]:
    """The sixteen bytes of a UUID, copied out of `data`."""
    return _take(data, position, 16)


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned 32-bit integer of at most five bytes."""
    try:
        value = data[position]
        if value < 0x80:
            return value, position + 1
        value &= 0x7F
        for shift in (7, 14, 21, 28):
            position += 1
            byte = data[position]
            if byte < 0x80:
                value |= byte << shift
                if value > 0xFFFF_FFFF:
                    break
                return value, position + 1
            value |= (byte & 0x7F) << shift
    except IndexError:
        underflow(position)
    raise ProtocolViolation(f"the variable-length integer before byte {position + 1} exceeds 32 bits")


def read_uvarlong(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned 64-bit integer of at most ten bytes."""
    value = 0
    try:
        for shift in range(0, 70, 7):
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFF_FFFF_FFFF_FFFF:
                    break
                return value, position
    except IndexError:
        underflow(position)
    raise ProtocolViolation(f"the variable-length integer before byte {position} exceeds 64 bits")


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A signed (zigzag) 32-bit integer of at most five bytes."""
    value, position = read_uvarint(data, position)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """A signed (zigzag) 64-bit integer of at most ten bytes."""
    value, position = read_uvarlong(data, position)
    return (value >> 1) ^ -(value & 1), position


def read_nullable_string(data: Buffer, position: int) -> tuple[str | None, int]:
    """A string behind a 16-bit length, -1 for null."""
    length, position = _read_fixed(_INT16, data, position)
    if length < 0:
        if length == -1:
            return None, position
        raise ProtocolViolation(f"a string of {length} bytes before byte {position}")
    return _take_text(data, position, length)


def read_string(data: Buffer, position: int) -> tuple[str, int]:
    value, end = read_nullable_string(data, position)
    return _not_null(value, position), end


def read_compact_nullable_string(data: Buffer, position: int) -> tuple[str | None, int]:
    length, position = read_uvarint(data, position)
    if length == 0:
        return None, position
    if length > STRING_BYTES_MAX + 1:
        raise ProtocolViolation(f"a string of {length - 1} bytes before byte {position}")
    return _take_text(data, position, length - 1)


def read_compact_string(data: Buffer, position: int) -> tuple[str, int]:
    value, end = read_compact_nullable_string(data, position)
    return _not_null(value, position), end


def read_nullable_bytes(data: Buffer, position: int) -> tuple[bytes | None, int]:
    """Bytes behind a 32-bit length, -1 for null; copied out of `data`."""
    length, position = _read_fixed(_INT32, data, position)
    if length < 0:
        if length == -1:
            return None, position
        raise ProtocolViolation(f"a byte field of {length} bytes before byte {position}")
    return _take(data, position, length)


def read_bytes(data: Buffer, position: int) -> tuple[bytes, int]:
    value, end = read_nullable_bytes(data, position)
    return _not_null(value, position), end


def read_compact_nullable_bytes(data: Buffer, position: int) -> tuple[bytes | None, int]:
    length, position = read_uvarint(data, position)
    if length == 0:
        return None, position
    return _take(data, position, length - 1)


def read_compact_bytes(data: Buffer, position: int) -> tuple[bytes, int]:
    value, end = read_compact_nullable_bytes(data, position)
    return _not_null(value, position), end


def read_array_count(data: Buffer, position: int, element_bytes_min: int) -> tuple[int, int]:
    """The number of elements of an array, -1 for null; refused when the rest of the data cannot hold that many."""
    count, position = _read_fixed(_INT32, data, position)
    if count < -1 or count * element_bytes_min > len(data) - position:
        raise ProtocolViolation(f"an array of {count} elements before byte {position}, which the message cannot hold")
    return count, position


def read_compact_array_count(data: Buffer, position: int, element_bytes_min: int) -> tuple[int, int]:
    """The number of elements of a compact array, -1 for null; refused when the rest of the data cannot hold them."""
    count, position = read_uvarint(data, position)
    count -= 1
    if count * element_bytes_min > len(data) - position:
        raise ProtocolViolation(f"an array of {count} elements before byte {position}, which the message cannot hold")
    return count, position


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """The position after a tagged section of which we want nothing."""
    # Nearly every section is empty; it must not cost a call to the general reader.
    if position < len(data) and data[position] == 0:
        return position + 1
    count, position = read_tagged_count(data, position)
    last_tag = -1
    for _ in range(count):
        last_tag, end, position = read_tag(data, position, last_tag)
        position = end
    return position


def read_tagged_count(data: Buffer, position: int) -> tuple[int, int]:
    """How many fields the tagged section at `position` holds; each takes two bytes at least."""
    count, position = read_uvarint(data, position)
    if count > TAGGED_FIELDS_MAX or count * 2 > len(data) - position:
        raise ProtocolViolation(f"{count} tagged fields before byte {position}, more than allowed or than fit")
    return count, position


def read_tag(data: Buffer, position: int, last_tag: int) -> tuple[int, int, int]:
    """The tag at `position`, where its value ends, and where its value starts; tags must ascend from `last_tag`."""
    tag, position = read_uvarint(data, position)
    if tag <= last_tag:
        raise ProtocolViolation(f"tag {tag} follows tag {last_tag} before byte {position}")
    size, position = read_uvarint(data, position)
    if size > len(data) - position:
        underflow(position)
    return tag, position + size, position


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned variable-length integer."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed 32-bit variable-length integer."""
    write_uvarint(out, (value << 1) ^ (value >> 31))


def write_varlong(out: bytearray, value: int) -> None:
    """Append a signed 64-bit variable-length integer."""
    write_uvarint(out, (value << 1) ^ (value >> 63))


def write_string(out: bytearray, value: str) -> None:
    raw = value.encode()
    out += _INT16.pack(len(raw))
    out += raw


def write_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_string(out: bytearray, value: str) -> None:
    write_compact_bytes(out, value.encode())


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value.encode())


def write_bytes(out: bytearray, value: Buffer) -> None:
    out += _INT32.pack(len(value))
    out += value


def write_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_bytes(out, value)


def write_compact_bytes(out: bytearray, value: Buffer) -> None:
    length = len(value) + 1
    if length < 0x80:
        out.append(length)
    else:
        write_uvarint(out, length)
    out += value


def write_compact_nullable_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_bytes(out, value)


def _read_fixed(layout: Struct, data: Buffer, position: int) -> tuple[int, int]:
    try:
        return layout.unpack_from(data, position)[0], position + layout.size
    except error:
        underflow(position)


def _take(data: Buffer, position: int, length: int) -> tuple[bytes, int]:
    end = position + length
    if end > len(data):
        underflow(position)
    return bytes(data[position:end]), end


def _take_text(data: Buffer, position: int, length: int) -> tuple[str, int]:
    end = position + length
    if end > len(data):
        underflow(position)
    try:
        return str(data[position:end], "utf-8"), end
    except UnicodeDecodeError:
        raise ProtocolViolation(f"the string at byte {position} is not UTF-8") from None


def _not_null(value: T | None, position: int) -> T:
    if value is None:
        raise ProtocolViolation(f"null at byte {position}, where the protocol allows none")
    return value
