"""Bringing a batch from a client into the compression that its topic asks for (`compression.type`).

Rules: what the records say stays as it is, byte for byte; only how they are packed changes, and with it the codec in
the attributes, the length and the checksum. A batch that has the right codec already is left alone, whatever its level,
as in Kafka. These calls take long for large batches: the caller runs them in a thread then.
Proved by: tests/unit/log/test_recompression.py
"""

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.invariant import invariant
from martlet.log.options import LogOptions
from martlet.log.validation import OPENED_BYTES_MAX, check_batch_size
from martlet.wire.batch import COMPRESSION_MASK, HEADER_BYTES, BatchHeader, read_batch_header, rebuild_batch
from martlet.wire.compression import Compression, decompress
from martlet.wire.records.layout import RECORD_BYTES_MIN


def needs_recompression(header: BatchHeader, options: LogOptions) -> bool:
    """Whether the topic asks for another codec than the batch has."""
    return options.compression is not None and header.compression != options.compression


def recompress(records: memoryview, header: BatchHeader, options: LogOptions) -> tuple[memoryview, BatchHeader]:
    """A checked batch in the topic's codec, writable, with its header; raises ApiError when it may not be appended."""
    invariant(options.compression is not None, "a topic that asks for no codec changes none")
    # Uncompressed it must not be larger than a batch may be: more than that need not be unpacked to be refused.
    is_plain = options.compression == Compression.NONE
    limit = min(OPENED_BYTES_MAX, options.max_message_bytes) if is_plain else OPENED_BYTES_MAX
    try:
        plain = decompress(header.compression, records[HEADER_BYTES:], max_bytes=limit)
    except ApiError as error:
        if error.code is ErrorCode.CORRUPT_MESSAGE:  # which tells clients to send the same bytes again
            raise ApiError(ErrorCode.INVALID_RECORD, f"the records cannot be read: {error.detail}") from error
        raise
    if header.record_count * RECORD_BYTES_MIN > len(plain):
        raise ApiError(ErrorCode.INVALID_RECORD, f"{len(plain)} bytes cannot hold {header.record_count} records")
    changed = header._replace(attributes=header.attributes & ~COMPRESSION_MASK | (options.compression or 0))
    batch = memoryview(bytearray(rebuild_batch(changed, plain, options.compression_level)))
    check_batch_size(len(batch), options)
    return batch, read_batch_header(batch)
