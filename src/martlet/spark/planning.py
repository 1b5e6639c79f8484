"""The driver's half of reading against a live cluster: which partitions there are, and which offsets options mean.

Rules: coroutines for the loop of `blocking`; no state but the cluster. What to do about the answers is for the
readers.

Proved by: tests/spark/test_batch_reading.py, tests/spark/test_stream_reading.py
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition, format_topic_id
from martlet.client.cluster import Cluster
from martlet.client.metadata import TopicInfo
from martlet.client.offsets import EARLIEST, LATEST, list_offsets, offset_ranges
from martlet.spark.failures import MessagesLost, OptionRefused
from martlet.spark.loss import messages_gone
from martlet.spark.positions import AtInstant, AtInstants, AtOffsets, EndOfLog, Position
from martlet.spark.ranges import OffsetRange
from martlet.spark.stream_offsets import StreamOffsets
from martlet.spark.subscription import AssignedPartitions, NamedTopics, Subscription, TopicPattern

logger = logging.getLogger(__name__)

FIRST_CONTACT_MS: Final = 10_000
"""How long a planner waits for the first broker to answer before it says that none does."""

_NO_SUCH_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


async def subscribed_topics(cluster: Cluster, subscription: Subscription) -> dict[str, TopicInfo]:
    """The topics there are now of those subscribed to; one that is missing is left out."""
    if isinstance(subscription, TopicPattern):
        known = await cluster.retry(cluster.refresh_all)
        readable = [name for name, info in known.items() if not info.is_internal]
        return {name: known[name] for name in subscription.matching(readable)}

    async def ask() -> None:
        try:
            await cluster.refresh(subscription.topics)
        except ApiError as error:
            if error.code not in _NO_SUCH_TOPIC:
                raise

    await cluster.retry(ask)
    if any(name not in cluster.metadata.topics for name in subscription.topics):
        # One that was created this moment may not be known everywhere yet.
        await asyncio.sleep(cluster.options.retry_backoff_max_ms / 1000)
        await cluster.retry(ask)
    known = cluster.metadata.topics
    return {name: known[name] for name in subscription.topics if name in known}


def subscribed_partitions(topics: Mapping[str, TopicInfo], subscription: Subscription) -> list[TopicPartition]:
    """The partitions to read of the topics there are; raises OptionRefused for one assigned that does not exist."""
    if not isinstance(subscription, AssignedPartitions):
        return [TopicPartition(name, index) for name, info in topics.items() for index in info.partitions]
    for partition in subscription.partitions:
        info = topics.get(partition.topic)
        if info is not None and partition.partition not in info.partitions:
            raise OptionRefused(
                f"assign: topic {partition.topic!r} has no partition {partition.partition}; it has "
                f"{len(info.partitions)}, numbered from 0"
            )
    return [partition for partition in subscription.partitions if partition.topic in topics]


def check_all_there(topics: Mapping[str, TopicInfo], subscription: Subscription) -> None:
    """Topics that were named must exist; a pattern may match none yet."""
    if isinstance(subscription, NamedTopics | AssignedPartitions):
        missing = [name for name in subscription.topics if name not in topics]
        if missing:
            names = ", ".join(repr(name) for name in missing)
            raise OptionRefused(
                f"there is no topic {names}; check the name (`martlet topic list`), or create it with "
                f"`martlet topic create {missing[0]}`"
            )


def topic_ids(topics: Mapping[str, TopicInfo]) -> dict[str, str]:
    return {name: format_topic_id(info.id) for name, info in topics.items() if info.has_id}


async def offsets_at(
    cluster: Cluster, position: Position, partitions: Sequence[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, int]:
    """The offset that the options mean in each partition; raises OptionRefused where they mean none."""
    if isinstance(position, EndOfLog):
        found = await list_offsets(cluster, dict.fromkeys(partitions, position.which), read_committed=read_committed)
        return {partition: found[partition].offset for partition in partitions}
    if isinstance(position, AtOffsets):
        return await _at_offsets(cluster, position, partitions, read_committed)
    instants = (
        dict.fromkeys(partitions, position.instant_ms)
        if isinstance(position, AtInstant)
        else _for_each(position.instants_ms, partitions, position.option)
    )
    return await _at_instants(cluster, position, instants, read_committed)


async def _at_offsets(
    cluster: Cluster, position: AtOffsets, partitions: Sequence[TopicPartition], read_committed: bool
) -> dict[TopicPartition, int]:
    wanted = _for_each(position.offsets, partitions, position.option)
    ends = {partition: offset for partition, offset in wanted.items() if offset in (EARLIEST, LATEST)}
    found = await list_offsets(cluster, ends, read_committed=read_committed) if ends else {}
    return {p: found[p].offset if p in found else offset for p, offset in wanted.items()}


async def _at_instants(
    cluster: Cluster, position: AtInstant | AtInstants, instants: Mapping[TopicPartition, int], read_committed: bool
) -> dict[TopicPartition, int]:
    found = await list_offsets(cluster, instants, read_committed=read_committed) if instants else {}
    offsets = {partition: at.offset for partition, at in found.items()}
    without = [partition for partition, offset in offsets.items() if offset < 0]
    if without and not position.none_means_end:
        raise OptionRefused(
            f"no message of {', '.join(map(str, sorted(without)))} is as young as the start asked for; choose an "
            "earlier instant, or set startingOffsetsByTimestampStrategy to latest to begin at the end there"
        )
    ends = await list_offsets(cluster, dict.fromkeys(without, LATEST), read_committed=read_committed) if without else {}
    return {p: ends[p].offset if p in ends else offset for p, offset in offsets.items()}


def _for_each(
    given: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition], option: str
) -> dict[TopicPartition, int]:
    """Options that speak of single partitions must speak of all that are read, and of no others."""
    read = set(partitions)
    missing, others = sorted(read - set(given)), sorted(set(given) - read)
    if missing:
        raise OptionRefused(f"{option} says nothing about {', '.join(map(str, missing))}; name every partition read")
    if others:
        raise OptionRefused(f"{option} names {', '.join(map(str, others))}, which is not read or does not exist")
    return {partition: given[partition] for partition in sorted(read)}


async def ranges_still_held(
    cluster: Cluster, ranges: Sequence[OffsetRange], *, fail_on_data_loss: bool
) -> list[OffsetRange]:
    """The ranges as far as the partitions hold them; what is gone is an error, or a warning if that was allowed."""
    held = await offset_ranges(cluster, dict.fromkeys(wanted.partition for wanted in ranges)) if ranges else {}
    still: list[OffsetRange] = []
    for wanted in ranges:
        there = held[wanted.partition]
        if wanted.start >= there.start and wanted.end <= there.stop:
            still.append(wanted)
            continue
        gone = (
            messages_gone(wanted.partition, wanted.start, wanted.end, there)
            if wanted.start < there.start or wanted.start > there.stop
            else f"{wanted.partition} was to be read up to offset {wanted.end}, but ends at {there.stop}; name offsets "
            "that it holds, or set failOnDataLoss to false to read what is there"
        )
        if fail_on_data_loss:
            raise MessagesLost(gone)
        logger.warning("%s; failOnDataLoss is false, so the rest is read", gone)
        still.append(OffsetRange(wanted.partition, max(wanted.start, there.start), max(0, min(wanted.end, there.stop))))
    return [wanted for wanted in still if len(wanted)]


def ranges_between(start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
    """What lies between two points of a stream. A partition or topic that is new at the end is read from its start."""
    recreated = start.recreated_in(end)
    ranges = []
    for partition in sorted(end.positions):
        begin = 0 if partition.topic in recreated else start.positions.get(partition, 0)
        if begin < end.positions[partition]:
            ranges.append(OffsetRange(partition, begin, end.positions[partition]))
    return ranges
