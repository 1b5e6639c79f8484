"""Reading a batch: the reader that Spark makes for `spark.read.format("martlet")`.

Where things run: `pushFilters` and `partitions` in a planner process next to the driver, `read` in tasks.

Invariants:
SPK-4 The ranges are decided once, by `partitions`: a task that runs again reads the same messages.

Proved by: tests/spark/test_batch_reading.py
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from martlet.spark.blocking import BlockingLoop, loop_of_process
from martlet.spark.planning import (
    FIRST_CONTACT_MS,
    check_all_there,
    offsets_at,
    ranges_still_held,
    subscribed_partitions,
    subscribed_topics,
)
from martlet.spark.push_down import Narrowing, narrow
from martlet.spark.range_reading import read_range
from martlet.spark.ranges import OffsetRange, split_ranges
from martlet.spark.read_options import ReadOptions


class MartletBatchReader(DataSourceReader):
    """Reads everything between two positions of every partition. Pickled into tasks, so it holds values only."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        loop = loop_of_process()
        return [*loop.run(self._plan(loop))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark makes up an empty partition where there is none.
        return read_range(partition, self.options) if isinstance(partition, OffsetRange) else iter(())

    async def _plan(self, loop: BlockingLoop) -> list[OffsetRange]:
        options = self.options
        cluster = await loop.cluster(options.connection, first_contact_ms=FIRST_CONTACT_MS)
        topics = await subscribed_topics(cluster, options.subscription)
        check_all_there(topics, options.subscription)
        partitions = subscribed_partitions(topics, options.subscription)
        if not partitions:
            return []
        starts = await offsets_at(cluster, options.start, partitions, read_committed=options.read_committed)
        ends = await offsets_at(cluster, options.end, partitions, read_committed=options.read_committed)
        wanted = [OffsetRange(partition, starts[partition], ends[partition]) for partition in sorted(partitions)]
        wanted = [offsets for offsets in wanted if len(offsets)]
        held = await ranges_still_held(cluster, wanted, fail_on_data_loss=options.fail_on_data_loss)
        narrowed = await narrow(cluster, held, self.narrowing)
        return split_ranges(narrowed, pieces_min=options.pieces_min, piece_max=options.piece_max)


class FilteringBatchReader(MartletBatchReader):
    """The same with filters pushed down. Apart, because Spark refuses a reader that offers it where it is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what narrows offset ranges; give back what Spark must still check."""
        return [offered for offered in filters if not self.narrowing.take(offered)]
