"""The data source as Spark sees it: what it makes of options, before anything is connected or run."""

import pickle

import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from martlet.spark.batch_reader import FilteringBatchReader, MartletBatchReader
from martlet.spark.failures import ColumnsRefused, OptionRefused
from martlet.spark.source import MartletDataSource
from martlet.spark.writers import MartletStreamWriter, Published, TaskIdentity, rows_of
from pyspark_martlet import DefaultSource

READING = {"bootstrap": "127.0.0.1:1", "subscribe": "orders"}
WRITING = {"bootstrap": "127.0.0.1:1", "topic": "orders"}
VALUE_ONLY = StructType([StructField("value", BinaryType())])


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    assert MartletDataSource(READING).schema() == (
        "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint, `timestamp` timestamp, "
        "`timestampType` int"
    )
    assert MartletDataSource(READING | {"columns": "value"}).schema() == "`value` binary"


def test_only_a_reader_that_was_asked_to_takes_filters() -> None:
    """Spark refuses a reader that can take filters wherever that is switched off, which is the default."""
    options = READING | {"columns": "value"}
    assert type(MartletDataSource(options).reader(VALUE_ONLY)) is MartletBatchReader
    assert "pushFilters" not in vars(MartletBatchReader)
    assert type(MartletDataSource(options | {"pushdown": "true"}).reader(VALUE_ONLY)) is FilteringBatchReader


def test_readers_and_writers_travel_to_tasks_without_a_connection() -> None:
    stream = MartletDataSource(READING | {"columns": "value"}).streamReader(VALUE_ONLY)
    assert pickle.loads(pickle.dumps(stream)).options == stream.options  # type: ignore[attr-defined]
    writer = MartletDataSource(WRITING).streamWriter(VALUE_ONLY, False)
    assert isinstance(pickle.loads(pickle.dumps(writer)), MartletStreamWriter)


def test_a_schema_of_the_users_own_is_refused_with_what_to_do() -> None:
    wrong = StructType([StructField("amount", IntegerType())])
    with pytest.raises(ColumnsRefused, match="leave out schema\\(\\), choose columns with the option columns"):
        MartletDataSource(READING).reader(wrong)
    with pytest.raises(ColumnsRefused, match="messages have the columns key, value"):
        MartletDataSource(READING).streamReader(wrong)


def test_topics_are_never_overwritten() -> None:
    with pytest.raises(OptionRefused, match='write with mode\\("append"\\)'):
        MartletDataSource(WRITING).writer(VALUE_ONLY, True)
    with pytest.raises(OptionRefused, match="cannot be overwritten"):
        MartletDataSource(WRITING).streamWriter(VALUE_ONLY, True)


def test_columns_are_checked_before_anything_runs() -> None:
    schema = StructType([StructField("name", StringType())])
    with pytest.raises(ColumnsRefused, match="columns name are no part of a message"):
        MartletDataSource(WRITING).writer(schema, False)


def test_the_shim_does_what_the_source_does() -> None:
    shim = DefaultSource(READING)
    assert shim.name() == MartletDataSource.name() == "martlet"
    assert shim.schema() == MartletDataSource(READING).schema()
    with pytest.raises(OptionRefused, match="did you mean subscribe"):
        DefaultSource({"bootstrap": "h", "subscrib": "a"}).schema()


def test_commit_messages_say_who_wrote_how_much() -> None:
    """The seam for exactly once: query, micro-batch, task and attempt travel from the task to the driver."""
    identity = TaskIdentity("query", 7, 1, 0)
    message = pickle.loads(pickle.dumps(Published(identity, {})))
    assert message.identity == identity
    assert rows_of([message, None]) == 0
    assert TaskIdentity.current() == TaskIdentity(None, None, 0, 0), "outside of a task"
