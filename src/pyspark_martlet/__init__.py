"""What makes `format("martlet")` known to Spark without any code: Spark imports every top-level module `pyspark_…`.

Rules: importing this costs next to nothing and never fails, because Spark imports it for every user of any Python data
source; Martlet itself is imported when the format is used.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Stands in for `martlet.spark.source.MartletDataSource` until it is needed."""

    @classmethod
    def name(cls) -> str:
        return "martlet"

    def schema(self) -> "StructType | str":
        return self._source().schema()

    def reader(self, schema: "StructType") -> "DataSourceReader":
        return self._source().reader(schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        return self._source().streamReader(schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        return self._source().streamWriter(schema, overwrite)

    def _source(self) -> DataSource:
        from martlet.spark.source import MartletDataSource

        return MartletDataSource(self.options)
