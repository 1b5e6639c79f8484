"""The data source "martlet" as Spark sees it: schema, readers and writers, made from options.

Where things run: all methods here run in planner processes next to the driver, before any task; they check options and
columns, so that what is wrong is said at once. None of them connects to a broker.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from martlet.spark.batch_reader import FilteringBatchReader, MartletBatchReader
from martlet.spark.failures import ColumnsRefused, OptionRefused
from martlet.spark.read_options import ReadOptions, parse_read_options
from martlet.spark.record_schema import schema_text
from martlet.spark.records_from_arrow import check_columns
from martlet.spark.stream_reader import MartletStreamReader
from martlet.spark.write_options import parse_write_options
from martlet.spark.writers import MartletBatchWriter, MartletStreamWriter

FORMAT = "martlet"


class MartletDataSource(DataSource):
    """Topics as frames. The columns are those of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        # Whether it is for a batch or a stream is not known yet; the options that differ do not change the columns.
        return schema_text(parse_read_options(self.options, streaming=False).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options, streaming=False)
        check_schema(schema, options)
        return FilteringBatchReader(options) if options.pushdown else MartletBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse_read_options(self.options, streaming=True)
        check_schema(schema, options)
        return MartletStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = parse_write_options(self.options)
        if overwrite:
            raise OptionRefused('a topic cannot be overwritten; write with mode("append")')
        return MartletBatchWriter(
            check_columns(schema, topic=options.topic, keep_timestamp=options.keep_timestamp), options
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = parse_write_options(self.options)
        if overwrite:
            raise OptionRefused('a topic cannot be overwritten; write with outputMode("append") or "update"')
        return MartletStreamWriter(
            check_columns(schema, topic=options.topic, keep_timestamp=options.keep_timestamp), options
        )


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """A schema of the user's own must be the one that messages have."""
    if tuple(schema.fieldNames()) != options.columns:
        raise ColumnsRefused(
            f"messages have the columns {', '.join(options.columns)}, not {', '.join(schema.fieldNames())}; leave out "
            "schema(), choose columns with the option columns, and make others of value with from_json or the like"
        )
