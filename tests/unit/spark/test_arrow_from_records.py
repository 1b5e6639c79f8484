"""Fetched batches as Arrow: the same records that the plain reader sees, in exactly the types Spark expects."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from martlet.base.ids import TopicPartition
from martlet.client.fetched import Fetched
from martlet.spark.arrow_from_records import arrow_schema, columns_of
from martlet.spark.record_schema import ALWAYS, HEADERS
from martlet.wire.batch import LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, build_batch
from martlet.wire.compression import Compression
from martlet.wire.fetch import AbortedTransaction
from martlet.wire.records.encode import RecordFields

ORDERS = TopicPartition("orders", 3)
COLUMNS = (*ALWAYS, HEADERS)
TEXT_OR_NOTHING = st.none() | st.binary(max_size=20)
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 10**13),
        TEXT_OR_NOTHING,
        TEXT_OR_NOTHING,
        st.lists(st.tuples(st.text(max_size=5), TEXT_OR_NOTHING), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


def fetched(data: bytes, position: int = 0, aborted: list[AbortedTransaction] | None = None) -> Fetched:
    return Fetched(ORDERS, position, 1 << 40, 1 << 40, 0, memoryview(data), aborted)


def rows(found: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = [] if found is None else found.to_pylist()
    return result


def test_the_schema_is_what_spark_makes_of_ours() -> None:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    kinds = (BinaryType(), BinaryType(), StringType(), IntegerType(), LongType(), TimestampType(), IntegerType())
    fields = [StructField(name, kind) for name, kind in zip(COLUMNS, (*kinds, ArrayType(header)), strict=True)]
    spark_schema = StructType(fields)
    assert to_arrow_schema(spark_schema, timezone="UTC").equals(arrow_schema(COLUMNS))


@settings(deadline=None, max_examples=60)
@given(batches=st.lists(st.tuples(RECORDS, st.sampled_from(Compression)), min_size=1, max_size=3), data=st.data())
def test_arrow_has_the_records_that_the_plain_reader_sees(
    batches: list[tuple[list[RecordFields], Compression]], data: st.DataObject
) -> None:
    raw, end = b"", 0
    for records, compression in batches:
        raw += build_batch(records, base_offset=end, compression=compression)
        end += len(records)
    start = data.draw(st.integers(0, end))
    stop = data.draw(st.integers(start, end + 1))
    found = rows(columns_of(fetched(raw, start), COLUMNS, end=stop))
    seen = [record for record in fetched(raw, start).records(batch_bytes_max=1 << 20) if record.offset < stop]
    assert [row["offset"] for row in found] == [record.offset for record in seen]
    assert [(row["key"], row["value"]) for row in found] == [(record.key, record.value) for record in seen]
    assert [row["timestamp"].timestamp() for row in found] == [record.timestamp_ms / 1000 for record in seen]
    assert [[(header["key"], header["value"]) for header in row["headers"] or ()] for row in found] == [
        record.headers for record in seen
    ]
    assert all((row["topic"], row["partition"], row["timestampType"]) == ("orders", 3, 0) for row in found)


def test_a_message_without_headers_has_null_there_as_in_sparks_kafka_source() -> None:
    raw = build_batch([(5, None, b"a", ()), (5, None, b"b", [("h", b"1")])])
    assert [row["headers"] for row in rows(columns_of(fetched(raw), COLUMNS, end=9))] == [
        None,
        [{"key": "h", "value": b"1"}],
    ]


def test_columns_come_in_the_order_asked_for() -> None:
    raw = build_batch([(5, b"k", b"v", ())])
    found = columns_of(fetched(raw), ("offset", "value"), end=9)
    assert found.schema.names == ["offset", "value"]
    assert rows(found) == [{"offset": 0, "value": b"v"}]


def test_kinds_of_timestamps_are_recognised_batch_by_batch() -> None:
    raw = build_batch([(5, None, b"a", ())]) + build_batch(
        [(6, None, b"b", ())], base_offset=1, attributes=LOG_APPEND_TIME_BIT
    )
    assert [row["timestampType"] for row in rows(columns_of(fetched(raw), COLUMNS, end=9))] == [0, 1]


def test_a_time_that_no_calendar_reaches_is_null() -> None:
    raw = build_batch([((1 << 63) - 1, None, b"a", ()), (5, None, b"b", ())])
    times = [row["timestamp"] for row in rows(columns_of(fetched(raw), COLUMNS, end=9))]
    assert times[0] is None
    assert times[1].timestamp() == 0.005


def test_header_names_that_are_not_text_get_replacement_characters() -> None:
    raw = build_batch([(5, None, b"a", [(b"\xff", None)])])
    assert rows(columns_of(fetched(raw), COLUMNS, end=9))[0]["headers"] == [{"key": "\ufffd", "value": None}]


def test_records_of_aborted_transactions_are_not_seen() -> None:
    raw = build_batch([(5, None, b"kept", ())]) + build_batch(
        [(5, None, b"aborted", ())], base_offset=1, producer_id=7, producer_epoch=0, attributes=TRANSACTIONAL_BIT
    )
    aborted = [AbortedTransaction(7, 1)]
    assert [row["value"] for row in rows(columns_of(fetched(raw, 0, aborted), COLUMNS, end=9))] == [b"kept"]


def test_damaged_bytes_are_refused() -> None:
    raw = bytearray(build_batch([(5, None, b"abc", ())]))
    raw[-3] ^= 1
    with pytest.raises(Exception, match="checksum"):
        columns_of(fetched(bytes(raw)), COLUMNS, end=9)
