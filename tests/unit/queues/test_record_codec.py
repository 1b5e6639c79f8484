"""The bytes of state records: golden ones, and those that are refused."""

import pytest

from martlet.base.errors import ProtocolViolation
from martlet.base.ids import TopicId
from martlet.queues.cells import ACKNOWLEDGED, BACKING_OFF, COPYING, FILTERED, REJECTED, STRAY, WAITING
from martlet.queues.record_codec import StateKey, decode_key, decode_state, encode_key, encode_state
from martlet.queues.records import StateRecord, StrayEntry
from martlet.queues.window import CellRun

KEY = StateKey("orders-réglées", TopicId(bytes(range(16))), 300)
DELTA = StateRecord(
    epoch=1,
    start=1000,
    frontier=1500,
    runs=(CellRun(1000, 1003, ACKNOWLEDGED, 0), CellRun(1005, 1005, WAITING, 2), CellRun(1006, 1205, STRAY, 0)),
    strays=(StrayEntry(17, BACKING_OFF, 3, 1_700_000_000_000), StrayEntry(900, COPYING, 5, 0, REJECTED)),
)


def test_keys_have_these_bytes() -> None:
    data = encode_key(KEY)
    assert data == b"\x00" + bytes(range(16)) + b"\xac\x02" + "orders-réglées".encode()
    assert decode_key(data) == KEY


def test_deltas_have_these_bytes() -> None:
    data = encode_state(DELTA)
    assert data.hex(" ") == (
        "00 00 01 e8 07 f4 03 "  # version, flags, epoch, start, messages
        "03 00 03 04 01 00 80 02 00 c7 01 03 "  # the runs
        "02 11 02 03 80 d0 95 ff bc 31 00 84 07 0c 05 00 05"  # the strays
    )
    assert decode_state(data) == DELTA


def test_a_snapshot_is_packed_where_that_is_shorter() -> None:
    frayed = tuple(CellRun(at, at, ACKNOWLEDGED, 0) for at in range(1, 400, 2))
    runs = (*frayed, CellRun(400, 410, FILTERED, 0), CellRun(411, 411, WAITING, 3))
    record = StateRecord(0, 0, 1000, runs, is_snapshot=True)
    data = encode_state(record)
    assert data[1] == 3
    assert len(data) < 270
    assert decode_state(data) == record
    whole = StateRecord(0, 0, 1000, (CellRun(0, 499, ACKNOWLEDGED, 0),), is_snapshot=True)
    assert encode_state(whole)[1] == 1
    assert len(encode_state(whole)) == 12
    assert decode_state(encode_state(whole)) == whole


def test_an_empty_snapshot_says_where_a_subscription_starts() -> None:
    record = StateRecord(2, 5_000_000_000, 5_000_000_000, is_snapshot=True)
    assert decode_state(encode_state(record)) == record


@pytest.mark.parametrize("length", range(len(encode_state(DELTA))))
def test_a_record_cut_short_is_refused(length: int) -> None:
    with pytest.raises(ProtocolViolation):
        decode_state(encode_state(DELTA)[:length])


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ("07 00 00 00 00 00 00", "version 7"),
        ("00 02 00 00 00 00 00", "flags 2"),
        ("00 01 00 00 ff ff ff ff 0f 00 00", "4294967295 messages"),
        ("00 00 00 00 05 01 00 05 04 00", "a run of state 4 from 0 to 5"),
        ("00 00 00 00 05 01 00 00 02 00", "a run of state 2"),
        ("00 00 00 00 05 ff 01 00", "255 entries"),
        ("00 00 00 00 00 00 01 00 01 00 00 00", "among those moved aside"),
        ("00 00 00 00 00 00 00 00", "bytes follow"),
        ("00 03 00 00 04 01 01 00 00 05 00", "overlap"),
    ],
)
def test_a_damaged_record_is_refused_with_the_reason(data: str, word: str) -> None:
    with pytest.raises(ProtocolViolation, match=word):
        decode_state(bytes.fromhex(data))


@pytest.mark.parametrize("data", [b"", b"\x00" * 17, b"\x01" + b"\x00" * 20, b"\x00" * 18 + b"\xff"])
def test_a_key_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_key(data)
