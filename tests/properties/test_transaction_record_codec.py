"""The codec of transaction records on anything: what is written is read again, and no bytes do harm."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from martlet.base.errors import ProtocolViolation
from martlet.base.ids import TopicPartition
from martlet.transactions.record_codec import TransactionRecordCodec
from martlet.transactions.records import GroupProgress, TransactionRecord, TransactionRemoved, TransactionStored
from martlet.transactions.states import TransactionState

CODEC = TransactionRecordCodec()
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=12)
PARTITIONS = st.frozensets(st.builds(TopicPartition, NAMES, INT32), max_size=8)
GROUPS = st.builds(
    GroupProgress,
    INT64,
    st.lists(st.binary(min_size=16, max_size=16), max_size=4).map(tuple),
    st.binary(max_size=40),
    NAMES,
    st.binary(max_size=16),
)


@st.composite
def records(draw: st.DrawFn) -> TransactionRecord:
    name = draw(NAMES)
    if draw(st.booleans()):
        return TransactionRemoved(name)
    state = draw(st.sampled_from(list(TransactionState)))
    return TransactionStored(
        name,
        draw(INT64),
        draw(INT16),
        draw(INT32),
        state,
        frozenset() if state is TransactionState.EMPTY else draw(PARTITIONS),
        draw(INT64),
        draw(INT64),
        draw(INT64),
        draw(INT64),
        draw(INT16),
        draw(INT16),
        draw(INT16),
        draw(st.none() | GROUPS),
    )


@given(records())
def test_a_record_is_read_as_it_was_written(record: TransactionRecord) -> None:
    entry = CODEC.encode(record)
    assert entry is not None
    assert CODEC.decode(*entry) == record


@given(records(), st.data())
def test_bytes_that_were_changed_are_read_or_refused(record: TransactionRecord, data: st.DataObject) -> None:
    entry = CODEC.encode(record)
    assert entry is not None
    key, value = bytearray(entry[0]), bytearray(entry[1] or b"\x00\x01")
    for content in (key, value):
        if data.draw(st.booleans()):
            place = data.draw(st.integers(0, len(content) - 1))
            content[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolViolation):
        CODEC.decode(bytes(key), bytes(value[: data.draw(st.integers(0, len(value)))]))


@given(st.binary(max_size=60), st.binary(max_size=60) | st.none())
def test_any_bytes_are_read_or_refused(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(ProtocolViolation):
        CODEC.decode(key, value)
