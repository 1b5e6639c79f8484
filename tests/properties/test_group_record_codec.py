"""Group records of any content come back as they were; no bytes make the codec raise anything but a violation."""

import contextlib
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.base.errors import ProtocolViolation
from martlet.base.ids import TopicId
from martlet.groups.record_codec import GroupRecordCodec
from martlet.groups.records import (
    ClassicGroupStored,
    ClassicMemberStored,
    ClassicProtocolStored,
    ConsumerGroupStored,
    ConsumerMemberStored,
    CurrentAssigned,
    DurableRecord,
    MemberState,
    OffsetCommitted,
    RegexResolved,
    TargetAssigned,
    TargetEpochStored,
)

codec = GroupRecordCodec()

int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.just("x" * 130)
maybe_texts = st.none() | texts
blobs = st.binary(max_size=20) | st.just(b"b" * 200)
partitions = st.frozensets(st.tuples(st.sampled_from([TopicId(bytes([n]) * 16) for n in range(3)]), int32s), max_size=6)
classic_members = st.builds(ClassicMemberStored, texts, maybe_texts, texts, texts, int32s, int32s, blobs, blobs)
classic_protocols = st.builds(ClassicProtocolStored, int32s, st.lists(st.tuples(texts, blobs), max_size=3).map(tuple))
names = st.lists(texts, max_size=4).map(tuple)
positive = st.integers(0, (1 << 63) - 1)

stored = st.one_of(
    st.builds(OffsetCommitted, texts, texts, int32s, int64s, int32s, texts, int64s),
    st.builds(OffsetCommitted, texts, texts, int32s, int64s, st.just(-1), texts, int64s, positive),
    st.builds(
        ClassicGroupStored,
        texts,
        texts,
        int32s,
        maybe_texts,
        maybe_texts,
        int64s,
        st.lists(classic_members, max_size=3).map(tuple),
    ),
    st.builds(ConsumerGroupStored, texts, int32s, int64s),
    st.builds(
        ConsumerMemberStored,
        texts,
        texts,
        maybe_texts,
        maybe_texts,
        texts,
        texts,
        names,
        maybe_texts,
        int32s,
        maybe_texts,
        st.none() | classic_protocols,
    ),
    st.builds(TargetEpochStored, texts, int32s),
    st.builds(TargetAssigned, texts, texts, partitions),
    st.builds(
        CurrentAssigned, texts, texts, int32s, int32s, st.sampled_from(list(MemberState)), partitions, partitions
    ),
    st.builds(RegexResolved, texts, texts, names, int64s, int64s),
)


@settings(max_examples=500, deadline=None)
@given(stored)
def test_a_record_and_its_tombstone_come_back_as_they_were(record: DurableRecord) -> None:
    encoded = codec.encode(record)
    assert encoded is not None
    key, value = encoded
    assert codec.decode(key, value) == record
    removed = codec.decode(key, None)
    assert removed is not None
    assert codec.encode(removed) == (key, None)


@settings(max_examples=500, deadline=None)
@given(stored, st.data())
def test_changed_bytes_are_a_violation_or_another_record(record: DurableRecord, data: st.DataObject) -> None:
    encoded = codec.encode(record)
    assert encoded is not None
    assert encoded[1] is not None
    key, value = data.draw(changed(encoded[0])), data.draw(changed(encoded[1]))
    with contextlib.suppress(ProtocolViolation):
        found = codec.decode(key, value)
        assert found is None or type(found) in get_args(DurableRecord)
        if isinstance(found, OffsetCommitted) and (key[:2], value[:2]) == (b"\x00\x01", b"\x00\x03"):
            # This form says everything in one way only.
            assert codec.encode(found) == (key, value)


@st.composite
def changed(draw: st.DrawFn, original: bytes) -> bytes:
    raw = bytearray(original)
    for _ in range(draw(st.integers(0, 2))):
        position = draw(st.integers(0, len(raw)))
        match draw(st.integers(0, 2)):
            case 0 if position < len(raw):
                raw[position] = draw(st.integers(0, 255))
            case 1:
                del raw[position:]
            case _:
                raw[position:position] = draw(st.binary(min_size=1, max_size=4))
    return bytes(raw)


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 17), st.integers(0, 5), st.binary(max_size=40), st.binary(max_size=60))
def test_random_bytes_are_a_violation_or_a_record(key_version: int, version: int, key: bytes, value: bytes) -> None:
    for raw_key in (key, key_version.to_bytes(2, "big") + b"\x00\x01g" + key):
        for raw_value in (value, version.to_bytes(2, "big") + value, None):
            with contextlib.suppress(ProtocolViolation):
                codec.decode(raw_key, raw_value)
