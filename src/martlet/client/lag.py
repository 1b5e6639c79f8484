"""How far a group is behind, in messages and in time, for each partition it has committed or is reading.

Lag in messages is the log's end less the committed offset, or less the log's start where that is later. Lag in time is
the age of the first message that the group has not read; a partition that it has read to the end is not behind. That
message is fetched and looked at, whatever batch it is in; batches of transaction markers are passed over, since no
consumer ever sees one. What is read for this is bounded, and a message not found within the bound has no age.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from martlet.base.errors import MartletError
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.fetched import Fetched
from martlet.client.fetcher import Fetcher, FetcherOptions, OutOfRange
from martlet.client.groups import CommittedOffset
from martlet.client.offsets import existing_partitions, offset_ranges

_PARTITION_BYTES: Final = 65_536
"""Asked of one partition at a time; a single batch that is larger comes whole."""
_FETCH_BYTES: Final = 16_777_216
_BATCH_BYTES_MAX: Final = 268_435_456
_FETCHES_MAX: Final = 1_000
"""For all partitions together; each brings the answer for at least one, or passes over markers."""


class PartitionLag(NamedTuple):
    """One partition of a group; None is: nothing committed, the partition is gone, or no age to be told."""

    partition: TopicPartition
    committed: int | None
    log_start: int | None
    log_end: int | None
    messages: int | None
    age_ms: int | None


async def partition_lags(
    cluster: Cluster,
    committed: Mapping[TopicPartition, CommittedOffset],
    assigned: Collection[TopicPartition],
    now_ms: int,
) -> list[PartitionLag]:
    """The lag of every partition that is committed or assigned, sorted."""
    partitions = sorted({*committed, *assigned})
    held = await offset_ranges(cluster, await existing_partitions(cluster, partitions))
    positions = {
        partition: max(committed[partition].offset, offsets.start)
        for partition, offsets in held.items()
        if partition in committed
    }
    behind = {partition: position for partition, position in positions.items() if position < held[partition].stop}
    stamps = await first_timestamps(cluster, behind, {partition: held[partition].stop for partition in behind})
    ages: dict[TopicPartition, int] = dict.fromkeys(positions.keys() - behind.keys(), 0)
    for partition, stamp in stamps.items():
        # Where nothing but markers is left to read, no message waits.
        ages[partition] = 0 if stamp is None else max(0, now_ms - stamp)
    return [
        PartitionLag(
            partition,
            committed[partition].offset if partition in committed else None,
            held[partition].start if partition in held else None,
            held[partition].stop if partition in held else None,
            max(0, held[partition].stop - positions[partition]) if partition in positions else None,
            ages.get(partition),
        )
        for partition in partitions
    ]


async def first_timestamps(
    cluster: Cluster, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | None]:
    """The timestamp of the first message at or after each position; None where there is none before the end.

    A partition whose message is not found within the bounds, or carries no timestamp, is left out.
    """
    found: dict[TopicPartition, int | None] = {}
    options = FetcherOptions(
        max_wait_ms=100,
        max_bytes=_FETCH_BYTES,
        partition_max_bytes=_PARTITION_BYTES,
        out_of_range=OutOfRange.EARLIEST,
    )
    async with Fetcher(cluster, options) as fetcher:
        fetcher.assign(positions)
        deadline = asyncio.get_running_loop().time() + cluster.options.retry_timeout_ms / 1000
        for _ in range(_FETCHES_MAX):
            if not fetcher.positions or asyncio.get_running_loop().time() > deadline:
                break
            for fetched in await fetcher.fetch():
                _look(fetched, ends[fetched.partition], fetcher, found)
    return found


def _look(fetched: Fetched, end: int, fetcher: Fetcher, found: dict[TopicPartition, int | None]) -> None:
    """Take the first message of what arrived, and read no more of a partition that has been decided."""
    partition = fetched.partition
    try:
        record = next(fetched.records(batch_bytes_max=_BATCH_BYTES_MAX), None)
    except MartletError:
        # What cannot be read has no age; the lag in messages is known all the same.
        fetcher.unassign([partition])
        return
    if record is not None:
        if record.timestamp_ms >= 0:
            found[partition] = record.timestamp_ms
        fetcher.unassign([partition])
    elif fetched.next_position >= end:
        found[partition] = None
        fetcher.unassign([partition])
