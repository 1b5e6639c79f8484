"""The codecs: round trips, what other libraries write, and what is refused."""

import gzip
import struct
from collections.abc import Sequence
from contextlib import suppress

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard

from martlet.base.errors import ApiError, ErrorCode
from martlet.wire.compression import (
    XERIAL_MAGIC,
    Compression,
    DecompressionLimit,
    compress,
    compress_snappy,
    decompress,
)

CODECS = [codec for codec in Compression if codec != Compression.NONE]
TEXT = b"".join(b"record %d of many; " % number for number in range(5000))


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["nothing", "one byte", "text"])
def test_what_was_compressed_comes_back(codec: Compression, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert decompress(codec, memoryview(packed), max_bytes=len(data)) == data
    assert decompress(codec, packed, max_bytes=1 << 24) == data


@pytest.mark.parametrize("codec", CODECS)
def test_text_gets_smaller(codec: Compression) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) // 2


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, (-1, *range(1, 10))),
        (Compression.SNAPPY, (3,)),
        (Compression.LZ4, range(1, 18)),
        (Compression.ZSTD, (-131_072, -7, *range(1, 23))),
    ],
)
def test_every_level_that_kafka_allows_can_be_read_again(codec: Compression, levels: Sequence[int]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level), max_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", list(Compression))
def test_i1_one_byte_less_room_than_needed_is_refused(codec: Compression) -> None:
    with pytest.raises(DecompressionLimit) as caught:
        decompress(codec, compress(codec, TEXT), max_bytes=len(TEXT) - 1)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(DecompressionLimit):
        decompress(codec, compress(codec, b"x"), max_bytes=0)


@pytest.mark.parametrize("codec", CODECS)
def test_i2_input_cut_anywhere_is_refused(codec: Compression) -> None:
    packed = compress(codec, TEXT[:300])
    for cut in range(len(packed)):
        if codec == Compression.SNAPPY and cut == 16:
            continue  # a xerial head without chunks is an empty stream
        with pytest.raises(ApiError) as caught:
            decompress(codec, packed[:cut], max_bytes=1 << 20)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
def test_i2_input_with_something_behind_it_is_refused(codec: Compression) -> None:
    with pytest.raises(ApiError) as caught:
        decompress(codec, compress(codec, TEXT) + b"\x00", max_bytes=1 << 20)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("actual", list(Compression))
def test_i2_input_of_another_codec_is_refused(codec: Compression, actual: Compression) -> None:
    if codec == actual:
        return
    with pytest.raises(ApiError) as caught:
        decompress(codec, compress(actual, TEXT), max_bytes=1 << 20)
    assert caught.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("number", [-1, 5, 6, 7])
def test_codec_numbers_that_mean_nothing_are_refused(number: int) -> None:
    with pytest.raises(ApiError, match="no compression codec"):
        compress(number, b"x")
    with pytest.raises(ApiError, match="no compression codec") as caught:
        decompress(number, b"x", max_bytes=10)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_snappy_is_read_bare_and_framed_and_written_framed() -> None:
    assert compress(Compression.SNAPPY, TEXT).startswith(XERIAL_MAGIC)
    bare = compress_snappy(TEXT, xerial=False)
    assert bytes(cramjam.snappy.decompress_raw(bare)) == TEXT
    assert decompress(Compression.SNAPPY, bare, max_bytes=len(TEXT)) == TEXT
    framed = compress_snappy(TEXT, xerial=True)
    assert decompress(Compression.SNAPPY, framed, max_bytes=len(TEXT)) == TEXT
    for packed in (bare, framed):
        with pytest.raises(DecompressionLimit):
            decompress(Compression.SNAPPY, packed, max_bytes=len(TEXT) - 1)


def test_bare_snappy_cut_anywhere_is_refused() -> None:
    packed = compress_snappy(TEXT[:300], xerial=False)
    for cut in range(len(packed)):
        with pytest.raises(ApiError):
            decompress(Compression.SNAPPY, packed[:cut], max_bytes=1 << 20)


@pytest.mark.parametrize("length", [0, -1, -(1 << 31), 6, (1 << 31) - 1])
def test_chunk_lengths_of_framed_snappy_are_checked(length: int) -> None:
    packed = XERIAL_MAGIC + struct.pack(">iii", 1, 1, length) + b"\x01\x00x"
    with pytest.raises(ApiError) as caught:
        decompress(Compression.SNAPPY, packed, max_bytes=100)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_what_other_writers_make_is_read() -> None:
    streamed = zstandard.ZstdCompressor().compressobj()
    foreign = [
        (Compression.GZIP, gzip.compress(TEXT)),
        (Compression.LZ4, lz4.frame.compress(TEXT)),
        (Compression.LZ4, lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True, block_size=7)),
        (Compression.ZSTD, streamed.compress(TEXT) + streamed.flush()),
        (Compression.ZSTD, zstandard.ZstdCompressor(level=19, write_checksum=True).compress(TEXT)),
    ]
    for codec, packed in foreign:
        assert decompress(codec, packed, max_bytes=len(TEXT)) == TEXT
        with pytest.raises(DecompressionLimit):
            decompress(codec, packed, max_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("data", [b"", b"x", TEXT, TEXT * 20, bytes(1 << 20)], ids=len)
def test_a_frame_of_unknown_size_ends_where_it_ends(data: bytes, checksum: bool) -> None:
    streamed = zstandard.ZstdCompressor(write_checksum=checksum).compressobj()
    packed = streamed.compress(data) + streamed.flush()
    assert decompress(Compression.ZSTD, packed, max_bytes=len(data)) == data
    for tail in (b"\0", packed):
        with pytest.raises(ApiError) as caught:
            decompress(Compression.ZSTD, packed + tail, max_bytes=1 << 22)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_frame_of_unknown_size_that_is_cut_is_corrupt_and_not_too_large() -> None:
    streamed = zstandard.ZstdCompressor().compressobj()
    packed = streamed.compress(TEXT) + streamed.flush()
    with pytest.raises(ApiError) as caught:
        decompress(Compression.ZSTD, packed[:-1], max_bytes=1 << 20)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_lz4_frames_have_independent_blocks_because_java_reads_no_others() -> None:
    info = lz4.frame.get_frame_info(compress(Compression.LZ4, TEXT))
    assert not info["block_linked"]


@pytest.mark.parametrize("codec", [*CODECS, "bare snappy"])
def test_damaged_input_raises_nothing_but_api_errors(codec: Compression | str) -> None:
    text = TEXT[:400]
    if isinstance(codec, Compression):
        kind, packed = codec, compress(codec, text)
    else:
        kind, packed = Compression.SNAPPY, compress_snappy(text, xerial=False)
    for at in range(len(packed)):
        for value in (0x00, 0x01, 0x7F, 0x80, 0xFF, packed[at] ^ 0x10):
            damaged = packed[:at] + bytes((value,)) + packed[at + 1 :]
            with suppress(ApiError):
                assert len(decompress(kind, damaged, max_bytes=1000)) <= 1000
