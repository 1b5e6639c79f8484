"""Offsets by time: where a partition starts, where it ends, which message was the first at or after an instant."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode, error_code
from martlet.base.ids import TopicPartition
from martlet.client.apis import LIST_OFFSETS
from martlet.client.cluster import Cluster, Leader
from martlet.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

_CLIENT: Final = -1


class OffsetAt(NamedTuple):
    """An offset found; offset -1 means that no message is that young."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, OffsetAt]:
    """For each partition the offset of its timestamp (or LATEST, EARLIEST, MAX_TIMESTAMP); retries what may be."""
    topics = {partition.topic for partition in wanted}
    found: dict[TopicPartition, OffsetAt] = {}

    async def attempt() -> None:
        by_leader: dict[int, dict[TopicPartition, Leader]] = defaultdict(dict)
        for partition in wanted:
            if partition not in found:
                leader = await cluster.leader(partition)
                by_leader[leader.broker_id][partition] = leader
        answers = await asyncio.gather(
            *(
                _ask_leader(
                    cluster, broker_id, {p: (wanted[p], leaders[p].leader_epoch) for p in leaders}, read_committed
                )
                for broker_id, leaders in by_leader.items()
            )
        )
        for answer in answers:
            found.update(answer)

    await cluster.retry(attempt, topics=topics)
    return found


async def _ask_leader(
    cluster: Cluster, broker_id: int, wanted: Mapping[TopicPartition, tuple[int, int]], read_committed: bool
) -> dict[TopicPartition, OffsetAt]:
    by_topic: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for partition, (timestamp, leader_epoch) in wanted.items():
        by_topic[partition.topic].append(
            ListOffsetsPartition(
                partition_index=partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
            )
        )
    request = ListOffsetsRequest(
        replica_id=_CLIENT,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
        timeout_ms=cluster.options.request_timeout_ms,
    )
    response = await (await cluster.connection(broker_id)).call(LIST_OFFSETS, request)
    found = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                code = error_code(answer.error_code)
                raise ApiError(code, f"{partition}: {ERROR_TABLE[code].text}")
            found[partition] = OffsetAt(answer.offset, answer.timestamp, answer.leader_epoch)
    return found


async def offset_ranges(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, range]:
    """The offsets each partition holds, from its first to one before its end."""
    wanted = list(partitions)
    starts, ends = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(wanted, EARLIEST)), list_offsets(cluster, dict.fromkeys(wanted, LATEST))
    )
    return {partition: range(starts[partition].offset, ends[partition].offset) for partition in wanted}


async def existing_partitions(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Those that there are, of what a group may have committed before its topic was deleted."""
    existing: list[TopicPartition] = []
    for topic in dict.fromkeys(partition.topic for partition in partitions):
        try:
            info = await cluster.topic(topic)
        except ApiError as error:
            if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                raise
        else:
            existing += [p for p in partitions if p.topic == topic and p.partition in info.partitions]
    return existing
