"""The cursor moves on by what it reads, and reads nothing that is not there."""

import pytest

from martlet.base.errors import ProtocolViolation
from martlet.wire.cursor import Cursor


def test_values_are_read_one_after_the_other() -> None:
    cursor = Cursor(b"\xff\x00\x02\x00\x00\x00\x03" + bytes(7) + b"\x04" + bytes(range(16)) + b"\x00\x01a\xff\xff")
    assert (cursor.int8(), cursor.int16(), cursor.int32(), cursor.int64()) == (-1, 2, 3, 4)
    assert cursor.uuid() == bytes(range(16))
    assert (cursor.string(), cursor.nullable_string()) == ("a", None)
    assert cursor.at_end
    cursor.expect_end()


def test_compact_values_have_their_own_lengths() -> None:
    cursor = Cursor(b"\x02a\x00\x03xy\x04\x00\x00\x00\x01z\xff\xff\xff\xff")
    assert (cursor.string(compact=True), cursor.nullable_string(compact=True)) == ("a", None)
    assert (cursor.blob(compact=True), cursor.count(1, compact=True)) == (b"xy", 3)
    assert (cursor.blob(), cursor.nullable_blob()) == (b"z", None)


def test_tagged_fields_are_found_by_their_tags() -> None:
    cursor = Cursor(b"\x02\x00\x01a\x05\x02bc.")
    fields = cursor.tagged_fields()
    assert {tag: bytes(field.data) for tag, field in fields.items()} == {0: b"a", 5: b"bc"}
    assert cursor.position == 8
    again = Cursor(cursor.data)
    again.skip_tagged_fields()
    assert again.position == 8


@pytest.mark.parametrize("data", [b"\x00\x00\x00\x02a", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00"])
def test_an_array_that_is_null_or_cannot_be_there_is_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        Cursor(data).count(1)


def test_bytes_behind_the_end_are_a_violation() -> None:
    with pytest.raises(ProtocolViolation, match="1 bytes follow"):
        Cursor(b"a").expect_end()
