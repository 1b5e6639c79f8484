"""The record encoders against bytes written by hand, and against each other."""

from collections.abc import Callable, Sequence

import pytest

from martlet.wire.records import native
from martlet.wire.records.encode import RecordFields, encode_records, encode_records_plain, varint

Encoder = Callable[[Sequence[RecordFields], int], bytes]

every_encoder = pytest.mark.parametrize(
    "encode", [encode_records, encode_records_plain, native.encode_records], ids=["chosen", "plain", "compiled"]
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (300, "d804"),
        ((1 << 31) - 1, "feffffff0f"),
        ((1 << 63) - 1, "feffffffffffffffff01"),
        (-(1 << 63), "ffffffffffffffffff01"),
    ],
)
def test_varints_are_zigzag(value: int, expected: str) -> None:
    assert varint(value).hex() == expected


@every_encoder
def test_a_record_has_the_bytes_of_the_specification(encode: Encoder) -> None:
    records: list[RecordFields] = [(1000, b"k", None, [("h", None), (b"\xff", b"x")]), (998, None, b"", ())]
    first = bytes([0, 0, 0, 2, ord("k"), 1, 4, 2, ord("h"), 1, 2, 0xFF, 2, ord("x")])
    second = bytes([0, 3, 2, 1, 0, 0])
    assert encode(records, 1000) == bytes([28]) + first + bytes([12]) + second


@every_encoder
def test_no_records_are_no_bytes(encode: Encoder) -> None:
    assert encode([], 0) == b""


@every_encoder
def test_timestamps_too_far_apart_are_refused(encode: Encoder) -> None:
    highest, lowest = (1 << 63) - 1, -(1 << 63)
    for timestamp, base in ((highest, -1), (lowest, 1), (highest, lowest), (lowest, highest)):
        with pytest.raises(ValueError, match=r"64 bits|too far apart"):
            encode([(timestamp, None, None, ())], base)
    for timestamp, base in ((highest, 0), (lowest, 0), (highest, 1), (lowest, -1), (-1, highest), (0, -highest)):
        assert encode([(timestamp, None, None, ())], base)
