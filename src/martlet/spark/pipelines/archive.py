"""`archive`: topics into a lake table by date, every message once, with key, headers, time and place.

The table has the columns a message is read with, and the date (UTC) of the message's time as its partition. Small files
of one day are merged while the pipeline runs. `replay` is the way back.

Proved by: tests/spark/test_archive.py.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from martlet.spark.pipelines.catalogue import ArchiveOptions
from martlet.spark.pipelines.flows import PipelineRun
from martlet.spark.pipelines.lake.layouts import open_table

DATE: Final = "date"


def start(run: PipelineRun, options: ArchiveOptions) -> None:
    table = open_table(options.to, options.layout)

    def compact() -> int:
        return table.compact(files_min=options.compact_files, target_bytes=options.compact_bytes)

    run.write_lake(
        with_date(run.read_stream(options.topic)),
        options.to,
        layout=options.layout,
        partition_by=DATE,
        name="archive",
        maintenance=compact if options.compact_files else None,
    )


def with_date(messages: DataFrame) -> DataFrame:
    """The day a message belongs to, in UTC as the session is."""
    return messages.withColumn(DATE, F.date_format("timestamp", "yyyy-MM-dd"))
