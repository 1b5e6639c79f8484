"""The scalar readers at their borders; what writers write, readers read."""

from collections.abc import Callable
from typing import Any

import pytest

from martlet.base.errors import ProtocolViolation
from martlet.wire import primitives as p


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"\x00", 0), (b"\x7f", 127), (b"\x80\x01", 128), (b"\xff\x7f", 16383), (b"\xff\xff\xff\xff\x0f", 2**32 - 1)],
)
def test_uvarint_is_read_and_written(data: bytes, value: int) -> None:
    assert p.read_uvarint(b"." + data + b".", 1) == (value, 1 + len(data))
    out = bytearray()
    p.write_uvarint(out, value)
    assert out == data


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\xff\xff\xff\xff\xff\x00", b"\x80\x80\x80\x80\x80\x80"])
def test_a_uvarint_beyond_32_bits_or_five_bytes_is_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="32 bits"):
        p.read_uvarint(data, 0)


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x00"])
def test_a_uvarlong_beyond_64_bits_or_ten_bytes_is_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="64 bits"):
        p.read_uvarlong(data, 0)


@pytest.mark.parametrize("value", [0, -1, 1, -64, 64, 2**31 - 1, -(2**31)])
def test_signed_varints_are_zigzag(value: int) -> None:
    out = bytearray()
    p.write_varint(out, value)
    assert p.read_varint(out, 0) == (value, len(out))


@pytest.mark.parametrize("value", [0, -1, 1, 2**63 - 1, -(2**63)])
def test_signed_varlongs_are_zigzag(value: int) -> None:
    out = bytearray()
    p.write_varlong(out, value)
    assert p.read_varlong(out, 0) == (value, len(out))


@pytest.mark.parametrize(
    ("reader", "data", "value"),
    [
        (p.read_int8, b"\xff", -1),
        (p.read_int8, b"\x7f", 127),
        (p.read_int16, b"\xff\xfe", -2),
        (p.read_int32, b"\x80\x00\x00\x00", -(2**31)),
        (p.read_uint32, b"\x80\x00\x00\x00", 2**31),
        (p.read_int64, b"\x00" * 7 + b"\x09", 9),
        (p.read_uuid, bytes(range(16)), bytes(range(16))),
        (p.read_uvarlong, b"\xff" * 9 + b"\x01", 2**64 - 1),
    ],
)
def test_fixed_values_are_read_and_their_absence_noticed(
    reader: Callable[..., Any], data: bytes, value: object
) -> None:
    assert reader(memoryview(data), 0) == (value, len(data))
    for size in range(len(data)):
        with pytest.raises(ProtocolViolation, match="ends inside"):
            reader(data[:size], 0)


TEXT_FORMS = [
    (p.write_string, p.read_string, "é" * 100),
    (p.write_nullable_string, p.read_nullable_string, "é" * 100),
    (p.write_nullable_string, p.read_nullable_string, None),
    (p.write_compact_string, p.read_compact_string, "é" * 100),
    (p.write_compact_nullable_string, p.read_compact_nullable_string, "x"),
    (p.write_compact_nullable_string, p.read_compact_nullable_string, None),
    (p.write_bytes, p.read_bytes, b"\xff" * 200),
    (p.write_nullable_bytes, p.read_nullable_bytes, b""),
    (p.write_nullable_bytes, p.read_nullable_bytes, None),
    (p.write_compact_bytes, p.read_compact_bytes, b"\xff" * 200),
    (p.write_compact_nullable_bytes, p.read_compact_nullable_bytes, b"\x00"),
    (p.write_compact_nullable_bytes, p.read_compact_nullable_bytes, None),
]


@pytest.mark.parametrize(("write", "read", "value"), TEXT_FORMS)
def test_strings_and_bytes_come_back_and_may_not_be_cut(write: Any, read: Any, value: str | bytes | None) -> None:
    out = bytearray()
    write(out, value)
    assert read(bytes(out) + b"rest", 0) == (value, len(out))
    assert read(memoryview(out), 0) == (value, len(out))
    for size in range(len(out)):
        with pytest.raises(ProtocolViolation):
            read(bytes(out[:size]), 0)


@pytest.mark.parametrize(
    ("reader", "data"),
    [
        (p.read_string, b"\xff\xff"),
        (p.read_compact_string, b"\x00"),
        (p.read_bytes, b"\xff\xff\xff\xff"),
        (p.read_compact_bytes, b"\x00"),
    ],
)
def test_null_is_refused_where_none_is_allowed(reader: Callable[..., Any], data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="null"):
        reader(data, 0)


@pytest.mark.parametrize(
    ("reader", "data"),
    [
        (p.read_nullable_string, b"\xff\xfe"),
        (p.read_nullable_bytes, b"\xff\xff\xff\xfe"),
        (p.read_nullable_string, b"\x00\x01\xff"),
        (p.read_compact_string, b"\x03\xc3("),
        (p.read_compact_string, b"\x81\x80\x02" + b"x" * 32768),
    ],
    ids=["length -2", "size -2", "not UTF-8", "cut character", "longer than a string may be"],
)
def test_impossible_strings_and_bytes_are_refused(reader: Callable[..., Any], data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        reader(data, 0)


def test_the_longest_compact_string_is_read() -> None:
    assert p.read_compact_string(b"\x80\x80\x02" + b"x" * 32767, 0) == ("x" * 32767, 32770)


def test_array_counts_are_held_against_the_bytes_that_are_left() -> None:
    assert p.read_array_count(b"\x00\x00\x00\x02" + bytes(8), 0, 4) == (2, 4)
    assert p.read_array_count(b"\xff\xff\xff\xff", 0, 4) == (-1, 4)
    assert p.read_compact_array_count(b"\x03" + bytes(8), 0, 4) == (2, 1)
    assert p.read_compact_array_count(b"\x00", 0, 4) == (-1, 1)
    for count, element_bytes in ((3, 4), (9, 1), (2**31 - 1, 1)):
        with pytest.raises(ProtocolViolation, match="cannot hold"):
            p.read_array_count(count.to_bytes(4, "big") + bytes(8), 0, element_bytes)
    with pytest.raises(ProtocolViolation):
        p.read_array_count(b"\xff\xff\xff\xfe", 0, 4)
    with pytest.raises(ProtocolViolation):
        p.read_compact_array_count(b"\xff\xff\xff\xff\x0f" + bytes(8), 0, 1)


def test_a_tagged_section_is_skipped_whole() -> None:
    assert p.skip_tagged_fields(b"\x00", 0) == 1
    assert p.skip_tagged_fields(b"\x02\x00\x01a\x07\x00rest", 0) == 6


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x00",
        b"\x01\x00\x02a",
        b"\x02\x01\x00\x01\x00",
        b"\x02\x05\x00\x01\x00",
        b"\xff\x7f\x00\x00",
    ],
    ids=["absent", "no tag", "no size", "value cut", "repeated", "descending", "more than fit"],
)
def test_a_broken_tagged_section_is_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        p.skip_tagged_fields(data, 0)


def test_more_tagged_fields_than_allowed_are_a_violation_even_when_they_fit() -> None:
    out = bytearray()
    p.write_uvarint(out, p.TAGGED_FIELDS_MAX + 1)
    for tag in range(p.TAGGED_FIELDS_MAX + 1):
        p.write_uvarint(out, tag)
        out.append(0)
    with pytest.raises(ProtocolViolation, match="more than allowed"):
        p.skip_tagged_fields(out, 0)
