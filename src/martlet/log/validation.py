"""What a batch from a client must be before it may enter a log.

Rules: checks, changes nothing. Every refusal is an ApiError with the code Kafka uses and a sentence that says what was
wrong, checked in Kafka's order, so that a batch with two faults gets the same answer from both.

How it works: the header and the checksum suffice, records stay closed. They are opened only on compacted topics, where
each needs a key, and where a lower bound for timestamps is set. That a batch holds as many records as its header says
is taken from the client: readers find out, and only those of its own records suffer.
Proved by: tests/unit/log/test_validation.py
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.log.options import LogOptions
from martlet.wire.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_matches, read_batch_header
from martlet.wire.compression import Compression
from martlet.wire.records.layout import RECORD_BYTES_MIN
from martlet.wire.records.record import Record, read_records

OPENED_BYTES_MAX: Final = 64 << 20
"""What the records of one batch may decompress to where a broker has to open them."""

_NO_TIMESTAMP: Final = -1
_ZSTD_SINCE_VERSION: Final = 7
_UNKNOWN_BITS: Final = ~0x1F
_CONTROL_BIT: Final = 0x20
_LOG_APPEND_TIME_BIT: Final = 0x08


class InvalidRecords(ApiError):
    """Some records of a batch are not acceptable; `record_errors` holds the number of each and why."""

    def __init__(self, detail: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, detail)
        self.record_errors = record_errors


def check_client_batch(
    records: memoryview | None, options: LogOptions, *, now_ms: int, produce_version: int
) -> BatchHeader:
    """The header of the one batch in `records`; raises ApiError when it may not be appended."""
    if not records:
        raise ApiError(ErrorCode.INVALID_RECORD, "there are no records")
    size = len(records)
    if size < HEADER_BYTES:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are too few for a batch")
    header = read_batch_header(records)
    attributes = header.attributes
    if header.magic != MAGIC or header.base_offset != 0 or header.batch_length + 12 < size:
        raise _not_one_batch(header, size)
    if attributes & 7 >= Compression.ZSTD and (
        attributes & 7 > Compression.ZSTD or produce_version < _ZSTD_SINCE_VERSION
    ):
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {attributes & 7} cannot come with version {produce_version}"
        )
    check_batch_size(size, options)
    if header.batch_length + 12 != size or not crc_matches(records, 0, header):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "the batch is cut short or its checksum does not match")
    if (
        header.record_count <= 0
        or header.record_count != header.last_offset_delta + 1
        or (not attributes & 7 and header.record_count * RECORD_BYTES_MIN > size - HEADER_BYTES)
        or attributes & (_UNKNOWN_BITS | _LOG_APPEND_TIME_BIT)
        or header.producer_id < -1
        or (header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0))
        or (attributes & 0x10 and header.producer_id < 0)
    ):
        raise _invalid(header)
    if options.compact:
        _check_keys(records)
    if not options.log_append_time:
        _check_times(records, header, options, now_ms)
    return header


def check_batch_size(size: int, options: LogOptions) -> None:
    """Refuse a batch that is larger than the topic allows."""
    if size > options.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, the topic allows {options.max_message_bytes}"
        )
    if size > options.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"the batch has {size} bytes, a segment only {options.segment_bytes}"
        )


def _not_one_batch(header: BatchHeader, size: int) -> ApiError:
    if header.magic != MAGIC:
        detail = f"the batch has format {header.magic}, only format {MAGIC} is accepted"
    elif header.base_offset != 0:
        detail = f"the batch begins at offset {header.base_offset}; offsets are for the broker to give"
    elif header.size < HEADER_BYTES:
        return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch says it has {header.size} bytes")
    else:
        detail = f"{size} bytes hold more than one batch"
    return ApiError(ErrorCode.INVALID_RECORD, detail)


def _invalid(header: BatchHeader) -> ApiError:
    attributes = header.attributes
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        detail = f"{header.record_count} records do not fit offsets 0 to {header.last_offset_delta}"
    elif not attributes & 7 and header.record_count * RECORD_BYTES_MIN > header.size - HEADER_BYTES:
        detail = f"{header.size} bytes cannot hold {header.record_count} records"
    elif attributes & _CONTROL_BIT:
        detail = "only brokers write control batches"
    elif attributes & _UNKNOWN_BITS:
        detail = f"attributes {attributes & 0xFFFF:#06x} are not a client's to set"
    elif attributes & _LOG_APPEND_TIME_BIT:
        return ApiError(ErrorCode.INVALID_TIMESTAMP, "only brokers set the log append time")
    elif header.producer_id < 0:
        detail = f"a batch of producer {header.producer_id} cannot be like this"
    else:
        detail = f"sequence {header.base_sequence} in epoch {header.producer_epoch} of producer {header.producer_id}"
    return ApiError(ErrorCode.INVALID_RECORD, detail)


def _check_keys(records: memoryview) -> None:
    missing = [
        (number, "a record of a compacted topic needs a key")
        for number, record in enumerate(_open(records))
        if record.key is None
    ]
    if missing:
        raise InvalidRecords(f"{len(missing)} records of a compacted topic have no key", missing)


def _check_times(records: memoryview, header: BatchHeader, options: LogOptions, now_ms: int) -> None:
    latest = header.max_timestamp
    if latest - now_ms > options.timestamp_after_max_ms and latest != _NO_TIMESTAMP:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {latest} is more than {options.timestamp_after_max_ms} ms after the broker's {now_ms}",
        )
    if options.bounds_past_timestamps:
        earliest = min((record.timestamp_ms for record in _open(records)), default=_NO_TIMESTAMP)
        if now_ms - earliest > options.timestamp_before_max_ms and earliest != _NO_TIMESTAMP:
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {earliest} is more than {options.timestamp_before_max_ms} ms before the broker's {now_ms}",
            )


def _open(records: memoryview) -> list[Record]:
    try:
        return read_records(records, OPENED_BYTES_MAX)
    except ApiError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"the records cannot be read: {error.detail}") from error
