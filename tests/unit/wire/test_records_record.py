"""Records as objects: what `read_records` gives, and what it refuses."""

import pytest

from martlet.base.errors import ApiError
from martlet.wire.batch import build_batch
from martlet.wire.compression import Compression, DecompressionLimit
from martlet.wire.records.index import CorruptRecords
from martlet.wire.records.record import Record, read_records


def test_a_record_has_its_offset_its_time_and_its_headers() -> None:
    batch = build_batch([(5, b"k", None, [("a", b"1"), ("b", None)]), (9, None, b"v", ())], base_offset=30)
    assert read_records(batch, 1000) == [
        Record(30, 5, b"k", None, [("a", b"1"), ("b", None)]),
        Record(31, 9, None, b"v", []),
    ]


def test_several_batches_are_read_in_one_go() -> None:
    data = b"".join(
        build_batch([(0, None, b"%d" % offset, ())], base_offset=offset, compression=codec)
        for offset, codec in enumerate(Compression)
    )
    assert [(record.offset, record.value) for record in read_records(data, 1000)] == [
        (offset, b"%d" % offset) for offset in range(5)
    ]


def test_header_names_that_are_not_text_do_not_stop_the_reading() -> None:
    (record,) = read_records(build_batch([(0, None, None, [(b"a\xff", b"x")])]), 1000)
    assert record.headers == [("a\N{REPLACEMENT CHARACTER}", b"x")]


def test_the_checksum_is_checked_on_demand() -> None:
    damaged = bytearray(build_batch([(0, None, b"value", ())]))
    damaged[-3] ^= 1
    assert len(read_records(damaged, 1000)) == 1
    with pytest.raises(CorruptRecords):
        read_records(damaged, 1000, check_crc=True)


def test_records_larger_than_allowed_are_not_unpacked() -> None:
    batch = build_batch([(0, None, bytes(10**6), ())], compression=Compression.ZSTD)
    with pytest.raises(DecompressionLimit):
        read_records(batch, 10**5)


def test_a_batch_that_lies_about_its_records_is_refused() -> None:
    batch = bytearray(build_batch([(0, None, b"value", ())]))
    batch[60] = 2
    with pytest.raises(ApiError):
        read_records(batch, 1000)
