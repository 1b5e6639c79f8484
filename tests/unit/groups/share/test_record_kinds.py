"""Records of share groups are written and read as Kafka does."""

from typing import get_args

import pytest

from martlet.base.errors import ProtocolViolation
from martlet.base.ids import TopicId
from martlet.groups.record_codec import KINDS, GroupRecordCodec
from martlet.groups.records import MemberState
from martlet.groups.share.record_kinds import SHARE_KINDS
from martlet.groups.share.records import (
    ShareCurrentAssigned,
    ShareCurrentRemoved,
    ShareGroupRemoved,
    ShareGroupStored,
    ShareMemberRemoved,
    ShareMemberStored,
    SharePartitionsRemoved,
    SharePartitionsStored,
    ShareRecord,
    ShareTargetAssigned,
    ShareTargetEpochRemoved,
    ShareTargetEpochStored,
    ShareTargetRemoved,
    TopicPartitions,
)

T1, T2 = TopicId(b"\x01" * 16), TopicId(b"\x02" * 16)
MEMBER = b"\x00\x01g\x00\x01m"
GROUP = b"\x00\x01g"

codec = GroupRecordCodec((*KINDS, *SHARE_KINDS))

GOLDEN: list[tuple[ShareRecord, bytes, bytes | None]] = [
    (
        ShareMemberStored("g", "m", "r", "c", "h", ("t", "uu")),
        b"\x00\x0a" + MEMBER,
        b"\x00\x00\x02r\x02c\x02h\x03\x02t\x03uu\x00",
    ),
    (ShareMemberRemoved("g", "m"), b"\x00\x0a" + MEMBER, None),
    (ShareGroupStored("g", 9, -2), b"\x00\x0b" + GROUP, b"\x00\x00\x00\x00\x00\x09" + b"\xff" * 7 + b"\xfe\x00"),
    (ShareGroupRemoved("g"), b"\x00\x0b" + GROUP, None),
    (ShareTargetEpochStored("g", 9), b"\x00\x0c" + GROUP, b"\x00\x00\x00\x00\x00\x09\x00"),
    (ShareTargetEpochRemoved("g"), b"\x00\x0c" + GROUP, None),
    (
        ShareTargetAssigned("g", "m", frozenset({(T2, 5), (T1, 1), (T1, 0)})),
        b"\x00\x0d" + MEMBER,
        b"\x00\x00\x03" + T1 + b"\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00" + T2 + b"\x02\x00\x00\x00\x05\x00\x00",
    ),
    (ShareTargetRemoved("g", "m"), b"\x00\x0d" + MEMBER, None),
    (
        ShareCurrentAssigned("g", "m", 9, 8, MemberState.STABLE, frozenset({(T1, 1)})),
        b"\x00\x0e" + MEMBER,
        b"\x00\x00\x00\x00\x00\x09\x00\x00\x00\x08\x01\x02" + T1 + b"\x02\x00\x00\x00\x01\x00\x00",
    ),
    (ShareCurrentRemoved("g", "m"), b"\x00\x0e" + MEMBER, None),
    (
        SharePartitionsStored(
            "g", (TopicPartitions(T2, "v", (3,)),), (TopicPartitions(T1, "u", (0, 1)),), ((T2, "w"),)
        ),
        b"\x00\x0f" + GROUP,
        b"\x00\x00"
        + (b"\x02" + T2 + b"\x02v\x02\x00\x00\x00\x03\x00")
        + (b"\x02" + T1 + b"\x02u\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00")
        + (b"\x02" + T2 + b"\x02w\x00")
        + b"\x00",
    ),
    (SharePartitionsRemoved("g"), b"\x00\x0f" + GROUP, None),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN, ids=lambda part: type(part).__name__)
def test_a_record_is_written_and_read_as_kafka_does(record: ShareRecord, key: bytes, value: bytes | None) -> None:
    assert codec.encode(record) == (key, value)
    assert codec.decode(key, value) == record


def test_every_record_has_golden_bytes() -> None:
    assert {type(record) for record, _, _ in GOLDEN} == set(get_args(ShareRecord))


def test_a_member_without_a_rack_and_a_group_of_a_newer_broker_are_read() -> None:
    record = ShareMemberStored("g", "m", None, "c", "h")
    encoded = codec.encode(record)
    assert encoded is not None
    assert codec.decode(*encoded) == record
    assert codec.decode(b"\x00\x0b" + GROUP, b"\x00\x00\x00\x00\x00\x09" + bytes(8) + b"\x01\x05\x01z") == (
        ShareGroupStored("g", 9)
    )


@pytest.mark.parametrize(("record", "key", "value"), [entry for entry in GOLDEN if entry[2]], ids=lambda part: "")
def test_a_value_cut_short_is_a_violation(record: ShareRecord, key: bytes, value: bytes) -> None:
    for length in range(len(value)):
        with pytest.raises(ProtocolViolation):
            codec.decode(key, value[:length])


def test_without_the_kinds_of_share_groups_their_records_are_left_alone() -> None:
    assert GroupRecordCodec().decode(b"\x00\x0b" + GROUP, b"anything") is None
