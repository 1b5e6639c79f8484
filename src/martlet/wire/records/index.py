"""The record index as callers see it: open batches, index their records, in whichever way is the fastest here.

Rules: callers import from here; which implementation runs is decided once; `codec_name()` says which.

How it works: `unpack_batches` turns fetched bytes into one buffer of uncompressed records and a span per batch (without
a copy where nothing is compressed); `index_records` gives the position of everything in it. Slicing, numpy, or Arrow's
`take` over the same buffer does the rest. Few records are not worth waking numpy for.

Proved by: tests/unit/wire/test_records_index.py, tests/properties/test_records.py
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, Literal, TypeAlias

from martlet.wire.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_matches, iterate_batches
from martlet.wire.compression import DecompressionLimit, decompress
from martlet.wire.primitives import Buffer
from martlet.wire.records import plain
from martlet.wire.records.compiled import IS_COMPILED
from martlet.wire.records.layout import CorruptRecords, RecordIndex, RecordSpan, check_spans

__all__ = [
    "CorruptRecords",
    "RecordIndex",
    "RecordSpan",
    "codec_name",
    "compiled_index",
    "index_records",
    "unpack_batches",
]

CodecName: TypeAlias = Literal["compiled", "numpy", "plain"]
Indexer: TypeAlias = Callable[[bytes, Sequence[RecordSpan]], RecordIndex]

_PLAIN_RECORDS_MAX: Final = 64
"""Up to here the plain loop beats numpy's fixed cost."""


def codec_name() -> CodecName:
    """Which implementation indexes many records in this installation."""
    if IS_COMPILED:
        return "compiled"
    return "plain" if _vectorised() is None else "numpy"


def index_records(data: bytes, batches: Sequence[RecordSpan]) -> RecordIndex:
    """Index the records of all batches, as `unpack_batches` gave them; raises CorruptRecords."""
    if IS_COMPILED:
        return compiled_index(data, batches)
    if sum(span.record_count for span in batches) > _PLAIN_RECORDS_MAX:
        vectorised = _vectorised()
        if vectorised is not None:
            return vectorised(data, batches)
    return plain.index_records(data, batches)


def compiled_index(data: bytes, spans: Sequence[RecordSpan]) -> RecordIndex:
    """The index by `native.py`, whether it is compiled or, in a test, interpreted."""
    from martlet.wire.records import native

    count = check_spans(len(data), spans)
    try:
        columns = native.index_spans(data, list(spans), count)
    except ValueError as cause:
        raise CorruptRecords(str(cause)) from None
    return RecordIndex(
        count,
        memoryview(columns.record_bounds),
        memoryview(columns.bounds),
        memoryview(columns.offsets),
        memoryview(columns.timestamps),
        memoryview(columns.null_keys),
        memoryview(columns.null_values),
        memoryview(columns.header_counts),
        memoryview(columns.header_bounds),
        memoryview(columns.header_null_values),
    )


def unpack_batches(
    data: Buffer,
    batches: Iterable[tuple[int, BatchHeader]] | None = None,
    *,
    max_bytes: int,
    check_crc: bool = True,
) -> tuple[bytes, list[RecordSpan]]:
    """One buffer with the uncompressed records of some batches of `data`, and where each batch's records are in it.

    `batches` are positions and headers, by default all whole batches (control batches too: leave them out where they
    are not wanted). All records together may take `max_bytes`. Raises CorruptRecords, DecompressionLimit, or
    ApiError(CORRUPT_MESSAGE).
    """
    chosen = list(iterate_batches(data) if batches is None else batches)
    for position, header in chosen:
        if header.magic != MAGIC:
            raise CorruptRecords(f"a batch of format {header.magic} at byte {position}")
        if header.size < HEADER_BYTES or position + header.size > len(data):
            raise CorruptRecords(f"a batch of {header.size} bytes at byte {position}")
        if check_crc and not crc_matches(data, position, header):
            raise CorruptRecords(f"the checksum of the batch at offset {header.base_offset} does not match")
    if any(header.compression for _, header in chosen):
        return _decompressed(memoryview(data), chosen, max_bytes)
    spans = [_span(header, position + HEADER_BYTES, position + header.size) for position, header in chosen]
    if sum(span.end - span.start for span in spans) > max_bytes:
        raise DecompressionLimit(max_bytes)
    return bytes(data), spans


def _decompressed(
    view: memoryview, batches: Sequence[tuple[int, BatchHeader]], max_bytes: int
) -> tuple[bytes, list[RecordSpan]]:
    parts = []
    spans = []
    end = 0
    for position, header in batches:
        body = view[position + HEADER_BYTES : position + header.size]
        part = decompress(header.compression, body, max_bytes=max_bytes - end)
        start, end = end, end + len(part)
        parts.append(part)
        spans.append(_span(header, start, end))
    return b"".join(parts), spans


def _span(header: BatchHeader, start: int, end: int) -> RecordSpan:
    one_time = header.uses_log_append_time
    return RecordSpan(
        start,
        end,
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.max_timestamp if one_time else header.base_timestamp,
        one_time,
    )


@cache
def _vectorised() -> Indexer | None:
    """The numpy implementation, imported when first wanted: numpy costs more to import than all of the broker."""
    try:
        from martlet.wire.records import vectorised
    except ImportError:
        return None
    return vectorised.index_records
