"""Group records as Kafka writes them, byte for byte, written out by hand from its schemas."""

from dataclasses import dataclass
from typing import get_args

import pytest

from martlet.base.errors import ApiError, ErrorCode, ProtocolViolation
from martlet.base.ids import TopicId
from martlet.groups.record_codec import GroupRecordCodec
from martlet.groups.records import (
    ClassicGroupRemoved,
    ClassicGroupStored,
    ClassicMemberStored,
    ClassicProtocolStored,
    ConsumerGroupRemoved,
    ConsumerGroupStored,
    ConsumerMemberRemoved,
    ConsumerMemberStored,
    CurrentAssigned,
    CurrentRemoved,
    DurableRecord,
    MemberState,
    OffsetCommitted,
    OffsetRemoved,
    RegexRemoved,
    RegexResolved,
    TargetAssigned,
    TargetEpochRemoved,
    TargetEpochStored,
    TargetRemoved,
)

codec = GroupRecordCodec()

OFFSET_KEY = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x02"
MEMBER_KEY_FIELDS = b"\x00\x01g\x00\x01m"
T1, T2 = TopicId(b"1" * 16), TopicId(b"2" * 16)

CLASSIC_MEMBER = ClassicMemberStored("m", "i", "c", "h", 300, 200, b"sub", b"as")

GOLDEN: list[tuple[DurableRecord, bytes, bytes | None]] = [
    (
        OffsetCommitted("g", "t", 2, 7, leader_epoch=3, metadata="md", committed_at_ms=258),
        OFFSET_KEY,
        b"\x00\x03" + bytes(7) + b"\x07\x00\x00\x00\x03\x00\x02md" + bytes(6) + b"\x01\x02",
    ),
    (
        OffsetCommitted("g", "t", 2, 7, metadata="md", committed_at_ms=1, expires_at_ms=2),
        OFFSET_KEY,
        b"\x00\x01" + bytes(7) + b"\x07\x00\x02md" + bytes(7) + b"\x01" + bytes(7) + b"\x02",
    ),
    (OffsetRemoved("g", "t", 2), OFFSET_KEY, None),
    (
        ClassicGroupStored("g", "consumer", 4, "range", "m", 5, (CLASSIC_MEMBER,)),
        b"\x00\x02\x00\x01g",
        b"\x00\x03"
        b"\x00\x08consumer"
        b"\x00\x00\x00\x04"
        b"\x00\x05range"
        b"\x00\x01m" + bytes(7) + b"\x05"
        b"\x00\x00\x00\x01"
        b"\x00\x01m"
        b"\x00\x01i"
        b"\x00\x01c"
        b"\x00\x01h"
        b"\x00\x00\x01\x2c"
        b"\x00\x00\x00\xc8"
        b"\x00\x00\x00\x03sub"
        b"\x00\x00\x00\x02as",
    ),
    (
        ClassicGroupStored("g", "consumer", 4, None, None, -1),
        b"\x00\x02\x00\x01g",
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x04\xff\xff\xff\xff" + b"\xff" * 8 + b"\x00\x00\x00\x00",
    ),
    (ClassicGroupRemoved("g"), b"\x00\x02\x00\x01g", None),
    (ConsumerGroupStored("g", 9), b"\x00\x03\x00\x01g", b"\x00\x00\x00\x00\x00\x09\x00"),
    (
        ConsumerGroupStored("g", 9, metadata_hash=-2),
        b"\x00\x03\x00\x01g",
        b"\x00\x00\x00\x00\x00\x09\x01\x00\x08" + b"\xff" * 7 + b"\xfe",
    ),
    (ConsumerGroupRemoved("g"), b"\x00\x03\x00\x01g", None),
    (
        ConsumerMemberStored("g", "m", "i", "r", "c", "h", ("t", "uu"), "x.*", 300, "range"),
        b"\x00\x05" + MEMBER_KEY_FIELDS,
        b"\x00\x00\x02i\x02r\x02c\x02h\x03\x02t\x03uu\x04x.*\x00\x00\x01\x2c\x06range\x00",
    ),
    (
        ConsumerMemberStored(
            "g", "m", client_id="c", client_host="h", classic=ClassicProtocolStored(200, (("range", b"sub"),))
        ),
        b"\x00\x05" + MEMBER_KEY_FIELDS,
        b"\x00\x00"
        b"\x00"
        b"\x00"
        b"\x02c"
        b"\x02h"
        b"\x01"
        b"\x00"
        b"\xff\xff\xff\xff"
        b"\x00"
        # One tagged field, number 0, of 18 bytes: not null, session timeout, one protocol, no tagged fields.
        b"\x01"
        b"\x00"
        b"\x12"
        b"\x01"
        b"\x00\x00\x00\xc8"
        b"\x02"
        b"\x06range"
        b"\x04sub"
        b"\x00"
        b"\x00",
    ),
    (ConsumerMemberRemoved("g", "m"), b"\x00\x05" + MEMBER_KEY_FIELDS, None),
    (TargetEpochStored("g", 9), b"\x00\x06\x00\x01g", b"\x00\x00\x00\x00\x00\x09\x00"),
    (TargetEpochRemoved("g"), b"\x00\x06\x00\x01g", None),
    (
        TargetAssigned("g", "m", frozenset({(T2, 5), (T1, 1), (T1, 0)})),
        b"\x00\x07" + MEMBER_KEY_FIELDS,
        b"\x00\x00\x03" + T1 + b"\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00" + T2 + b"\x02\x00\x00\x00\x05\x00\x00",
    ),
    (TargetRemoved("g", "m"), b"\x00\x07" + MEMBER_KEY_FIELDS, None),
    (
        CurrentAssigned("g", "m", 9, 8, MemberState.UNREVOKED_PARTITIONS, frozenset({(T1, 1)}), frozenset({(T2, 2)})),
        b"\x00\x08" + MEMBER_KEY_FIELDS,
        b"\x00\x00"
        b"\x00\x00\x00\x09"
        b"\x00\x00\x00\x08"
        b"\x02"
        b"\x02" + T1 + b"\x02"
        b"\x00\x00\x00\x01"
        b"\x00"
        b"\x02" + T2 + b"\x02"
        b"\x00\x00\x00\x02"
        b"\x00"
        b"\x00",
    ),
    (CurrentRemoved("g", "m"), b"\x00\x08" + MEMBER_KEY_FIELDS, None),
    (
        RegexResolved("g", "a+", ("a", "aa"), resolved_at_ms=258, version=3),
        b"\x00\x10\x00\x01g\x00\x02a+",
        b"\x00\x00\x03\x02a\x03aa" + bytes(7) + b"\x03" + bytes(6) + b"\x01\x02\x00",
    ),
    (RegexRemoved("g", "a+"), b"\x00\x10\x00\x01g\x00\x02a+", None),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN, ids=lambda part: type(part).__name__)
def test_a_record_is_written_and_read_as_kafka_does(record: DurableRecord, key: bytes, value: bytes | None) -> None:
    assert codec.encode(record) == (key, value)
    assert codec.decode(key, value) == record


def test_every_durable_record_has_golden_bytes() -> None:
    assert {type(record) for record, _, _ in GOLDEN} == set(get_args(DurableRecord))


def test_the_older_key_of_an_offset_says_the_same() -> None:
    assert codec.decode(b"\x00\x00" + OFFSET_KEY[2:], None) == OffsetRemoved("g", "t", 2)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\x00\x00" + bytes(7) + b"\x07\x00\x00" + bytes(8), OffsetCommitted("g", "t", 2, 7)),
        (
            b"\x00\x01" + bytes(7) + b"\x07\x00\x00" + bytes(8) + bytes(7) + b"\x05",
            OffsetCommitted("g", "t", 2, 7, expires_at_ms=5),
        ),
        (b"\x00\x02" + bytes(7) + b"\x07\x00\x00" + bytes(8), OffsetCommitted("g", "t", 2, 7)),
        (
            b"\x00\x04" + bytes(7) + b"\x07\x00\x00\x00\x06\x03md" + bytes(8) + b"\x01\x63\x01z",
            OffsetCommitted("g", "t", 2, 7, leader_epoch=6, metadata="md"),
        ),
    ],
)
def test_offsets_of_every_version_are_read(value: bytes, expected: OffsetCommitted) -> None:
    assert codec.decode(OFFSET_KEY, value) == expected


START = b"\x00\x08consumer\x00\x00\x00\x04\x00\x05range\x00\x01m"
MEMBER_START = b"\x00\x00\x00\x01\x00\x01m"
MEMBER_REST = b"\x00\x00\x00\x03sub\x00\x00\x00\x02as"


@pytest.mark.parametrize(
    ("value", "changed_at_ms", "instance_id", "rebalance_timeout_ms"),
    [
        (b"\x00\x00" + START + MEMBER_START + b"\x00\x01c\x00\x01h\x00\x00\x00\xc8" + MEMBER_REST, -1, None, 200),
        (
            b"\x00\x01" + START + MEMBER_START + b"\x00\x01c\x00\x01h\x00\x00\x01\x2c\x00\x00\x00\xc8" + MEMBER_REST,
            -1,
            None,
            300,
        ),
        (
            b"\x00\x02" + START + bytes(7) + b"\x05" + MEMBER_START + b"\x00\x01c\x00\x01h"
            b"\x00\x00\x01\x2c\x00\x00\x00\xc8" + MEMBER_REST,
            5,
            None,
            300,
        ),
        (
            b"\x00\x04"
            b"\x09consumer"
            b"\x00\x00\x00\x04"
            b"\x06range"
            b"\x02m" + bytes(7) + b"\x05"
            b"\x02"
            b"\x02m"
            b"\x02i"
            b"\x02c"
            b"\x02h"
            b"\x00\x00\x01\x2c\x00\x00\x00\xc8"
            b"\x04sub"
            b"\x03as"
            b"\x00"
            b"\x00",
            5,
            "i",
            300,
        ),
    ],
)
def test_classic_groups_of_every_version_are_read(
    value: bytes, changed_at_ms: int, instance_id: str | None, rebalance_timeout_ms: int
) -> None:
    member = ClassicMemberStored("m", instance_id, "c", "h", rebalance_timeout_ms, 200, b"sub", b"as")
    expected = ClassicGroupStored("g", "consumer", 4, "range", "m", changed_at_ms, (member,))
    assert codec.decode(b"\x00\x02\x00\x01g", value) == expected


def test_tagged_fields_that_newer_brokers_add_are_skipped() -> None:
    group = b"\x00\x00\x00\x00\x00\x09\x02\x00\x08" + bytes(7) + b"\x01\x01\x08" + bytes(8)
    assert codec.decode(b"\x00\x03\x00\x01g", group) == ConsumerGroupStored("g", 9, metadata_hash=1)

    # Kafka 4.3 stores with each partition the epoch in which it was assigned.
    topic = T1 + b"\x02\x00\x00\x00\x01\x01\x00\x05\x02\x00\x00\x00\x09"
    current = b"\x00\x00\x00\x00\x00\x09\x00\x00\x00\x08\x01\x02" + topic + b"\x01\x00"
    expected = CurrentAssigned("g", "m", 9, 8, MemberState.STABLE, frozenset({(T1, 1)}))
    assert codec.decode(b"\x00\x08" + MEMBER_KEY_FIELDS, current) == expected


def test_a_tagged_struct_that_is_null_is_no_classic_protocol() -> None:
    value = b"\x00\x00\x00\x00\x01\x01\x01\x00\xff\xff\xff\xff\x00\x01\x00\x01\xff"
    assert codec.decode(b"\x00\x05" + MEMBER_KEY_FIELDS, value) == ConsumerMemberStored("g", "m")


def test_a_member_state_that_we_do_not_know_reads_as_unknown() -> None:
    value = b"\x00\x00" + bytes(8) + b"\x09\x01\x01\x00"
    record = codec.decode(b"\x00\x08" + MEMBER_KEY_FIELDS, value)
    assert record == CurrentAssigned("g", "m", 0, 0, MemberState.UNKNOWN)


def test_kinds_that_we_do_not_know_are_left_alone() -> None:
    for key_version in (4, 9, 10, 15, 17, 99):
        assert codec.decode(key_version.to_bytes(2, "big") + b"whatever", b"anything") is None


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        (b"\x00", None, "a key of 1 bytes"),
        (OFFSET_KEY[:-1], None, "the key of a OffsetCommitted record"),
        (OFFSET_KEY + b"x", None, "ends at byte 12, but 13 bytes came"),
        (b"\x00\x01\x80\x00" + b"g" * 32768 + b"\x00\x01t" + bytes(4), b"\x00\x03" + bytes(22), "a string of -32768"),
        (b"\x00\x01\x00\x01\xff\x00\x01t" + bytes(4), b"\x00\x03" + bytes(22), "not UTF-8"),
        (OFFSET_KEY, b"\x00\x05", "OffsetCommitted record of 'g', 't', 2: the value has version 5"),
        (OFFSET_KEY, b"\x00\x03\x00", "OffsetCommitted record of 'g', 't', 2: the message ends"),
        (
            b"\x00\x06\x00\x01g",
            b"\x00\x00\x00\x00\x00\x09\x00x",
            "TargetEpochStored record of 'g': the message ends at byte 7, but 8 bytes came",
        ),
        (b"\x00\x02\x00\x01g", b"\x00\x03\xff\xff", "ClassicGroupStored record of 'g': null"),
        (b"\x00\x07" + MEMBER_KEY_FIELDS, b"\x00\x00\x00", "TargetAssigned record of 'g', 'm': null before byte 3"),
    ],
)
def test_bytes_that_cannot_be_read_are_a_violation_that_names_the_record(
    key: bytes, value: bytes | None, named: str
) -> None:
    with pytest.raises(ProtocolViolation, match=named):
        codec.decode(key, value)


def test_a_volatile_record_has_no_form_in_the_log() -> None:
    @dataclass(frozen=True)
    class MemberWaits:
        group_id: str

    assert codec.encode(MemberWaits("g")) is None


@pytest.mark.parametrize(
    "record",
    [
        ConsumerGroupStored("g" * 32_768, 1),
        ConsumerMemberStored("g", "m", rack_id="r" * 32_768),
        ConsumerMemberStored("g", "m", topic_names=("\ud800",)),
        OffsetCommitted("g", "t", 2**31, 0),
    ],
)
def test_what_the_format_cannot_hold_is_refused(record: DurableRecord) -> None:
    with pytest.raises(ApiError, match="cannot be stored") as refused:
        codec.encode(record)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
