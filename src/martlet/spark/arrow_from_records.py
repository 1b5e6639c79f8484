"""Fetched batches into one Arrow record batch: what a task hands to Spark.

Rules: no object per record. Column types are exactly what Spark expects of `record_schema`.

How it works: the positions of keys and values ascend through the fetched bytes, so they are the offsets of an Arrow
binary array laid over those bytes; `take` of every fourth element copies keys (or values) at memory speed, and a null
index gives a null. Headers likewise.

Proved by: tests/unit/spark/test_arrow_from_records.py
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from martlet.base.ids import TopicPartition
from martlet.client.fetched import Fetched
from martlet.wire.records.index import RecordIndex, RecordSpan, index_records, unpack_batches

_BYTES_MAX: Final = 1_073_741_824
"""What one fetch may decompress to."""

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
}


def arrow_schema(columns: Sequence[str]) -> Any:
    return pa.schema([pa.field(column, _TYPES[column]) for column in columns])


def columns_of(fetched: Fetched, columns: Sequence[str], *, end: int) -> Any:
    """The messages of a fetch from its position to before `end`, as a RecordBatch; None when there are none.

    Raises CorruptRecords, DecompressionLimit or ApiError(CORRUPT_MESSAGE).
    """
    batches = [
        (start, header)
        for start, header in fetched.readable_batches(batch_bytes_max=_BYTES_MAX)
        if header.last_offset >= fetched.position and header.base_offset < end
    ]
    if not batches:
        return None
    data, spans = unpack_batches(fetched.data, batches, max_bytes=_BYTES_MAX)
    index = index_records(data, spans)
    first = bisect_left(index.offsets, fetched.position)
    stop = bisect_left(index.offsets, end)
    if first >= stop:
        return None
    rows = _Rows(data, spans, index, first, stop)
    return pa.RecordBatch.from_arrays(
        [rows.column(name, fetched.partition) for name in columns], schema=arrow_schema(columns)
    )


class _Rows:
    """Some rows of an index over some bytes, column by column."""

    def __init__(self, data: bytes, spans: Sequence[RecordSpan], index: RecordIndex, first: int, stop: int) -> None:
        self._data = data
        self._spans = spans
        self._index = index
        self._first = first
        self._stop = stop

    def column(self, name: str, partition: TopicPartition) -> Any:
        count = self._stop - self._first
        if name in ("key", "value"):
            nulls = self._index.null_keys if name == "key" else self._index.null_values
            return _fields(
                self._data, self._index.bounds, 0 if name == "key" else 2, nulls, range(self._first, self._stop)
            )
        if name == "topic":
            return _repeated(partition.topic, pa.string(), count)
        if name == "partition":
            return _repeated(partition.partition, pa.int32(), count)
        if name == "offset":
            return _numbers(self._index.offsets, pa.int64(), self._first, self._stop)
        if name == "timestamp":
            return self._timestamps()
        if name == "timestampType":
            return self._timestamp_types()
        return self._headers()

    def _timestamps(self) -> Any:
        milliseconds = _numbers(self._index.timestamps, pa.int64(), self._first, self._stop)
        try:
            microseconds = pc.multiply_checked(milliseconds, 1000)
        except pa.ArrowInvalid:
            # No calendar reaches as far as 64 bits of milliseconds: such a time is not known.
            limit = (1 << 63) // 1000 - 1
            reachable = pc.less_equal(pc.abs(milliseconds), limit)
            microseconds = pc.multiply(pc.if_else(reachable, milliseconds, None), 1000)
        return microseconds.cast(_TYPES["timestamp"])

    def _timestamp_types(self) -> Any:
        kinds = {span.uses_log_append_time for span in self._spans}
        if len(kinds) == 1:
            return _repeated(int(kinds.pop()), pa.int32(), self._stop - self._first)
        by_row = [_repeated(int(span.uses_log_append_time), pa.int32(), span.record_count) for span in self._spans]
        return pa.concat_arrays(by_row).slice(self._first, self._stop - self._first)

    def _headers(self) -> Any:
        index = self._index
        header_count = len(index.header_null_values)
        names = _fields(self._data, index.header_bounds, 0, None, range(header_count))
        values = _fields(self._data, index.header_bounds, 2, index.header_null_values, range(header_count))
        structs = pa.StructArray.from_arrays([_text(names), values], fields=list(_HEADER))
        counts = _numbers(index.header_counts, pa.int32(), 0, index.record_count)
        ends = pc.cumulative_sum(counts)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        # Spark's Kafka source has null, not an empty list, for a message without headers.
        lists = pa.ListArray.from_arrays(offsets, structs, type=_TYPES["headers"], mask=pc.equal(counts, 0))
        return lists.slice(self._first, self._stop - self._first)


def _fields(data: bytes, bounds: Any, which: int, nulls: Any, rows: range) -> Any:
    """One field of each row: bytes number `which` of the four bounds a row, null where the flag says so."""
    if not len(rows):
        return pa.array([], pa.binary())
    spread = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
    indices = _every_fourth(rows.stop).slice(rows.start, len(rows))
    if which:
        indices = pc.add(indices, pa.scalar(which, pa.int32()))
    if nulls is not None and b"\x01" in bytes(nulls[rows.start : rows.stop]):
        missing = _numbers(nulls, pa.uint8(), rows.start, rows.stop).cast(pa.bool_())
        indices = pc.if_else(missing, pa.scalar(None, pa.int32()), indices)
    return spread.take(indices)


def _numbers(view: Any, kind: Any, first: int, stop: int) -> Any:
    return pa.Array.from_buffers(kind, len(view), [None, pa.py_buffer(view)]).slice(first, stop - first)


def _text(names: Any) -> Any:
    """Header names as text; those that are not UTF-8 get replacement characters, as everywhere in Martlet."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


@lru_cache(maxsize=1)
def _every_fourth_up_to(capacity: int) -> Any:
    return pa.Array.from_buffers(pa.int32(), capacity, [None, pa.py_buffer(array("i", range(0, 4 * capacity, 4)))])


def _every_fourth(count: int) -> Any:
    """0, 4, 8 …; a growing array is kept, because every fetch needs the same numbers."""
    return _every_fourth_up_to(_capacity(count)).slice(0, count)


@lru_cache(maxsize=16)
def _repeated_up_to(value: Any, kind: Any, capacity: int) -> Any:
    return pa.repeat(pa.scalar(value, kind), capacity)


def _repeated(value: Any, kind: Any, count: int) -> Any:
    return _repeated_up_to(value, kind, _capacity(count)).slice(0, count)


def _capacity(count: int) -> int:
    """The next power of two, so that few sizes are ever made."""
    return max(4096, 1 << (count - 1).bit_length()) if count else 4096
