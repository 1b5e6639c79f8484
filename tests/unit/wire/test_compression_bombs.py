"""Small input that would become, or claims to become, a gigabyte: refused, and memory stays near the limit.

A code of 10 (too large) proves that a bomb really unpacks beyond the limit; bare lies are 2 (corrupt). Each bomb is set
off in a process of its own, because the peak of memory can be read per process only.
"""

import struct
import subprocess
import sys
import zlib

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.compression import XERIAL_MAGIC, Compression

LIMIT_BYTES = 1 << 20
GROWTH_BYTES_MAX = 16 << 20
GIGABYTE = 1 << 30

SET_OFF = """
import resource, sys
from martlet.wire.compression import DecompressionLimit, compress, decompress
from martlet.base.errors import ApiError
codec, limit = int(sys.argv[1]), int(sys.argv[2])
bomb = sys.stdin.buffer.read()
decompress(codec, compress(codec, bytes(1000)), max_bytes=limit)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, bomb, max_bytes=limit)
except ApiError as error:
    print(int(error.code), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def gzip_bomb() -> bytes:
    """Deflate reaches 1:1032 at most: 64 MiB in 64 KiB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()


def zstd_bomb() -> bytes:
    """Blocks of one repeated byte: four bytes for 128 KiB, a gigabyte in 32 KiB."""
    block = struct.pack("<I", (131072 << 3) | (1 << 1))[:3] + b"\x00"
    last = struct.pack("<I", (131072 << 3) | (1 << 1) | 1)[:3] + b"\x00"
    head = b"\x28\xb5\x2f\xfd" + bytes((0x00, 0x58))
    return head + block * (GIGABYTE // 131072 - 1) + last


def zstd_liar() -> bytes:
    """A whole frame that claims a gigabyte and holds ten bytes."""
    return (
        b"\x28\xb5\x2f\xfd"
        + bytes((0xA0,))
        + struct.pack("<I", GIGABYTE)
        + struct.pack("<I", (10 << 3) | 3)[:3]
        + b"\x00"
    )


def lz4_bomb() -> bytes:
    """LZ4 reaches 1:255 at most: blocks of one zero copied on and on, 64 MiB in 256 KiB."""
    block = b"\x1f\x00\x01\x00" + b"\xff" * 16000 + b"\x00" + b"\x50hello"
    head = bytes.fromhex("04224d186070")
    return head + _lz4_header_checksum(head[4:]) + (struct.pack("<I", len(block)) + block) * 16 + bytes(4)


def _lz4_header_checksum(descriptor: bytes) -> bytes:
    """The second byte of the descriptor's xxHash32; inputs under 16 bytes need only the hash's tail."""
    mask = 0xFFFFFFFF
    value = (374761393 + len(descriptor)) & mask
    for byte in descriptor:
        value = (value + byte * 374761393) & mask
        value = (((value << 11) | (value >> 21)) & mask) * 2654435761 & mask
    value = ((value ^ (value >> 15)) * 2246822519) & mask
    value = ((value ^ (value >> 13)) * 3266489917) & mask
    return bytes((((value ^ (value >> 16)) >> 8) & 0xFF,))


def snappy_bomb(xerial: bool) -> bytes:
    """A kilobyte that declares a gigabyte."""
    bare = b"\x80\x80\x80\x80\x04" + b"\x00x" + b"\xfe\x01\x00" * 330
    return XERIAL_MAGIC + struct.pack(">iii", 1, 1, len(bare)) + bare if xerial else bare


BOMBS = {
    "gzip": (Compression.GZIP, gzip_bomb(), ErrorCode.MESSAGE_TOO_LARGE),
    "bare snappy": (Compression.SNAPPY, snappy_bomb(xerial=False), ErrorCode.CORRUPT_MESSAGE),
    "framed snappy": (Compression.SNAPPY, snappy_bomb(xerial=True), ErrorCode.CORRUPT_MESSAGE),
    "lz4": (Compression.LZ4, lz4_bomb(), ErrorCode.MESSAGE_TOO_LARGE),
    "zstd": (Compression.ZSTD, zstd_bomb(), ErrorCode.MESSAGE_TOO_LARGE),
    "zstd with a false size": (Compression.ZSTD, zstd_liar(), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_the_limits_memory(name: str) -> None:
    codec, bomb, expected = BOMBS[name]
    run = subprocess.run(
        [sys.executable, "-c", SET_OFF, str(int(codec)), str(LIMIT_BYTES)],
        input=bomb,
        capture_output=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    code, growth_bytes = map(int, run.stdout.split())
    assert code == expected
    assert growth_bytes < GROWTH_BYTES_MAX
