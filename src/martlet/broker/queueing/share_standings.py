"""Where share groups stand, asked of the partitions' leaders and changed there: this broker or another one.

Rules: brokers speak Kafka's own words for it among each other (ReadShareGroupStateSummary, InitializeShareGroupState);
each partition has an answer of its own. A queue that is just being made is waited for.

Proved by: tests/broker/test_share_offsets.py
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode, error_code
from martlet.base.ids import BrokerId, TopicId
from martlet.broker.queueing.doors import PartitionQueue, QueueDoors
from martlet.broker.routing.cluster_view import leader_of, present_brokers
from martlet.broker.routing.peers import Peers
from martlet.client.apis import INITIALIZE_SHARE_GROUP_STATE, LIST_OFFSETS, READ_SHARE_GROUP_STATE_SUMMARY
from martlet.client.offsets import LATEST
from martlet.cluster.image import MetadataImage
from martlet.queues.share.sessions import SharePartition
from martlet.wire.messages import initialize_share_group_state, read_share_group_state_summary
from martlet.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

_WAIT_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05
_NOT_THERE_YET: Final = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND)


class Standing(NamedTuple):
    """Where a group stands in a partition."""

    start: int = -1
    """Everything before is finished; -1 where the group has not begun."""
    leader_epoch: int = 0
    finished: int = -1
    """Messages behind the start that are finished; -1 where that is not known."""
    lag: int = -1
    """Messages that are not finished; -1 where that is not known."""


class ShareStandings:
    """Lives on the broker's event loop; holds nothing."""

    def __init__(self, me: BrokerId, image: MetadataImage, queues: QueueDoors, peers: Peers) -> None:
        self._me = me
        self._image = image
        self._queues = queues
        self._peers = peers

    async def read(
        self, group_id: str, partitions: Iterable[SharePartition]
    ) -> dict[SharePartition, Standing | ApiError]:
        """Where the group stands in each of them."""
        found: dict[SharePartition, Standing | ApiError] = {}
        for leader, led in self._by_leader(partitions, found).items():
            if leader == self._me:
                found.update((one, self.read_here(group_id, one)) for one in led)
            else:
                found.update(await self._read_at(leader, group_id, led))
        return found

    async def move(self, group_id: str, starts: Mapping[SharePartition, int]) -> dict[SharePartition, ApiError | None]:
        """Have the group go on at these offsets; what has become of that."""
        found: dict[SharePartition, ApiError | None] = {}
        refused: dict[SharePartition, Standing | ApiError] = {}
        for leader, led in self._by_leader(starts, refused).items():
            if leader == self._me:
                for one in led:
                    found[one] = await self.move_here(group_id, one, starts[one])
            else:
                found.update(await self._move_at(leader, group_id, {one: starts[one] for one in led}))
        found.update((one, error) for one, error in refused.items() if isinstance(error, ApiError))
        return found

    def _by_leader(
        self, partitions: Iterable[SharePartition], refused: dict[SharePartition, Standing | ApiError]
    ) -> dict[BrokerId, list[SharePartition]]:
        present = present_brokers(self._image, self._me)
        led: dict[BrokerId, list[SharePartition]] = {}
        for one in partitions:
            topic = self._image.topic_by_id(one.topic_id)
            record = self._image.partition(topic.name, one.partition) if topic is not None else None
            leader = leader_of(record, present) if record is not None else None
            if record is None:
                refused[one] = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif leader is None:
                refused[one] = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader now")
            else:
                led.setdefault(leader, []).append(one)
        return led

    # --- as the leader

    def read_here(self, group_id: str, partition: SharePartition) -> Standing | ApiError:
        """Of a partition that this broker leads."""
        try:
            queue = self._queues.find(partition.topic_id, partition.partition, group_id)
            depth = queue.depth()
        except ApiError as error:
            return Standing() if error.code is ErrorCode.GROUP_ID_NOT_FOUND else error
        finished = max(0, queue.end - queue.start - depth.total)
        return Standing(queue.start, queue.leader_epoch, finished, depth.total)

    async def move_here(self, group_id: str, partition: SharePartition, start: int) -> ApiError | None:
        """Of a partition that this broker leads."""
        try:
            queue = await self._queue(group_id, partition)
            await queue.seek(start)
        except ApiError as error:
            return error
        return None

    async def _queue(self, group_id: str, partition: SharePartition) -> PartitionQueue:
        """The queue, which a subscription that was just made does not have at once."""
        until = asyncio.get_running_loop().time() + _WAIT_SECONDS
        while True:
            try:
                return self._queues.find(partition.topic_id, partition.partition, group_id)
            except ApiError as error:
                if error.code not in _NOT_THERE_YET or asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    # --- at other leaders

    async def _read_at(
        self, leader: BrokerId, group_id: str, partitions: Iterable[SharePartition]
    ) -> dict[SharePartition, Standing | ApiError]:
        messages = read_share_group_state_summary
        topics = [
            messages.ReadStateSummaryData(topic_id, [messages.PartitionData(index, -1) for index in indexes])
            for topic_id, indexes in _by_topic(partitions).items()
        ]
        request = messages.ReadShareGroupStateSummaryRequest(group_id, topics)
        try:
            response = await self._peers.call(leader, READ_SHARE_GROUP_STATE_SUMMARY, request)
            ends = await self._ends_at(leader, partitions)
        except ApiError as error:
            return dict.fromkeys(partitions, error)
        found = {
            SharePartition(TopicId(topic.topic_id), one.partition): (
                ApiError(error_code(one.error_code), one.error_message or "")
                if one.error_code
                else Standing(one.start_offset, one.leader_epoch, one.delivery_complete_count)
            )
            for topic in response.results
            for one in topic.partitions
        }
        return {one: _with_lag(standing, ends.get(one, -1)) for one, standing in found.items()}

    async def _ends_at(self, leader: BrokerId, partitions: Iterable[SharePartition]) -> dict[SharePartition, int]:
        """Where the logs of partitions end, as their leader says."""
        names = {one.topic_id: topic.name for one in partitions if (topic := self._image.topic_by_id(one.topic_id))}
        ids = {name: topic_id for topic_id, name in names.items()}
        topics = [
            ListOffsetsTopic(names[topic_id], [ListOffsetsPartition(index, timestamp=LATEST) for index in indexes])
            for topic_id, indexes in _by_topic(one for one in partitions if one.topic_id in names).items()
        ]
        response = await self._peers.call(leader, LIST_OFFSETS, ListOffsetsRequest(-1, topics=topics))
        return {
            SharePartition(ids[topic.name], one.partition_index): one.offset
            for topic in response.topics
            for one in topic.partitions
            if topic.name in ids
        }

    async def _move_at(
        self, leader: BrokerId, group_id: str, starts: Mapping[SharePartition, int]
    ) -> dict[SharePartition, ApiError | None]:
        messages = initialize_share_group_state
        topics = [
            messages.InitializeStateData(
                topic_id,
                [messages.PartitionData(index, 0, starts[SharePartition(topic_id, index)]) for index in indexes],
            )
            for topic_id, indexes in _by_topic(starts).items()
        ]
        request = messages.InitializeShareGroupStateRequest(group_id, topics)
        try:
            response = await self._peers.call(leader, INITIALIZE_SHARE_GROUP_STATE, request)
        except ApiError as error:
            return dict.fromkeys(starts, error)
        return {
            SharePartition(TopicId(topic.topic_id), one.partition): (
                ApiError(error_code(one.error_code), one.error_message or "") if one.error_code else None
            )
            for topic in response.results
            for one in topic.partitions
        }


def _with_lag(standing: Standing | ApiError, end: int) -> Standing | ApiError:
    if isinstance(standing, ApiError) or min(standing.start, standing.finished, end) < 0:
        return standing
    return standing._replace(lag=max(0, end - standing.start - standing.finished))


def _by_topic(partitions: Iterable[SharePartition]) -> dict[TopicId, list[int]]:
    by_topic: dict[TopicId, list[int]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic_id, []).append(one.partition)
    return by_topic
