"""The bytes of `__transaction_state`: Kafka's, spelled out by hand, in both versions, and what is no record."""

import pytest

from martlet.base.errors import ApiError, ErrorCode, ProtocolViolation
from martlet.base.ids import TopicPartition
from martlet.transactions.record_codec import TransactionRecordCodec
from martlet.transactions.records import GroupProgress, TransactionRemoved, TransactionStored
from martlet.transactions.states import TransactionState
from tests.unit.transactions.transaction_bench import partitions

CODEC = TransactionRecordCodec()
KEY = bytes.fromhex("0000 0003") + b"app"

GOLDEN = {
    "empty": (
        TransactionStored("app", 4000, 0, 60_000, updated_at_ms=1_700_000_000_000),
        "0001"  # version
        "0000000000000fa0"  # producer id
        "0000"  # epoch
        "0000ea60"  # time-out
        "00"  # Empty
        "00"  # no partitions: null
        "0000018bcfe56800"  # last update
        "ffffffffffffffff"  # not started
        "00",  # no tagged fields
    ),
    "ongoing": (
        TransactionStored(
            "app",
            4000,
            3,
            60_000,
            TransactionState.ONGOING,
            partitions("b-0", "a-2", "a-1"),
            1_700_000_000_001,
            1_700_000_000_000,
            client_version=2,
        ),
        "0001 0000000000000fa0 0003 0000ea60 01"
        "03"  # two topics
        "02 61 03 00000001 00000002 00"
        "02 62 02 00000000 00"
        "0000018bcfe56801 0000018bcfe56800"
        "01 02 02 0002",  # one tagged field: the client's version
    ),
    "prepared, ids used up": (
        TransactionStored(
            "app",
            4000,
            32_767,
            60_000,
            TransactionState.PREPARE_ABORT,
            partitions("a-1"),
            1_700_000_000_001,
            1_700_000_000_000,
            previous_producer_id=3000,
            next_producer_id=5000,
            client_version=2,
            last_producer_epoch=32_766,
        ),
        "0001 0000000000000fa0 7fff 0000ea60 03"
        "02 02 61 02 00000001 00"
        "0000018bcfe56801 0000018bcfe56800"
        "04"
        "00 08 0000000000000bb8"
        "01 08 0000000000001388"
        "02 02 0002"
        "9a4e 02 7ffe",  # tag 10010
    ),
    "complete": (
        TransactionStored("app", 4000, 4, 60_000, TransactionState.COMPLETE_COMMIT, updated_at_ms=1, started_at_ms=0),
        "0001 0000000000000fa0 0004 0000ea60 04 01 0000000000000001 0000000000000000 00",
    ),
    "owner of a group": (
        TransactionStored("app", 1, 2, 3, group=GroupProgress(7, (bytes(16), b"r" * 16), b"note", "s3://é", bytes(16))),
        "0001 0000000000000001 0002 00000003 00 00 ffffffffffffffff ffffffffffffffff"
        "05"
        "904e 08 0000000000000007"
        "914e 20 00000000000000000000000000000000 72727272727272727272727272727272"
        "924e 04 6e6f7465"
        "934e 07 73333a2f2fc3a9"
        "944e 10 00000000000000000000000000000000",
    ),
}


@pytest.mark.parametrize(("record", "value"), GOLDEN.values(), ids=list(GOLDEN))
def test_a_record_has_exactly_these_bytes(record: TransactionStored, value: str) -> None:
    assert CODEC.encode(record) == (KEY, bytes.fromhex(value))
    assert CODEC.decode(KEY, bytes.fromhex(value)) == record


def test_a_tombstone_has_a_key_and_no_value() -> None:
    assert CODEC.encode(TransactionRemoved("app")) == (KEY, None)
    assert CODEC.decode(KEY, None) == TransactionRemoved("app")


def test_a_value_of_version_0_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000fa0 0003 0000ea60 01"
        "00000001 0001 61 00000002 00000001 00000002"
        "0000018bcfe56801 0000018bcfe56800"
    )
    assert CODEC.decode(KEY, value) == TransactionStored(
        "app",
        4000,
        3,
        60_000,
        TransactionState.ONGOING,
        frozenset((TopicPartition("a", 1), TopicPartition("a", 2))),
        1_700_000_000_001,
        1_700_000_000_000,
    )
    empty = bytes.fromhex("0000 0000000000000fa0 0003 0000ea60 00 ffffffff 0000018bcfe56801 ffffffffffffffff")
    decoded = CODEC.decode(KEY, empty)
    assert isinstance(decoded, TransactionStored)
    assert not decoded.partitions


def test_tagged_fields_of_a_newer_version_are_skipped() -> None:
    value = bytes.fromhex("0001 0000000000000fa0 0000 0000ea60 00 00 0000018bcfe56800 ffffffffffffffff 01 64 02 abcd")
    assert CODEC.decode(KEY, value) == GOLDEN["empty"][0]


def test_a_key_of_another_kind_is_left_alone() -> None:
    assert CODEC.decode(bytes.fromhex("0001 0003") + b"app", b"anything") is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("0002", "version 2"),
        ("0001 0000000000000fa0 0003 0000ea60 09", "9 is no state"),
        ("0001 0000000000000fa0 0003 0000ea60 01 ff01", "array"),
        (GOLDEN["empty"][1] + "00", "1 bytes follow"),
        ("0001 0000000000000fa0 0000 0000ea60 00 00 0000018bcfe56800 ffffffffffffffff 01 00 04 00000bb8", ""),
        (
            "0001 0000000000000fa0 0000 0000ea60 00 00 0000018bcfe56800 ffffffffffffffff"
            "02 904e 08 0000000000000007 914e 01 00",
            "run ids",
        ),
    ],
)
def test_bytes_that_are_no_record_are_named_with_their_id(value: str, problem: str) -> None:
    with pytest.raises(ProtocolViolation, match=f"'app'.*{problem}"):
        CODEC.decode(KEY, bytes.fromhex(value))


def test_an_id_too_long_for_the_format_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        CODEC.encode(TransactionStored("a" * 40_000, 1, 0, 1))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
