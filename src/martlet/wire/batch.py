"""The record batch (magic 2): its header, its checksum, the few bytes a broker may rewrite, and building one.

Rules: only the 61 header bytes are understood here; what lies behind them is opaque (`wire/records/` reads it).
Everything works on a caller's buffer at a position, so nothing is copied.

How it works: big-endian, the byte positions being those of the wire and of the disk alike.

    0 base_offset i64          21 attributes i16           43 producer_id i64
    8 batch_length i32         23 last_offset_delta i32    51 producer_epoch i16
   12 leader_epoch i32         27 base_timestamp i64       53 base_sequence i32
   16 magic i8                 35 max_timestamp i64        57 record_count i32
   17 crc u32 (CRC-32C of everything from byte 21 on)      61 records, maybe compressed

Attributes: bits 0-2 compression, 3 log append time, 4 transactional, 5 control, 6 delete horizon.

Invariants:
BATCH-1 Offset and leader epoch lie before the checksummed part: stamping them never touches the checksum.
BATCH-2 A batch's size is `batch_length + 12`; a length below that of a bare header is corrupt, never skipped over.

Proved by: tests/unit/wire/test_batch.py, tests/properties/test_records.py
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from struct import Struct, error
from typing import Final, NamedTuple, cast

from crc32c import crc32c

from martlet.base.errors import ApiError, ErrorCode
from martlet.wire.compression import Compression, compress
from martlet.wire.primitives import Buffer
from martlet.wire.records.encode import RecordFields, encode_records

HEADER_BYTES: Final = 61
LENGTH_OVERHEAD_BYTES: Final = 12
"""What `batch_length` does not count: the base offset and itself."""
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

_HEADER: Final = Struct(">qiibIhiqqqhii")
_BEFORE_CHECKSUM: Final = Struct(">qiibI")
_CHECKSUMMED: Final = Struct(">hiqqqhii")
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")
_CRC: Final = Struct(">I")
_BATCH_LENGTH: Final = Struct(">i")
_LENGTH_AT: Final = 8
_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
_CHECKSUM_FROM: Final = 21
_MAX_TIMESTAMP_AT: Final = 35

_SEQUENCE_MODULUS: Final = 1 << 31

_MARKER_KEY: Final = Struct(">hh")
_MARKER_VALUE: Final = Struct(">hi")
_MARKER_ABORT: Final = 0
_MARKER_COMMIT: Final = 1


class BatchHeader(NamedTuple):
    """The header as it stands in the bytes; nothing in it has been checked."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec's number; may be an unknown one (see `Compression`)."""
        return self.attributes & COMPRESSION_MASK

    @property
    def uses_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; after 2³¹−1 comes 0. Without sequences -1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_MODULUS


# The generated constructor takes thirteen arguments one by one; this one takes struct's tuple as it is.
_header_of_fields = cast(Callable[[tuple[int, ...]], BatchHeader], partial(tuple.__new__, BatchHeader))


def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; raises ValueError when fewer than 61 bytes are there."""
    try:
        return _header_of_fields(_HEADER.unpack_from(buffer, position))
    except error:
        raise ValueError(f"{len(buffer) - position} bytes at {position}, too few for a batch header") from None


def crc_matches(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the checksum in the header is that of the batch, all of which must be in the buffer."""
    return batch_crc(buffer, position, header.batch_length + LENGTH_OVERHEAD_BYTES) == header.crc


def batch_crc(buffer: Buffer, position: int, size: int) -> int:
    """The CRC-32C of the checksummed part of a batch of `size` bytes."""
    return crc32c(memoryview(buffer)[position + _CHECKSUM_FROM : position + size])


def stamp_batch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch its place in the log (BATCH-1)."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _EPOCH_AT, leader_epoch)


def stamp_log_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int
) -> BatchHeader:
    """Make `now_ms` the time of every record of the batch; returns the header as it is afterwards."""
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(buffer, position + _CHECKSUM_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, now_ms)
    crc = batch_crc(buffer, position, header.size)
    _CRC.pack_into(buffer, position + _CRC_AT, crc)
    return header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc)


def end_offset_of(data: Buffer) -> int:
    """The offset behind the last of these whole batches, of which there is at least one; reads their lengths only."""
    position, end = 0, len(data)
    while True:
        size = _BATCH_LENGTH.unpack_from(data, position + _LENGTH_AT)[0] + LENGTH_OVERHEAD_BYTES
        if position + size >= end or size < HEADER_BYTES:
            return read_batch_header(data, position).next_offset
        position += size


def iterate_batches(data: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch from `position` on; a cut-off batch at the end is left out.

    Raises ApiError(CORRUPT_MESSAGE) on a length that no batch can have (BATCH-2). Nothing else is checked.
    """
    end = len(data)
    while position + HEADER_BYTES <= end:
        header = read_batch_header(data, position)
        size = header.batch_length + LENGTH_OVERHEAD_BYTES
        if size < HEADER_BYTES:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a batch at byte {position} claims {size} bytes")
        if position + size > end:
            return
        yield position, header
        position += size


def build_batch(
    records: Sequence[RecordFields],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """One batch of (timestamp_ms, key, value, headers) at consecutive offsets; at least one record.

    `attributes` are further bits (`TRANSACTIONAL_BIT`, `CONTROL_BIT`); the compression's are added.
    """
    if not records:
        raise ValueError("a batch needs a record")
    timestamps = [record[0] for record in records]
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes | compression,
        last_offset_delta=len(records) - 1,
        base_timestamp=timestamps[0],
        max_timestamp=max(timestamps),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return rebuild_batch(header, encode_records(records, timestamps[0]))


def rebuild_batch(header: BatchHeader, records: Buffer, level: int | None = None) -> bytes:
    """A batch with all that `header` says but length and checksum, which follow from `records`.

    `records` are uncompressed and become compressed as the header's attributes say. Compaction uses this to keep some
    of a batch's records: their offset and time deltas stay true because base offset and base timestamp stay.
    """
    body = compress(header.compression, records, level) if header.attributes & COMPRESSION_MASK else records
    checksummed = _CHECKSUMMED.pack(*header[5:])
    crc = crc32c(body, crc32c(checksummed))
    batch_length = HEADER_BYTES - LENGTH_OVERHEAD_BYTES + len(body)
    first = _BEFORE_CHECKSUM.pack(header.base_offset, batch_length, header.partition_leader_epoch, header.magic, crc)
    return b"".join((first, checksummed, body))


class TransactionMarker(NamedTuple):
    """What a control batch says about the transaction of its producer."""

    is_commit: bool
    coordinator_epoch: int


def encode_marker(marker: TransactionMarker) -> tuple[bytes, bytes]:
    """Key and value of the one record of a control batch; the inverse of `parse_marker`."""
    key = _MARKER_KEY.pack(0, _MARKER_COMMIT if marker.is_commit else _MARKER_ABORT)
    return key, _MARKER_VALUE.pack(0, marker.coordinator_epoch)


def build_marker_batch(
    marker: TransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a producer's transaction on a partition; it takes one offset."""
    return build_batch(
        [(timestamp_ms, *encode_marker(marker), ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
    )


def read_marker(batch: Buffer, position: int = 0) -> TransactionMarker | None:
    """The marker in a whole control batch; None when there is none, as in one that compaction has emptied."""
    try:
        at = position + HEADER_BYTES
        at = _after_varint(batch, at) + 1  # the record's length, its attributes
        at = _after_varint(batch, _after_varint(batch, at))  # timestamp, offset
        key_size = batch[at] >> 1
        value_at = at + 1 + key_size
        value_size = batch[value_at] >> 1
        return parse_marker(batch[at + 1 : value_at], batch[value_at + 1 : value_at + 1 + value_size])
    except (IndexError, ApiError):
        return None


def _after_varint(data: Buffer, position: int) -> int:
    while data[position] & 0x80:
        position += 1
    return position + 1


def parse_marker(key: Buffer | None, value: Buffer | None) -> TransactionMarker | None:
    """The marker in the one record of a control batch; None for a control record of another kind.

    Raises ApiError(CORRUPT_MESSAGE) when the bytes are too short. Newer versions may have longer keys and values.
    """
    try:
        _, kind = _MARKER_KEY.unpack_from(key or b"")
        if kind not in (_MARKER_ABORT, _MARKER_COMMIT):
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(value or b"")
    except error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a transaction marker is cut short") from None
    return TransactionMarker(kind == _MARKER_COMMIT, coordinator_epoch)
