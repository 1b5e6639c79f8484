"""How far a group is behind, in messages and in time, for each partition it has committed or is reading.

Lag in messages is the log's end less the committed offset, or less the log's start where that is later. Lag in time is
the age of the first message that the group has not read; a partition that it has read to the end is not behind. That
message is fetched and read, whatever batch it is in; batches of transaction markers are passed over, since no consumer
ever sees one. What is read for this is bounded, and a message not found within the bound has no age.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode, MartletError
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.fetched import Fetched
from martlet.client.fetcher import Fetcher, FetcherOptions, OutOfRange
from martlet.client.groups import CommittedOffset, Groups
from martlet.client.offsets import existing_partitions, offset_ranges

_PARTITION_BYTES: Final = 65_536
"""Asked of one partition at a time; a single batch that is larger comes whole."""
_FETCH_BYTES: Final = 16_777_216
_BATCH_BYTES_MAX: Final = 268_435_456
_FETCHES_MAX: Final = 1_000
"""For all partitions together; each brings the answer for at least one, or passes over markers."""


class PartitionLag(NamedTuple):
    """One partition of a group; None is: nothing committed, the partition is gone, or no age is known."""

    partition: TopicPartition
    committed: int | None
    log_start: int | None
    log_end: int | None
    messages: int | None
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One group with the lag of each of its partitions, and who reads it."""

    group_id: str
    state: str
    partitions: Sequence[PartitionLag]
    readers: Mapping[TopicPartition, str]
    """The client id, or else the member id, of the member that reads a partition."""

    @property
    def messages(self) -> int | None:
        """All partitions together; None when the lag of none is known."""
        known = [each.messages for each in self.partitions if each.messages is not None]
        return sum(known) if known else None

    @property
    def oldest_ms(self) -> int | None:
        """How long the message waits that waits longest."""
        return max((each.age_ms for each in self.partitions if each.age_ms is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group_id,
            "state": self.state,
            "lag": self.messages,
            "lag_seconds": _seconds(self.oldest_ms),
            "partitions": [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "committed": each.committed,
                    "first_offset": each.log_start,
                    "end_offset": each.log_end,
                    "lag": each.messages,
                    "lag_seconds": _seconds(each.age_ms),
                    "reader": self.readers.get(each.partition),
                }
                for each in self.partitions
            ],
        }


def _seconds(age_ms: int | None) -> float | None:
    return None if age_ms is None else age_ms / 1000


async def group_lags(cluster: Cluster, now_ms: int) -> list[GroupLag]:
    """The lag of every group there is."""
    groups = Groups(cluster)
    lags = []
    for listing in await groups.listings():
        try:
            lags.append(await group_lag(cluster, listing.group_id, now_ms))
        except ApiError as error:
            # It may have gone since it was listed.
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
    return lags


async def group_lag(cluster: Cluster, group_id: str, now_ms: int) -> GroupLag:
    """How far one group is behind, and who reads what."""
    groups = Groups(cluster)
    description = await groups.describe(group_id)
    owners = description.owners()
    lags = await partition_lags(cluster, await groups.committed(group_id), owners.keys(), now_ms)
    readers = {partition: member.client_id or member.member_id for partition, member in owners.items()}
    return GroupLag(group_id, description.state, lags, readers)


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
                _note_first(fetched, ends[fetched.partition], fetcher, found)
    return found


def _note_first(fetched: Fetched, end: int, fetcher: Fetcher, found: dict[TopicPartition, int | None]) -> None:
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
