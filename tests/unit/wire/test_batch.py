"""Batch headers, checksums, stamping, walking and building."""

import pytest
from crc32c import crc32c

from martlet.base.errors import ApiError, ErrorCode
from martlet.wire.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TransactionMarker,
    build_batch,
    build_marker_batch,
    crc_matches,
    end_offset_of,
    iterate_batches,
    parse_marker,
    read_batch_header,
    rebuild_batch,
    stamp_batch,
    stamp_log_append_time,
)
from martlet.wire.compression import Compression
from martlet.wire.records.encode import RecordFields, encode_records
from martlet.wire.records.record import read_records

RECORDS: list[RecordFields] = [(1000, b"k1", b"v1", ()), (1007, None, b"v2", ()), (1003, b"k3", None, [("h", b"x")])]


def header(**changes: int) -> BatchHeader:
    return read_batch_header(build_batch(RECORDS))._replace(**changes)


def test_a_built_batch_says_in_its_header_what_was_put_in() -> None:
    batch = build_batch(
        RECORDS,
        base_offset=40,
        leader_epoch=3,
        producer_id=77,
        producer_epoch=2,
        base_sequence=9,
        attributes=TRANSACTIONAL_BIT,
    )
    found = read_batch_header(batch)
    assert found.size == len(batch)
    assert (found.base_offset, found.last_offset, found.next_offset) == (40, 42, 43)
    assert (found.base_timestamp, found.max_timestamp) == (1000, 1007)
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.last_sequence) == (77, 2, 9, 11)
    assert (found.magic, found.partition_leader_epoch, found.record_count) == (2, 3, 3)
    assert found.is_transactional
    assert not found.is_control
    assert not found.uses_log_append_time
    assert found.compression == Compression.NONE
    assert crc_matches(batch, 0, found)


def test_the_bytes_of_a_small_batch_are_those_of_the_specification() -> None:
    batch = build_batch([(5, b"k", b"v", ())])
    record = bytes([16, 0, 0, 0, 2, ord("k"), 2, ord("v"), 0])
    checksummed = bytes.fromhex("00000000000000000000000000050000000000000005ffffffffffffffffffffffffffff00000001")
    assert batch[HEADER_BYTES:] == record
    assert batch[21:HEADER_BYTES] == checksummed
    assert batch[:17] == bytes.fromhex("00000000000000000000003affffffff02")
    assert int.from_bytes(batch[17:21], "big") == crc32c(checksummed + record)


def test_a_header_is_read_at_a_position_of_any_kind_of_buffer() -> None:
    batch = build_batch(RECORDS)
    for buffer in (b"abc" + batch, bytearray(b"abc" + batch), memoryview(b"abc" + batch)):
        assert read_batch_header(buffer, 3) == read_batch_header(batch)
        assert crc_matches(buffer, 3, read_batch_header(batch))


@pytest.mark.parametrize("size", [0, 1, 60])
def test_a_short_header_is_a_value_error(size: int) -> None:
    with pytest.raises(ValueError, match="too few for a batch header"):
        read_batch_header(bytes(size))


def test_any_changed_byte_from_the_checksum_on_is_noticed() -> None:
    batch = build_batch(RECORDS)
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        assert not crc_matches(damaged, 0, read_batch_header(damaged)), position


def test_stamping_offset_and_epoch_leaves_the_checksum_true() -> None:
    buffer = memoryview(bytearray(b"head" + build_batch(RECORDS)))
    stamp_batch(buffer, 4, 123456789012, 7)
    stamped = read_batch_header(buffer, 4)
    assert (stamped.base_offset, stamped.partition_leader_epoch) == (123456789012, 7)
    assert crc_matches(buffer, 4, stamped)
    assert bytes(buffer[:4]) == b"head"


def test_stamping_the_append_time_changes_every_records_time_and_the_checksum() -> None:
    buffer = bytearray(b"head" + build_batch(RECORDS))
    stamped = stamp_log_append_time(buffer, 4, read_batch_header(buffer, 4), 5555)
    assert stamped == read_batch_header(buffer, 4)
    assert stamped.uses_log_append_time
    assert stamped.max_timestamp == 5555
    assert crc_matches(buffer, 4, stamped)
    assert [record.timestamp_ms for record in read_records(buffer[4:], 1000)] == [5555] * 3


def test_sequences_wrap_after_the_highest() -> None:
    highest = (1 << 31) - 1
    assert header(base_sequence=highest, last_offset_delta=0).last_sequence == highest
    assert header(base_sequence=highest, last_offset_delta=1).last_sequence == 0
    assert header(base_sequence=highest - 1, last_offset_delta=4).last_sequence == 2
    assert header(base_sequence=-1, last_offset_delta=4).last_sequence == -1


def test_walking_gives_whole_batches_only() -> None:
    batches = [build_batch(RECORDS[:count], base_offset=count * 10) for count in (1, 2, 3)]
    data = b"".join(batches)
    for cut in range(len(data) + 1):
        found = list(iterate_batches(data[:cut]))
        whole = [sum(map(len, batches[: index + 1])) <= cut for index in range(3)]
        assert [head.base_offset for _, head in found] == [10, 20, 30][: sum(whole)]
    assert [position for position, _ in iterate_batches(data)] == [
        0,
        len(batches[0]),
        len(batches[0]) + len(batches[1]),
    ]
    assert [head.base_offset for _, head in iterate_batches(data, len(batches[0]))] == [20, 30]


@pytest.mark.parametrize("length", [-(1 << 31), -12, -1, 0, 48])
def test_i2_a_length_that_no_batch_has_stops_the_walk(length: int) -> None:
    damaged = bytearray(build_batch(RECORDS))
    damaged[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(ApiError) as caught:
        list(iterate_batches(damaged))
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("compression", list(Compression))
def test_every_codec_builds_a_readable_batch(compression: Compression) -> None:
    batch = build_batch(RECORDS * 50, compression=compression)
    found = read_batch_header(batch)
    assert found.compression == compression
    assert crc_matches(batch, 0, found)
    records = read_records(batch, 1 << 20, check_crc=True)
    assert [(r.timestamp_ms, r.key, r.value) for r in records] == [row[:3] for row in RECORDS * 50]


def test_rebuilding_keeps_what_compaction_must_keep() -> None:
    original = read_batch_header(build_batch(RECORDS, base_offset=500, compression=Compression.LZ4, producer_id=4))
    rebuilt = rebuild_batch(original._replace(record_count=1), encode_records(RECORDS[:1], 1000))
    found = read_batch_header(rebuilt)
    assert (found.base_offset, found.last_offset, found.producer_id) == (500, 502, 4)
    assert crc_matches(rebuilt, 0, found)
    assert [record.offset for record in read_records(rebuilt, 1000)] == [500]


def test_a_batch_without_records_cannot_be_built_but_an_emptied_one_can() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        build_batch([])
    emptied = rebuild_batch(header(record_count=0), b"")
    assert len(emptied) == HEADER_BYTES
    assert read_batch_header(emptied).last_offset == 2
    assert read_records(emptied, 0) == []


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_marker_survives_the_round_trip(is_commit: bool) -> None:
    marker = TransactionMarker(is_commit, coordinator_epoch=12)
    batch = build_marker_batch(marker, producer_id=9, producer_epoch=1, timestamp_ms=77, base_offset=5)
    found = read_batch_header(batch)
    assert found.attributes == TRANSACTIONAL_BIT | CONTROL_BIT
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.record_count) == (9, 1, -1, 1)
    (record,) = read_records(batch, 1000)
    assert (record.offset, record.timestamp_ms) == (5, 77)
    assert parse_marker(record.key, record.value) == marker


def test_markers_of_other_kinds_and_broken_ones_are_told_apart() -> None:
    assert parse_marker(bytes((0, 0, 0, 5)), None) is None
    for key, value in ((None, None), (b"\0\0", b""), (bytes(4), b"\0\0\0")):
        with pytest.raises(ApiError) as caught:
            parse_marker(key, value)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_the_append_time_bit_is_bit_three() -> None:
    assert header(attributes=LOG_APPEND_TIME_BIT).uses_log_append_time
    assert LOG_APPEND_TIME_BIT == 8


@pytest.mark.parametrize("counts", [[1], [3], [1, 2, 3]])
def test_the_end_of_several_batches_is_that_of_the_last(counts: list[int]) -> None:
    data, offset = b"", 5
    for count in counts:
        data += build_batch([(0, None, b"v", ())] * count, base_offset=offset)
        offset += count
    assert end_offset_of(data) == offset
