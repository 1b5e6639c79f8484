"""Input made to cost memory: absurd counts, compression bombs, a flood of names. The process hardly grows."""

import struct
import zlib
from collections.abc import Callable

import crc32c
import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import BatchHeader
from martlet.wire.compression import Compression, compress
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import ConnectionClosed, RawClient
from tests.broker.requests import create_topic, list_offset, now_ms, publish

MEBIBYTE = 1 << 20
ABSURD = {
    "old array": (ApiKey.METADATA, 1, struct.pack(">i", 2**31 - 1)),
    "compact array": (ApiKey.METADATA, 12, b"\xff\xff\xff\xff\x0f"),
    "produce topics": (ApiKey.PRODUCE, 8, struct.pack(">hhii", -1, 1, 1, 2**31 - 1)),
    "fetch topics": (ApiKey.FETCH, 4, bytes(17) + struct.pack(">i", 2**31 - 1)),
    "nested": (ApiKey.LIST_OFFSETS, 1, struct.pack(">ii", -1, 1) + b"\x00\x01a" + struct.pack(">i", 2**31 - 1)),
    "tags": (ApiKey.METADATA, 12, b"\x01\x00\x00\xff\xff\xff\xff\x0f"),
    "assignments": (ApiKey.CREATE_TOPICS, 2, struct.pack(">ihc", 1, 1, b"a") + struct.pack(">ihi", 1, 1, 2**31 - 1)),
}
SMALLEST_ELEMENTS = {
    "null topics": (ApiKey.METADATA, 12, bytes(16) + b"\x00\x00"),
    "empty names": (ApiKey.METADATA, 1, b"\x00\x00"),
    "delete names": (ApiKey.DELETE_TOPICS, 1, b"\x00\x00"),
}


def test_absurd_counts_cost_no_memory(make_process: Callable[..., BrokerProcess]) -> None:
    process = make_process()
    with RawClient(process.address) as good:
        for key, version, body in ABSURD.values():
            _send_and_lose(process.address, key, version, body)
        before = process.rss_bytes()
        for _ in range(50):
            for key, version, body in ABSURD.values():
                _send_and_lose(process.address, key, version, body)
        good.api_versions()
        assert process.rss_bytes() - before < 10 * MEBIBYTE


@pytest.mark.parametrize("name", SMALLEST_ELEMENTS)
def test_a_large_request_of_the_smallest_elements_is_refused(
    make_process: Callable[..., BrokerProcess], name: str
) -> None:
    key, version, element = SMALLEST_ELEMENTS[name]
    process = make_process()
    count = 20 * MEBIBYTE // len(element)
    flexible = version >= 9
    head = _uvarint(count + 1) if flexible else struct.pack(">i", count)
    with RawClient(process.address) as good:
        good.api_versions()
        before = process.rss_bytes()
        _send_and_lose(process.address, key, version, head + element * count + b"\x00" * 3)
        good.api_versions()
        grown = process.rss_bytes() - before
        assert grown < 120 * MEBIBYTE, f"{grown >> 20} MiB for a frame of 20"


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_compression_bomb_costs_a_bounded_amount_of_memory(
    make_process: Callable[..., BrokerProcess], compression: Compression
) -> None:
    process = make_process()
    bomb = _bomb(compression)
    with RawClient(process.address, timeout_seconds=60) as client:
        # Publishing to a compacted topic and searching by time are what makes a broker open batches.
        plain, compacted = create_topic(client), create_topic(client, cleanup_policy="compact")
        before = process.rss_bytes()
        codes = [publish(client, topic, bomb).error_code for topic in (plain, compacted)]
        assert codes[1] != ErrorCode.NONE
        list_offset(client, plain, 1)
        assert process.rss_bytes() - before < 150 * MEBIBYTE
        assert client.api_versions().error_code == ErrorCode.NONE


def _bomb(compression: Compression) -> bytes:
    """A batch of at most 1 MB that claims one record and unfolds to 256 MiB of zeros or as much as its codec can."""
    if compression is Compression.GZIP:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        body = b"".join(packer.compress(bytes(MEBIBYTE)) for _ in range(256)) + packer.flush()
    else:
        body = compress(compression, bytes((20 if compression is Compression.SNAPPY else 200) * MEBIBYTE))
    assert len(body) < 1_000_000
    at_ms = now_ms()
    header = BatchHeader(0, 49 + len(body), -1, 2, 0, compression, 0, at_ms, at_ms, -1, -1, -1, 1)
    checksummed = struct.pack(">hiqqqhii", *header[5:]) + body
    return struct.pack(">qiibI", *header[:4], crc32c.crc32c(checksummed)) + checksummed


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _send_and_lose(address: str, key: ApiKey, version: int, body: bytes) -> None:
    """A request that must end its connection, which it may do before all of it is sent."""
    with RawClient(address, timeout_seconds=60) as connection:
        try:
            connection.send(key, version, body)
            connection.receive_frame()
        except (ConnectionClosed, ConnectionError):
            return
    raise AssertionError("the request was answered")
