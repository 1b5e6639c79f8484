"""Columns of a frame that is published: what a message needs, and what is refused before anything runs."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from martlet.spark.failures import ColumnsRefused
from martlet.spark.records_from_arrow import RowColumns, bytes_of, check_columns, headers_of, instants_of

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
KINDS: dict[str, DataType] = {
    "binary": BinaryType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "headers": HEADERS,
    "int": IntegerType(),
    "map": MapType(StringType(), BinaryType()),
    "string": StringType(),
    "strings": ArrayType(StringType()),
    "timestamp": TimestampType(),
}


def frame(schema: str) -> StructType:
    """A schema written as in SQL, with names for the types that are not one word."""
    pairs = [column.split() for column in schema.split(", ")]
    return StructType([StructField(name, KINDS[kind]) for name, kind in pairs])


def checked(schema: str, *, topic: str | None = "out", keep_timestamp: bool = False) -> RowColumns:
    return check_columns(frame(schema), topic=topic, keep_timestamp=keep_timestamp)


def refusal(schema: str, *, topic: str | None = "out", keep_timestamp: bool = False) -> str:
    with pytest.raises(ColumnsRefused) as caught:
        checked(schema, topic=topic, keep_timestamp=keep_timestamp)
    return str(caught.value)


def test_a_value_is_enough() -> None:
    assert checked("value string") == RowColumns(value="value")


def test_columns_are_found_without_regard_to_case() -> None:
    found = checked("KEY binary, Value binary, Topic string, Partition int", topic=None)
    assert found == RowColumns(value="Value", key="KEY", topic="Topic", partition="Partition")


def test_a_frame_that_was_read_can_be_written_as_it_is() -> None:
    found = checked(
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
        "headers headers"
    )
    assert found.timestamp is None, "a message gets the time of its publishing"
    assert found.headers == "headers"


def test_timestamps_are_kept_on_demand() -> None:
    assert checked("value string, timestamp timestamp", keep_timestamp=True).timestamp == "timestamp"
    assert "wants a column timestamp" in refusal("value string", keep_timestamp=True)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("key string", "the frame has no column value"),
        ("value int", "column value is int, but a message's value is string or binary"),
        ("value string, partition string", "column partition is string"),
        ("value string, headers map", "a message's headers is array<struct<key:string,value:binary>>"),
        ("value string, headers strings", "array<struct<key:string,value:binary>>"),
        ("value string, amount double, customer string", "columns amount, customer are no part of a message"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_with_what_to_do(schema: str, words: str) -> None:
    assert words in refusal(schema)


def test_a_topic_comes_from_the_option_or_from_a_column() -> None:
    assert "which topic? Give the option topic" in refusal("value string", topic=None)
    assert checked("value string, topic string", topic=None).topic == "topic"


def test_strings_and_bytes_become_bytes() -> None:
    batch = pa.record_batch({"text": ["a", None], "raw": [b"b", b""], "large": pa.array(["c", "d"], pa.large_string())})
    assert bytes_of(batch, "text") == [b"a", None]
    assert bytes_of(batch, "raw") == [b"b", b""]
    assert bytes_of(batch, "large") == [b"c", b"d"]
    assert bytes_of(batch, None) == [None, None]


def test_instants_are_milliseconds() -> None:
    instant = datetime(2026, 1, 1, microsecond=1999, tzinfo=UTC)
    batch = pa.record_batch({"timestamp": pa.array([instant, None], pa.timestamp("us", "UTC"))})
    assert instants_of(batch, "timestamp") == [1_767_225_600_001, None]


def test_headers_may_be_null_but_not_nameless() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {"headers": pa.array([None, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]], kind)}
    )
    assert headers_of(batch, "headers") == [[], [("a", b"1"), ("b", None)]]
    with pytest.raises(ColumnsRefused, match="has no key"):
        headers_of(pa.record_batch({"headers": pa.array([[{"key": None, "value": b"1"}]], kind)}), "headers")
