"""Slices of batches: exactly the records asked for, readable by clients, whatever the batch was compressed with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from martlet.base.errors import ApiError
from martlet.wire.batch import build_batch, iterate_batches, read_batch_header
from martlet.wire.records.record import read_records
from martlet.wire.records.slices import OpenBatch

BASE = 7_000
TIME = 1_700_000_000_000


def batch(count: int = 50, compression: int = 0) -> bytes:
    records = [(TIME + at, b"key-%d" % at, b"value-%d" % at, [("type", b"order")]) for at in range(count)]
    return build_batch(records, base_offset=BASE, compression=compression, producer_id=9, producer_epoch=1)


def opened(raw: bytes) -> OpenBatch:
    return OpenBatch(raw, read_batch_header(raw), max_bytes=1 << 20)


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
def test_a_slice_holds_the_records_asked_for_and_no_others(compression: int) -> None:
    raw = batch(compression=compression)
    whole = read_records(raw, 1 << 20, check_crc=True)
    (small,) = opened(raw).slices([(BASE + 10, BASE + 12)])
    assert read_records(small, 1 << 20, check_crc=True) == whole[10:13]
    header = read_batch_header(small)
    assert (header.base_offset, header.last_offset, header.record_count) == (BASE, BASE + 12, 3)
    assert (header.compression, header.producer_id, header.size) == (0, 9, len(small))


@given(st.lists(st.integers(-3, 30), min_size=2, max_size=8, unique=True).map(sorted))
def test_slices_of_any_ranges_follow_each_other(cuts: list[int]) -> None:
    raw = batch(20)
    ranges = [(BASE + first, BASE + last - 1) for first, last in zip(cuts[::2], cuts[1::2], strict=False)]
    data = b"".join(opened(raw).slices(ranges))
    got = read_records(data, 1 << 20, check_crc=True) if data else []
    wanted = [offset for first, last in ranges for offset in range(max(first, BASE), min(last, BASE + 19) + 1)]
    assert [record.offset for record in got] == wanted
    assert all(record.value == b"value-%d" % (record.offset - BASE) for record in got)


def test_the_slice_of_everything_is_as_long_as_the_batch() -> None:
    raw = batch()
    (whole,) = opened(raw).slices([(0, 1 << 60)])
    assert whole == raw


def test_a_slice_of_a_slice_works_as_well() -> None:
    (small,) = opened(batch()).slices([(BASE + 10, BASE + 20)])
    (smaller,) = opened(small).slices([(BASE + 12, BASE + 12)])
    assert [record.offset for record in read_records(smaller, 1 << 20)] == [BASE + 12]


def test_nothing_is_made_of_a_damaged_batch() -> None:
    raw = bytearray(batch())
    raw[70] ^= 1
    with pytest.raises(ApiError):
        opened(bytes(raw))


def test_a_range_without_records_gives_no_batch() -> None:
    assert list(opened(batch()).slices([(0, BASE - 1), (BASE + 50, BASE + 90)])) == []
    assert len(list(iterate_batches(b"".join(opened(batch()).slices([(BASE, BASE), (BASE + 2, BASE + 2)]))))) == 2
