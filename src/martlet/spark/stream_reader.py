"""Reading a stream: the reader that Spark makes for `spark.readStream.format("martlet")`.

Where things run: one instance lives in a planner process of its own as long as the query, and is asked for offsets; a
copy of another is pickled into every task, for `read`. Only the planner's ever connects or keeps state.

How it works, for every micro-batch: `latestOffset(start)` says how far the next one goes, within limits; `partitions`
turns what lies between into ranges; tasks read those. Spark writes the end into its checkpoint before any task runs,
so a micro-batch that runs again covers the same offsets.

Being asked to go on from `start` means that everything before has been processed. That is when the group's offsets are
committed, and not in `commit`, which Spark calls a micro-batch later and never for the last one of an available-now
run.

Invariants:
SPK-20 What a micro-batch covers follows from its two offsets alone.
SPK-21 No message is left out in silence: what is gone fails the query unless failOnDataLoss says otherwise.
SPK-22 Trouble with the group never stops the query: its offsets are for people to see, the checkpoint is the truth.

Proved by: tests/spark/test_stream_reading.py, tests/spark/test_messages_lost.py, tests/spark/test_group_lag.py
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from martlet.base.clock import SystemClock
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.fetcher import Fetcher, FetcherOptions, OutOfRange
from martlet.client.offsets import LATEST, list_offsets
from martlet.spark.admission import Patience, admit, waiting
from martlet.spark.blocking import loop_of_process
from martlet.spark.failures import MessagesLost
from martlet.spark.group_progress import GroupProgress
from martlet.spark.loss import losses_since, losses_within
from martlet.spark.planning import (
    FIRST_CONTACT_MS,
    check_all_there,
    offsets_at,
    ranges_between,
    ranges_still_held,
    subscribed_partitions,
    subscribed_topics,
    topic_ids,
)
from martlet.spark.range_reading import read_range
from martlet.spark.ranges import OffsetRange, split_ranges
from martlet.spark.read_options import ReadOptions
from martlet.spark.stream_offsets import OffsetsByTopic, StreamOffsets
from martlet.spark.subscription import NamedTopics
from martlet.spark.topic_watch import TopicWatch

logger = logging.getLogger(__name__)

_SECOND_CHECK_MS: Final = 1_000
"""How long after something was not found it is looked for again, before it is believed to be gone."""
_IDLE_WAIT_MS: Final = 100
"""How long to wait for a message when there is none; Spark would ask again at once."""


class MartletStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches. Made without connecting, because most instances only travel into tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._planner: _StreamPlanner | None = None

    def initialOffset(self) -> OffsetsByTopic:
        return self._ask().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.min_offsets is not None:
            return ReadMinRows(self.options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._ask().fix_target()

    def latestOffset(self, start: Mapping[str, Mapping[str, int | str]], limit: ReadLimit) -> OffsetsByTopic:
        return self._ask().end_of_next(StreamOffsets.from_json(start), limit).to_json()

    def reportLatestOffset(self) -> OffsetsByTopic | None:
        latest = self._ask().latest_known
        return None if latest is None else latest.to_json()

    def partitions(
        self, start: Mapping[str, Mapping[str, int | str]], end: Mapping[str, Mapping[str, int | str]]
    ) -> list[InputPartition]:
        return [*self._ask().ranges(StreamOffsets.from_json(start), StreamOffsets.from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Spark makes up an empty partition where there is none.
        return read_range(partition, self.options) if isinstance(partition, OffsetRange) else iter(())

    def commit(self, end: Mapping[str, Mapping[str, int | str]]) -> None:
        """Nothing: see the head of this module."""

    def stop(self) -> None:
        """Nothing: the process ends with the query, and its connections with it."""

    def _ask(self) -> "_StreamPlanner":
        if self._planner is None:
            self._planner = _StreamPlanner(self.options)
        return self._planner


class _StreamPlanner:
    """What the planner process knows of its stream between calls. Called by one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self.latest_known: StreamOffsets | None = None
        self._options = options
        self._loop = loop_of_process()
        self._clock = SystemClock()
        self._cluster: Cluster | None = None
        self._topics = TopicWatch(options.subscription, self._clock)
        self._believed_gone: set[TopicPartition] = set()
        self._reported: set[str] = set()
        self._target: StreamOffsets | None = None
        self._patience = Patience(options.min_offsets or 0, options.trigger_delay_ms_max)
        self._progress = GroupProgress(options.group)

    def initial(self) -> StreamOffsets:
        return self._loop.run(self._initial())

    def fix_target(self) -> None:
        self._target = self._loop.run(self._latest(check_again=True))

    def end_of_next(self, start: StreamOffsets, limit: ReadLimit) -> StreamOffsets:
        self._loop.run(self._commit_progress(start))
        if self._options.pause_file is not None and Path(self._options.pause_file).exists():
            # The command that stops the query between two micro-batches asks for no new one this way.
            return start
        return self._loop.run(self._end_of_next(start, limit))

    def ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        return self._loop.run(self._ranges(start, end))

    async def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = await self._loop.cluster(self._options.connection, first_contact_ms=FIRST_CONTACT_MS)
        return self._cluster

    async def _initial(self) -> StreamOffsets:
        cluster = await self._connected()
        topics = await subscribed_topics(cluster, self._options.subscription)
        check_all_there(topics, self._options.subscription)
        partitions = subscribed_partitions(topics, self._options.subscription)
        offsets = (
            await offsets_at(cluster, self._options.start, partitions, read_committed=self._options.read_committed)
            if partitions
            else {}
        )
        return StreamOffsets(offsets, topic_ids(topics))

    async def _latest(self, *, check_again: bool = False) -> StreamOffsets:
        """Where the log of every subscribed partition ends now."""
        cluster = await self._connected()
        if check_again or self._topics.is_old:
            await self._topics.refresh(cluster)
        while True:
            wanted = dict.fromkeys(self._topics.partitions, LATEST)
            found = await self._topics.unless_changed(
                cluster, list_offsets(cluster, wanted, read_committed=self._options.read_committed)
            )
            if found is not None:
                self.latest_known = StreamOffsets({p: at.offset for p, at in found.items()}, self._topics.ids)
                return self.latest_known

    async def _latest_after(self, start: StreamOffsets) -> StreamOffsets:
        """The same, as a micro-batch from `start` on may rely on it (SPK-21).

        What is not found is looked for a second time: a broker that has not heard of it yet gives the same answer as
        one that knows it gone. And ends belong to the topics we know only if these are still the same afterwards.
        """
        latest = await self._latest()
        missing = start.positions.keys() - latest.positions.keys()
        if missing - self._believed_gone:
            await asyncio.sleep(_SECOND_CHECK_MS / 1000)
            latest = await self._latest(check_again=True)
            self._believed_gone = set(start.positions.keys() - latest.positions.keys())
        elif waiting(start.positions, latest.positions) and await self._topics.refresh(await self._connected()):
            latest = await self._latest()
        return latest

    async def _commit_progress(self, start: StreamOffsets) -> None:
        await self._progress.processed(await self._connected(), start.positions)

    async def _end_of_next(self, start: StreamOffsets, limit: ReadLimit) -> StreamOffsets:
        newest = await self._latest_after(start)
        begin = self._begin(start, newest)
        if self._target is None and waiting(begin, newest.positions) == 0 and newest.positions:
            await self._wait_for_message(newest)
            newest = await self._latest_after(start)
            begin = self._begin(start, newest)
        latest = newest if self._target is None else self._target.at_most(newest)
        available = waiting(begin, latest.positions)
        may_wait = self._target is None and not isinstance(limit, ReadAllAvailable)
        if may_wait and self._patience.holds_back(available, self._clock.monotonic_ms()):
            return start
        if isinstance(limit, ReadMaxRows):
            latest = StreamOffsets(admit(begin, latest.positions, limit.max_rows), latest.topic_ids)
        return latest.with_unseen_of(start)

    def _begin(self, start: StreamOffsets, latest: StreamOffsets) -> dict[TopicPartition, int]:
        """Where the next micro-batch begins, after a check whether what we come from is still there (SPK-21)."""
        self._lose(losses_since(start, latest))
        recreated = start.recreated_in(latest)
        return {partition: at for partition, at in start.positions.items() if partition.topic not in recreated}

    def _lose(self, losses: Sequence[str]) -> None:
        """Stop, or go on if that was allowed; then each loss is reported once."""
        if losses and self._options.fail_on_data_loss:
            raise MessagesLost("; ".join(losses))
        for loss in losses:
            if loss not in self._reported:
                self._reported.add(loss)
                logger.warning("%s; failOnDataLoss is false, so the stream goes on", loss)

    async def _wait_for_message(self, latest: StreamOffsets) -> None:
        """Ask the brokers to answer when there is something, so that an idle stream is not a busy one."""
        options = FetcherOptions(
            max_wait_ms=_IDLE_WAIT_MS, max_bytes=1, partition_max_bytes=1, out_of_range=OutOfRange.LATEST
        )
        async with Fetcher(await self._connected(), options) as fetcher:
            fetcher.assign(latest.positions)
            begun_at = asyncio.get_running_loop().time()
            if not await fetcher.fetch():
                # Trouble shows as an empty answer, at once.
                spent_ms = (asyncio.get_running_loop().time() - begun_at) * 1000
                await asyncio.sleep(max(0.0, _IDLE_WAIT_MS - spent_ms) / 1000)

    async def _ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        cluster = await self._connected()
        ranges = ranges_between(start, end)
        covered = StreamOffsets({wanted.partition: wanted.end for wanted in ranges}, end.topic_ids)
        # Those of the micro-batch, subscribed to or not: after a restart the subscription may be another (SPK-20).
        topics = TopicWatch(NamedTopics(tuple(sorted(covered.topics))), self._clock)
        await topics.refresh(cluster)
        while True:
            there = StreamOffsets(dict.fromkeys(topics.partitions, 0), topics.ids)
            self._lose(losses_within(covered, there))
            lost = (covered.topics - there.topics) | covered.recreated_in(there)
            ranges = [wanted for wanted in ranges if wanted.partition.topic not in lost]
            still = await topics.unless_changed(
                cluster, ranges_still_held(cluster, ranges, fail_on_data_loss=self._options.fail_on_data_loss)
            )
            if still is not None:
                return split_ranges(still, pieces_min=self._options.pieces_min, piece_max=self._options.piece_max)
