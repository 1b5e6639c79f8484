"""The columns of a frame that is published: which a message needs, which it may have, and rows out of Arrow.

Rules: checks in the driver, by Spark's types, before anything runs; values in tasks, out of Arrow.

Proved by: tests/unit/spark/test_records_from_arrow.py
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from martlet.spark.failures import ColumnsRefused
from martlet.wire.records.encode import HeaderFields

_TEXT_OR_BYTES: Final = (StringType, BinaryType)
_WHOLE_NUMBER: Final = (ByteType, ShortType, IntegerType, LongType)
_FITTING: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": (StringType,),
    "partition": _WHOLE_NUMBER,
    "timestamp": (TimestampType,),
    "headers": (ArrayType,),
}
_LEFT_OUT: Final = frozenset({"offset", "timestamptype", "timestamp"})
"""Columns of a frame that was read from a topic and that say nothing about what is published."""


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Which columns of the frame are published; None where it has none."""

    value: str
    key: str | None = None
    topic: str | None = None
    partition: str | None = None
    timestamp: str | None = None
    headers: str | None = None


def check_columns(schema: StructType, *, topic: str | None, keep_timestamp: bool) -> RowColumns:
    """The frame's columns by what they are for; raises ColumnsRefused for one that is missing, wrong or too many."""
    by_lower = {field.name.lower(): field for field in schema.fields}
    found: dict[str, str] = {}
    for purpose, fitting in _FITTING.items():
        field = by_lower.pop(purpose, None)
        if field is None or (purpose == "timestamp" and not keep_timestamp):
            continue
        if not isinstance(field.dataType, fitting) or (purpose == "headers" and not _are_headers(field.dataType)):
            raise ColumnsRefused(
                f"column {field.name} is {field.dataType.simpleString()}, but a message's {purpose} is "
                f"{_wanted(purpose)}; convert it with cast, to_json or the like"
            )
        found[purpose] = field.name
    others = [field.name for lower, field in by_lower.items() if lower not in _LEFT_OUT]
    if others:
        raise ColumnsRefused(
            f"columns {', '.join(others)} are no part of a message and would be lost; pack them into value, as with "
            "to_json(struct('*')) AS value, or leave them out with select"
        )
    if "value" not in found:
        raise ColumnsRefused(
            "the frame has no column value; make one of strings or bytes, as with to_json(struct('*'))"
        )
    if topic is None and "topic" not in found:
        raise ColumnsRefused("which topic? Give the option topic, or the frame a column topic")
    if keep_timestamp and "timestamp" not in found:
        raise ColumnsRefused("keepTimestamp wants a column timestamp, and the frame has none")
    return RowColumns(**found)


def _are_headers(kind: DataType) -> bool:
    element = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(element, StructType) or [field.name.lower() for field in element.fields] != ["key", "value"]:
        return False
    key, value = (field.dataType for field in element.fields)
    return isinstance(key, StringType) and isinstance(value, _TEXT_OR_BYTES)


def _wanted(purpose: str) -> str:
    if purpose == "headers":
        return "array<struct<key:string,value:binary>>"
    return " or ".join(kind.typeName() for kind in _FITTING[purpose][:2])


def bytes_of(batch: Any, column: str | None) -> list[bytes | None]:
    """A column of strings or bytes, as bytes."""
    if column is None:
        return [None] * batch.num_rows
    values = batch.column(column)
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.binary())
    found: list[bytes | None] = values.to_pylist()
    return found


def values_of(batch: Any, column: str) -> list[Any]:
    """A column as Python values."""
    found: list[Any] = batch.column(column).to_pylist()
    return found


def instants_of(batch: Any, column: str) -> list[int | None]:
    """A column of timestamps as milliseconds since 1970; what is finer is cut off."""
    found: list[int | None] = (
        pc.floor_temporal(batch.column(column), unit="millisecond")
        .cast(pa.timestamp("ms", "UTC"))
        .cast(pa.int64())
        .to_pylist()
    )
    return found


def headers_of(batch: Any, column: str | None) -> list[Sequence[HeaderFields]]:
    """A column of headers; null is none."""
    if column is None:
        return [()] * batch.num_rows
    return [_pairs(headers) for headers in values_of(batch, column)]


def _pairs(headers: Iterable[dict[str, Any]] | None) -> list[HeaderFields]:
    pairs: list[HeaderFields] = []
    for header in headers or ():
        name, value = header.values()
        if name is None:
            raise ColumnsRefused("a header has no key; leave such headers out with filter")
        pairs.append((name, value.encode() if isinstance(value, str) else value))
    return pairs
