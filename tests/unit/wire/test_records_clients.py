"""Batches by kafka-python and aiokafka read by us, and ours read by them, in every codec."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch  # type: ignore[import-untyped]
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder

from martlet.wire.batch import TRANSACTIONAL_BIT, build_batch, crc_matches, read_batch_header
from martlet.wire.compression import Compression
from martlet.wire.records.encode import RecordFields
from martlet.wire.records.record import Record, read_records

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that newer Pythons deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords, MemoryRecordsBuilder  # type: ignore[import-untyped]

RECORDS: list[RecordFields] = [
    (1_700_000_000_000, b"key", b"value", []),
    (1_700_000_000_005, None, b"v" * 500, [("trace", b"abc"), ("empty", b"")]),
    (1_699_999_999_990, b"", b"", [("é", "ü".encode())]),
    (1_700_000_000_000, b"k" * 200, None, []),
] * 10

every_codec = pytest.mark.parametrize("codec", list(Compression))


def built_by_kafka_python(codec: int) -> bytes:
    builder = MemoryRecordsBuilder(
        magic=2, compression_type=codec, batch_size=1 << 20, producer_id=8, producer_epoch=1, base_sequence=4
    )
    for timestamp, key, value, headers in RECORDS:
        builder.append(timestamp, key, value, headers)
    builder.close()
    return bytes(builder.buffer())


def built_by_aiokafka(codec: int) -> bytes:
    builder: Any = AioBuilder(2, codec, 0, 8, 1, 4, 1 << 20)
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        builder.append(offset, timestamp=timestamp, key=key, value=value, headers=headers)
    return bytes(builder.build())


BUILDERS: dict[str, Callable[[int], bytes]] = {"kafka-python": built_by_kafka_python, "aiokafka": built_by_aiokafka}


@every_codec
@pytest.mark.parametrize("client", BUILDERS)
def test_a_batch_of_the_clients_is_read(client: str, codec: Compression) -> None:
    batch = BUILDERS[client](codec)
    header = read_batch_header(batch)
    assert header.size == len(batch)
    assert header.compression == codec
    assert crc_matches(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 1, 4)
    assert (header.record_count, header.last_offset_delta) == (40, 39)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_005)
    assert read_records(batch, 1 << 20, check_crc=True) == [
        Record(offset, timestamp, key, value, list(headers))  # type: ignore[arg-type]
        for offset, (timestamp, key, value, headers) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("client", BUILDERS)
def test_the_same_records_become_the_same_bytes(client: str) -> None:
    ours = build_batch(RECORDS, producer_id=8, producer_epoch=1, base_sequence=4)
    theirs = bytearray(BUILDERS[client](Compression.NONE))
    # The leader epoch is the broker's to fill in; the clients put zero there where we put "none".
    theirs[12:16] = b"\xff" * 4
    assert theirs == ours


class Seen(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def seen(record: Any) -> Seen:
    return Seen(record.offset, record.timestamp, record.key, record.value, list(record.headers))


EXPECTED = [Seen(50 + i, row[0], row[1], row[2], list(row[3])) for i, row in enumerate(RECORDS)]  # type: ignore[arg-type]


@every_codec
def test_kafka_python_reads_our_batches(codec: Compression) -> None:
    data = build_batch(RECORDS, base_offset=50, compression=codec, producer_id=3, attributes=TRANSACTIONAL_BIT)
    reader: Any = MemoryRecords(data + data)
    for _ in range(2):
        batch = reader.next_batch()
        assert batch.validate_crc()
        assert batch.is_transactional
        assert batch.compression_type == codec
        assert [seen(record) for record in batch] == EXPECTED
    assert reader.next_batch() is None


@every_codec
def test_aiokafka_reads_our_batches(codec: Compression) -> None:
    batch: Any = AioBatch(build_batch(RECORDS, base_offset=50, compression=codec, producer_id=3))
    assert batch.validate_crc()
    assert batch.producer_id == 3
    assert [seen(record) for record in batch] == EXPECTED
