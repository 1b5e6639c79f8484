"""A task's half of reading: fetch one offset range, decode it, hand it to Spark batch by batch.

How it works: while Spark takes one Arrow batch, the next fetch is already under way on the loop's thread. Offsets
that hold no message (compacted away, markers of transactions) are passed over. What is gone is never passed over in
silence.

Proved by: tests/spark/test_batch_reading.py, tests/spark/test_messages_lost.py
"""

import concurrent.futures
import logging
from collections.abc import Iterator
from typing import Any

from martlet.base.errors import ApiError, ErrorCode
from martlet.client.cluster import Cluster
from martlet.client.fetched import Fetched
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.client.offsets import offset_ranges
from martlet.client.retrying import Retrying
from martlet.spark.arrow_from_records import columns_of
from martlet.spark.blocking import BlockingLoop, loop_of_process
from martlet.spark.failures import MessagesLost
from martlet.spark.loss import messages_gone
from martlet.spark.ranges import OffsetRange
from martlet.spark.read_options import ReadOptions

logger = logging.getLogger(__name__)


def read_range(wanted: OffsetRange, options: ReadOptions) -> Iterator[Any]:
    """The messages of the range, in order, as Arrow record batches. Runs in a task."""
    loop = loop_of_process()
    fetching = loop.run(_begin(loop, wanted, options))
    upcoming: concurrent.futures.Future[list[Fetched]] | None = loop.submit(fetching.next())
    try:
        while upcoming is not None:
            arrived = upcoming.result()
            # The next request travels while Spark works on this answer.
            upcoming = None if fetching.is_done else loop.submit(fetching.next())
            for fetched in arrived:
                batch = columns_of(fetched, options.columns, end=wanted.end)
                if batch is not None:
                    yield batch
    finally:
        if upcoming is not None:
            # Spark takes no more, as after a limit.
            upcoming.cancel()
        loop.run(fetching.aclose())


async def _begin(loop: BlockingLoop, wanted: OffsetRange, options: ReadOptions) -> "_RangeFetching":
    cluster = await loop.cluster(options.connection, first_contact_ms=options.connection.retry_timeout_ms)
    return _RangeFetching(cluster, wanted, options)


class _RangeFetching:
    """One range on its way; used by one task, on the loop."""

    def __init__(self, cluster: Cluster, wanted: OffsetRange, options: ReadOptions) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._options = options
        self._position = wanted.start
        self._fetcher = Fetcher(
            cluster,
            FetcherOptions(
                max_bytes=options.fetch_bytes,
                partition_max_bytes=options.fetch_bytes,
                read_committed=options.read_committed,
                rack=options.rack,
            ),
        )
        self._fetcher.assign({wanted.partition: wanted.start})

    @property
    def is_done(self) -> bool:
        return self._position >= self._wanted.end

    async def next(self) -> list[Fetched]:
        """What comes next; waits until there is something, the range is done or patience is at its end."""
        silence = Retrying(self._cluster.options, self._cluster.randomness)
        while not self.is_done:
            try:
                arrived = await self._fetcher.fetch()
            except ApiError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                await self._pass_over_what_is_gone()
                continue
            if arrived:
                self._position = max(fetched.next_position for fetched in arrived)
                return arrived
            if not silence.time_left():
                raise MessagesLost(
                    f"{self._wanted.partition} brings nothing from offset {self._position} on, but was to be read up "
                    f"to {self._wanted.end}; compare with `martlet topic describe {self._wanted.partition.topic}`"
                )
        return []

    async def _pass_over_what_is_gone(self) -> None:
        """Retention or a deletion came before us: say so, and go on behind it only if that was allowed."""
        partition = self._wanted.partition
        held = (await offset_ranges(self._cluster, [partition]))[partition]
        gone = messages_gone(partition, self._position, self._wanted.end, held)
        if self._options.fail_on_data_loss:
            raise MessagesLost(gone)
        logger.warning("%s; failOnDataLoss is false, so reading goes on behind them", gone)
        # Beyond the end there is nothing to go on with.
        self._position = self._wanted.end if self._position > held.stop else max(self._position, held.start)
        self._fetcher.assign({partition: self._position})

    async def aclose(self) -> None:
        await self._fetcher.aclose()
