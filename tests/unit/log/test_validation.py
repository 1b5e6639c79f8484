"""What a client's batch must be: every refusal with its code, in order."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.log.options import LogOptions
from martlet.log.validation import InvalidRecords, check_client_batch
from martlet.wire.batch import BatchHeader, build_batch, read_batch_header, rebuild_batch
from tests.unit.log.log_builders import NOW_MS, batch_of

PLAIN = LogOptions()
COMPACTED = LogOptions(compact=True)


def check(batch: bytes | bytearray | None, options: LogOptions = PLAIN, *, version: int = 9) -> BatchHeader:
    records = None if batch is None else memoryview(batch)
    return check_client_batch(records, options, now_ms=NOW_MS, produce_version=version)


def refusal(batch: bytes | bytearray | None, options: LogOptions = PLAIN, *, version: int = 9) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        check(batch, options, version=version)
    assert caught.value.detail
    return caught.value.code


def changed(batch: bytes | bytearray, **fields: int) -> bytes:
    """The batch with other header fields and a checksum that fits them."""
    return rebuild_batch(read_batch_header(batch)._replace(**fields), bytes(batch[61:]))


@pytest.mark.parametrize("compression", range(5))
def test_good_batches_are_accepted(compression: int) -> None:
    batch = batch_of(b"a", b"b", compression=compression, producer=(5, 0, 3))
    assert check(batch) == read_batch_header(batch)
    assert check(batch, COMPACTED) == read_batch_header(batch)


@pytest.mark.parametrize(("batch", "code"), [(None, 87), (b"", 87), (b"x", 2), (bytes(60), 2), (bytes(61), 87)])
def test_what_is_no_batch_is_refused(batch: bytes | None, code: int) -> None:
    assert refusal(batch) == code


def test_other_formats_are_refused() -> None:
    for magic in (0, 1, 3, -1):
        assert refusal(changed(batch_of(b"a"), magic=magic)) == ErrorCode.INVALID_RECORD


def test_exactly_one_batch_is_accepted() -> None:
    assert refusal(batch_of(b"a") + batch_of(b"b")) == ErrorCode.INVALID_RECORD
    assert refusal(batch_of(b"a") + b"x") == ErrorCode.INVALID_RECORD


def test_offsets_are_the_brokers_to_give() -> None:
    assert refusal(changed(batch_of(b"a"), base_offset=1)) == ErrorCode.INVALID_RECORD


def test_zstd_needs_version_seven_and_unknown_codecs_are_refused() -> None:
    batch = batch_of(b"a", compression=4)
    assert refusal(batch, version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    check(batch, version=7)
    unknown = bytearray(batch_of(b"a"))
    unknown[22] = 5
    assert refusal(unknown) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_size_is_checked_before_the_checksum() -> None:
    batch = batch_of(b"a" * 100)
    batch[-1] ^= 1
    assert refusal(batch, LogOptions(max_message_bytes=len(batch) - 1)) == ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(batch, LogOptions(segment_bytes=len(batch) - 1)) == ErrorCode.RECORD_LIST_TOO_LARGE
    assert refusal(batch, LogOptions(max_message_bytes=len(batch))) == ErrorCode.CORRUPT_MESSAGE


def test_every_flipped_bit_of_the_checked_part_is_noticed() -> None:
    batch = batch_of(b"value", producer=(5, 0, 0))
    for bit in range(17 * 8, len(batch) * 8):
        batch[bit // 8] ^= 1 << (bit % 8)
        assert refusal(batch) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        batch[bit // 8] ^= 1 << (bit % 8)
    check(batch)


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48, 49, 5000, (1 << 31) - 1])
def test_a_wrong_length_is_corrupt_or_several(length: int) -> None:
    batch = batch_of(b"value")
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    assert refusal(batch) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 0},
        {"record_count": -1},
        {"record_count": 1},
        {"record_count": 3},
        {"last_offset_delta": -1},
        {"last_offset_delta": (1 << 31) - 1},
        {"last_offset_delta": 9_999, "record_count": 10_000},
        {"attributes": 0x20},
        {"attributes": 0x40},
        {"attributes": -0x8000},
        {"attributes": 0x10},
        {"producer_id": 4},
        {"producer_id": 4, "producer_epoch": 0},
        {"producer_id": 4, "base_sequence": 0},
        {"producer_id": -2},
    ],
)
def test_headers_that_contradict_themselves_are_invalid(fields: dict[str, int]) -> None:
    assert refusal(changed(batch_of(b"a", b"b"), **fields)) == ErrorCode.INVALID_RECORD


def test_the_log_append_time_is_the_brokers_to_set() -> None:
    assert refusal(changed(batch_of(b"a"), attributes=0x08)) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("compression", range(5))
def test_a_compacted_topic_needs_keys(compression: int) -> None:
    batch = build_batch(
        [(NOW_MS, b"k", b"1", ()), (NOW_MS, None, b"2", ()), (NOW_MS, b"", b"3", ()), (NOW_MS, None, None, ())],
        compression=compression,
    )
    check(batch)
    with pytest.raises(InvalidRecords) as caught:
        check(batch, COMPACTED)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert [number for number, _ in caught.value.record_errors] == [1, 3]


def test_records_that_cannot_be_read_are_invalid_where_they_are_read() -> None:
    batch = rebuild_batch(read_batch_header(batch_of(b"a")), b"\xff" * 30)
    check(batch)
    assert refusal(batch, COMPACTED) == ErrorCode.INVALID_RECORD


def test_timestamps_too_far_ahead_are_refused() -> None:
    options = LogOptions(timestamp_after_max_ms=1000)
    check(batch_of(b"a", timestamp_ms=NOW_MS + 1000), options)
    assert refusal(batch_of(b"a", timestamp_ms=NOW_MS + 1001), options) == ErrorCode.INVALID_TIMESTAMP
    check(batch_of(b"a", timestamp_ms=NOW_MS + 5000), LogOptions(timestamp_after_max_ms=1000, log_append_time=True))


def test_timestamps_too_far_back_are_refused_record_by_record() -> None:
    options = LogOptions(timestamp_before_max_ms=1000)
    check(batch_of(b"a", timestamp_ms=NOW_MS - 1000), options)
    late_first = build_batch([(NOW_MS, b"k", b"1", ()), (NOW_MS - 1001, b"k", b"2", ())])
    assert refusal(late_first, options) == ErrorCode.INVALID_TIMESTAMP
    check(batch_of(b"a", timestamp_ms=-1), options)


def test_a_batch_may_have_no_timestamp() -> None:
    check(batch_of(b"a", timestamp_ms=-1), LogOptions(timestamp_after_max_ms=0))
