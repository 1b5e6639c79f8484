"""The four codecs in which clients compress the records of a batch.

Rules: whole buffers in and out; nothing here knows batches or records. These calls take long for large input: a caller
that serves others meanwhile runs them in a thread (all of them release the interpreter lock, none shares state).

How it works: gzip is one RFC 1952 member; LZ4 is the frame format with independent blocks, the only kind Java reads;
Zstandard is one frame; Snappy comes in two dresses, bare or in the "xerial" framing of the Java library (a 16-byte
head, then chunks of i32 length + bare Snappy). Both are read; the framed one is written unless asked otherwise,
because every client reads it.

Invariants:
CODEC-1 The output never exceeds `max_bytes`, and no memory beyond it is touched: sizes declared in the input are
   compared with the limit but never believed.
CODEC-2 Input that is cut short, of another codec, or followed by something else is refused, never returned in part.

Proved by: tests/unit/wire/test_compression.py, tests/unit/wire/test_compression_bombs.py
"""

import zlib
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from martlet.base.errors import ApiError, ErrorCode
from martlet.wire.primitives import Buffer

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = Struct(">8sii")
_XERIAL_VERSION: Final = 1
_XERIAL_CHUNK_BYTES: Final = 32 * 1024
_CHUNK_LENGTH: Final = Struct(">i")
_GZIP_FORMAT: Final = 31
_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3
_LZ4_FAST: Final = 0
_LZ4_LEVEL: Final = 9
_LZ4_LEVELS: Final = (3, 16)
"""Those of its thorough way."""
_ZSTD_PROBE_BYTES: Final = 128 * 1024

_SNAPPY_EXPANSION_MAX: Final = 64
"""A Snappy copy takes two bytes at least and gives 64 at most, so a larger claim is a lie."""


class Compression(IntEnum):
    """The codec numbers of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionLimit(ApiError):
    """The data would decompress to more than the caller allows."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, f"the records decompress to more than {max_bytes} bytes")


def compress(kind: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the given codec; NONE only copies. Levels are those of Kafka's settings, Snappy has none."""
    if kind == Compression.NONE:
        return bytes(data)
    if kind == Compression.GZIP:
        compressor = zlib.compressobj(_GZIP_LEVEL if level is None else level, zlib.DEFLATED, _GZIP_FORMAT)
        return compressor.compress(data) + compressor.flush()
    if kind == Compression.SNAPPY:
        return compress_snappy(data, xerial=True)
    if kind == Compression.LZ4:
        # Kafka's default, 9, stands for the fast way; every other level for the thorough one.
        is_fast = level is None or level == _LZ4_LEVEL
        effort = _LZ4_FAST if is_fast else max(_LZ4_LEVELS[0], min(level or 0, _LZ4_LEVELS[1]))
        return bytes(lz4.frame.compress(data, compression_level=effort, block_linked=False, store_size=False))
    if kind == Compression.ZSTD:
        return zstandard.ZstdCompressor(level=_ZSTD_LEVEL if level is None else level).compress(data)
    raise _unknown(kind)


def decompress(kind: int, data: Buffer, *, max_bytes: int) -> bytes:
    """The original of `data`; raises DecompressionLimit (CODEC-1) or ApiError(CORRUPT_MESSAGE) (CODEC-2)."""
    if kind == Compression.NONE:
        if len(data) > max_bytes:
            raise DecompressionLimit(max_bytes)
        return bytes(data)
    if kind == Compression.GZIP:
        return _decompress_gzip(data, max_bytes)
    if kind == Compression.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if kind == Compression.LZ4:
        return _decompress_lz4(data, max_bytes)
    if kind == Compression.ZSTD:
        return _decompress_zstd(data, max_bytes)
    raise _unknown(kind)


def compress_snappy(data: Buffer, *, xerial: bool) -> bytes:
    """Snappy as Java writes it (`xerial`) or bare as librdkafka does."""
    if not xerial:
        return bytes(cramjam.snappy.compress_raw(data))
    view = memoryview(data)
    parts = [_XERIAL_HEAD.pack(XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    for start in range(0, len(view), _XERIAL_CHUNK_BYTES):
        chunk = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_CHUNK_BYTES]))
        parts.append(_CHUNK_LENGTH.pack(len(chunk)))
        parts.append(chunk)
    return b"".join(parts)


def _decompress_gzip(data: Buffer, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj(_GZIP_FORMAT)
    try:
        output = decompressor.decompress(data, max_bytes + 1)
    except zlib.error as cause:
        raise _corrupt("gzip", cause) from None
    if len(output) > max_bytes:
        raise DecompressionLimit(max_bytes)
    if not decompressor.eof or decompressor.unused_data:
        raise _corrupt("gzip", "it ends too early or too late")
    return output


def _decompress_lz4(data: Buffer, max_bytes: int) -> bytes:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        output: bytes = decompressor.decompress(data, max_length=max_bytes + 1)
    except RuntimeError as cause:
        raise _corrupt("LZ4", cause) from None
    if len(output) > max_bytes:
        raise DecompressionLimit(max_bytes)
    if not decompressor.eof or decompressor.unused_data:
        raise _corrupt("LZ4", "it ends too early or too late")
    return output


def _decompress_zstd(data: Buffer, max_bytes: int) -> bytes:
    try:
        declared_bytes = zstandard.get_frame_parameters(data).content_size
        if declared_bytes != zstandard.CONTENTSIZE_UNKNOWN and declared_bytes > max_bytes:
            raise DecompressionLimit(max_bytes)
        # Frames of unknown size go into a buffer of the greatest size; the kernel backs only the part that is written.
        output = zstandard.ZstdDecompressor().decompress(data, max_output_size=max(max_bytes, 1))
    except zstandard.ZstdError as cause:
        if _zstd_exceeds(data, max_bytes):
            raise DecompressionLimit(max_bytes) from None
        raise _corrupt("Zstandard", cause) from None
    if len(output) > max_bytes:
        raise DecompressionLimit(max_bytes)
    if _zstd_frame_bytes(data) != len(data):
        raise _corrupt("Zstandard", "something follows the frame")
    return output


def _zstd_frame_bytes(data: Buffer) -> int:
    """Where the frame at the start of `data` ends, by its blocks: the library tells for frames of known size only."""
    position = zstandard.frame_header_size(data)
    is_last = False
    while not is_last and position < len(data):
        header = int.from_bytes(data[position : position + 3], "little")
        is_last = bool(header & 1)
        is_repeated_byte = (header >> 1) & 3 == 1
        position += 3 + (1 if is_repeated_byte else header >> 3)
    return position + (4 if zstandard.get_frame_parameters(data).has_checksum else 0)


def _zstd_exceeds(data: Buffer, max_bytes: int) -> bool:
    """Tells a bomb from a broken frame, which the one-call interface reports alike."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(bytes(data)) as reader:
            seen_bytes = 0
            while seen_bytes <= max_bytes:
                chunk = reader.read(_ZSTD_PROBE_BYTES)
                if not chunk:
                    return False
                seen_bytes += len(chunk)
            return True
    except zstandard.ZstdError:
        return False


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_bare_snappy(view, max_bytes, max_bytes)
    position = _XERIAL_HEAD.size
    end = len(view)
    if position > end:
        raise _corrupt("Snappy", "the head is cut short")
    parts = []
    left_bytes = max_bytes
    while position < end:
        start = position + _CHUNK_LENGTH.size
        if start > end:
            raise _corrupt("Snappy", "a chunk's length is cut short")
        (length,) = _CHUNK_LENGTH.unpack_from(view, position)
        position = start + length
        if length <= 0 or position > end:
            raise _corrupt("Snappy", f"a chunk of {length} bytes where {end - start} are left")
        chunk = _decompress_bare_snappy(view[start:position], left_bytes, max_bytes)
        left_bytes -= len(chunk)
        parts.append(chunk)
    return b"".join(parts)


def _decompress_bare_snappy(view: memoryview, left_bytes: int, max_bytes: int) -> bytes:
    try:
        declared_bytes = cramjam.snappy.decompress_raw_len(view)
        if declared_bytes > len(view) * _SNAPPY_EXPANSION_MAX:
            raise _corrupt("Snappy", f"{len(view)} bytes claim to be {declared_bytes}")
        if declared_bytes > left_bytes:
            raise DecompressionLimit(max_bytes)
        return bytes(cramjam.snappy.decompress_raw(view))
    except cramjam.DecompressionError as cause:
        raise _corrupt("Snappy", cause) from None


def _corrupt(codec: str, reason: object) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the records are not whole {codec} data: {reason}")


def _unknown(kind: int) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"there is no compression codec {kind}")
