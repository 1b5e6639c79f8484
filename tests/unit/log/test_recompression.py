"""Batches brought into the codec of their topic: the same records, in another package."""

import os

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.log.options import LogOptions
from martlet.log.recompression import needs_recompression, recompress
from martlet.log.validation import check_client_batch
from martlet.wire.batch import HEADER_BYTES, crc_matches, read_batch_header, rebuild_batch
from martlet.wire.compression import Compression
from martlet.wire.records.record import read_records
from tests.unit.log.log_builders import NOW_MS, batch_of

VALUES = [b"the value of record %d " % number * 20 for number in range(50)]


def options_for(codec: int | None, **more: int) -> LogOptions:
    return LogOptions(compression=codec, **more)  # type: ignore[arg-type]


def refusal(batch: bytearray, options: LogOptions) -> ApiError:
    with pytest.raises(ApiError) as caught:
        recompress(memoryview(batch), read_batch_header(batch), options)
    return caught.value


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("wanted", Compression)
def test_the_records_come_out_as_they_went_in(codec: Compression, wanted: Compression) -> None:
    batch = batch_of(*VALUES, compression=codec, producer=(7, 2, 40))
    header = read_batch_header(batch)
    options = options_for(wanted)
    assert needs_recompression(header, options) == (codec != wanted)
    after, after_header = recompress(memoryview(batch), header, options)
    assert after_header == read_batch_header(after)
    assert after_header.compression == wanted
    assert after_header.size == len(after)
    assert crc_matches(after, 0, after_header)
    assert read_records(after, 1 << 20) == read_records(batch, 1 << 20)
    kept = ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch")
    for field in (*kept, "base_sequence", "record_count"):
        assert getattr(after_header, field) == getattr(header, field), field
    # A client could have sent it.
    check_client_batch(after, LogOptions(), now_ms=NOW_MS, produce_version=9)


def test_without_a_wish_of_the_topic_nothing_is_to_be_done() -> None:
    for codec in Compression:
        assert not needs_recompression(read_batch_header(batch_of(b"a", compression=codec)), LogOptions())


def test_the_other_attributes_stay() -> None:
    batch = batch_of(b"a", compression=Compression.GZIP, producer=(7, 2, 40))
    header = read_batch_header(batch)._replace(attributes=Compression.GZIP | 0x10)
    _, after = recompress(memoryview(batch), header, options_for(Compression.ZSTD))
    assert after.attributes == Compression.ZSTD | 0x10


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Compression.GZIP, 1, 9), (Compression.LZ4, 1, 12), (Compression.ZSTD, -500, 19)]
)
def test_a_level_is_what_the_codec_goes_by(codec: Compression, low: int, high: int) -> None:
    batch = batch_of(*[os.urandom(3).hex().encode() * 9 for _ in range(400)])
    sizes = [
        len(recompress(memoryview(batch), read_batch_header(batch), options_for(codec, compression_level=level))[0])
        for level in (low, high)
    ]
    assert sizes[1] < sizes[0]


def test_a_batch_that_becomes_too_large_is_refused() -> None:
    batch = batch_of(*[bytes(1000)] * 100, compression=Compression.GZIP)
    assert len(batch) < 2000
    plain = options_for(Compression.NONE, max_message_bytes=50_000)
    assert refusal(batch, plain).code is ErrorCode.MESSAGE_TOO_LARGE
    small = options_for(Compression.NONE, segment_bytes=50_000)
    assert refusal(batch, small).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_records_that_cannot_be_unpacked_are_refused_for_good() -> None:
    batch = batch_of(*VALUES, compression=Compression.GZIP)
    header = read_batch_header(batch)
    broken = bytearray(rebuild_batch(header._replace(attributes=Compression.NONE), bytes(batch[HEADER_BYTES:-5])))
    broken[22] = Compression.GZIP
    assert refusal(broken, options_for(Compression.ZSTD)).code is ErrorCode.INVALID_RECORD


def test_more_records_than_there_are_bytes_for_are_refused() -> None:
    batch = batch_of(b"a", b"b", compression=Compression.GZIP)
    header = read_batch_header(batch)._replace(record_count=5_000, last_offset_delta=4_999)
    with pytest.raises(ApiError, match="cannot hold 5000 records") as caught:
        recompress(memoryview(batch), header, options_for(Compression.ZSTD))
    assert caught.value.code is ErrorCode.INVALID_RECORD
