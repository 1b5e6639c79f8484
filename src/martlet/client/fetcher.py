"""Reads assigned partitions from given positions on: long polls at the leaders, positions that only move with data.

How it works: `assign` says what to read from where, `fetch` returns what has arrived. Every broker that leads assigned
partitions has at most one request under way, on a connection of its own; `fetch` waits for the first answer and
leaves the others under way for the next call, so it may be cancelled and called again without loss.

Invariants: (CLT-7) a position moves only when the data before it is returned to the caller; (CLT-8) an answer to a
request made before `assign` or `unassign` touched its partition is dropped; (CLT-9) trouble that may pass is retried
with pauses and raised when it has lasted `retry_timeout_ms` without any answer in between; (CLT-10) a reader with a
rack goes to the replica that the leader names, and back to the leader after a while or when that replica cannot serve
it.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode, ProtocolViolation, error_code
from martlet.base.ids import TopicPartition
from martlet.client.apis import FETCH, NEWEST_BY_NAME
from martlet.client.cluster import Cluster, Leader, Purpose
from martlet.client.errors import ClientError
from martlet.client.fetched import Fetched
from martlet.client.offsets import EARLIEST, LATEST, list_offsets
from martlet.client.retrying import Retrying, asks_for_new_metadata
from martlet.wire.batch import BatchHeader, iterate_batches
from martlet.wire.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)


class OutOfRange(Enum):
    """What to do when a position lies outside what the partition still holds."""

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherOptions:
    """How much to ask for at once and how long the broker may wait for it."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    partition_max_bytes: int = 1_048_576
    read_committed: bool = False
    out_of_range: OutOfRange = OutOfRange.FAIL
    rack: str = ""
    """Where this reader is: it may be sent to a replica in the same rack instead of the leader."""
    near_replica_ms: int = 300_000
    """How long it stays there before it asks the leader again who is near."""


@dataclass(slots=True)
class _Assigned:
    """Where reading of one partition stands; `round` tells requests made before a change from those after."""

    position: int
    last_epoch: int = -1
    round: int = 0
    near_replica: int = -1
    """Whom to read from instead of the leader, until `near_until`."""
    near_until: float = 0.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """One request under way: who was asked for which positions."""

    rounds: Mapping[TopicPartition, int]
    names: Mapping[bytes, str]


class Fetcher:
    """Used by one task at a time between `start` and `aclose`; its requests live in tasks of its own."""

    def __init__(self, cluster: Cluster, options: FetcherOptions | None = None) -> None:
        self._cluster = cluster
        self._options = options or FetcherOptions()
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._round = 0
        self._under_way: dict[int, tuple[_Asked, asyncio.Task[FetchResponse]]] = {}
        self._to_reset: set[TopicPartition] = set()
        self._trouble: ApiError | ClientError | None = None
        self._retrying: Retrying | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        tasks = [task for _, task in self._under_way.values()]
        self._under_way.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on, besides those assigned already; also moves an assigned one."""
        self._round += 1
        for partition, offset in positions.items():
            self._assigned[partition] = _Assigned(offset, round=self._round)
            self._to_reset.discard(partition)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._assigned.pop(partition, None)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to be read of each assigned partition."""
        return {partition: assigned.position for partition, assigned in self._assigned.items()}

    async def fetch(self, until: "asyncio.Future[None] | None" = None) -> list[Fetched]:
        """Wait for data, at most about `max_wait_ms` or until the future is done; empty when there was none."""
        await self._pause_after_trouble()
        await self._reset_positions()
        await self._ask_idle_leaders()
        if not self._under_way:
            return []
        tasks = {task: broker_id for broker_id, (_, task) in self._under_way.items()}
        waited: list[asyncio.Future[Any]] = [*tasks] if until is None else [*tasks, until]
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        # No await from here on: a caller that is cancelled would lose what has arrived (CLT-7).
        arrived: list[Fetched] = []
        for task in [task for task in tasks if task in done]:
            asked, _ = self._under_way.pop(tasks[task])
            try:
                response = task.result()
                if response.error_code:
                    code = error_code(response.error_code)
                    raise ApiError(code, f"the fetch was refused: {ERROR_TABLE[code].text}")
            except (ApiError, ClientError) as error:
                self._note_trouble(error, {partition.topic for partition in asked.rounds})
                self._leave_near_replicas(asked.rounds)
            else:
                arrived += self._apply(asked, response)
        return arrived

    async def _ask_idle_leaders(self) -> None:
        """Send a request to every leader of assigned partitions that has none under way."""
        covered = {partition for asked, _ in self._under_way.values() for partition in asked.rounds}
        by_leader: dict[int, dict[TopicPartition, Leader]] = defaultdict(dict)
        for partition in [partition for partition in self._assigned if partition not in covered]:
            try:
                leader = self._cluster.known_leader(partition) or await self._cluster.leader(partition)
            except ApiError as error:
                self._note_trouble(error, {partition.topic})
            except ClientError as error:
                self._note_trouble(error, {partition.topic})
                break
            else:
                broker_id = self._read_from(partition, leader)
                if broker_id not in self._under_way:
                    by_leader[broker_id][partition] = leader
        for broker_id, leaders in by_leader.items():
            infos = {partition.topic: self._cluster.metadata.topics.get(partition.topic) for partition in leaders}
            names = {info.id: name for name, info in infos.items() if info is not None and info.has_id}
            asked = _Asked({partition: self._assigned[partition].round for partition in leaders}, names)
            by_id = len(names) == len(infos)
            request = self._request(leaders, {name: topic_id for topic_id, name in names.items()})
            task = asyncio.create_task(self._ask(broker_id, request, by_id=by_id), name=f"martlet-fetch-{broker_id}")
            self._under_way[broker_id] = (asked, task)

    def _read_from(self, partition: TopicPartition, leader: Leader) -> int:
        """The leader, or the replica it has named as nearer (CLT-10)."""
        assigned = self._assigned[partition]
        if assigned.near_replica < 0:
            return leader.broker_id
        is_known = assigned.near_replica in self._cluster.metadata.brokers
        if not is_known or asyncio.get_running_loop().time() >= assigned.near_until:
            assigned.near_replica = -1
            return leader.broker_id
        return assigned.near_replica

    def _leave_near_replicas(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if (assigned := self._assigned.get(partition)) is not None:
                assigned.near_replica = -1

    def _request(self, leaders: Mapping[TopicPartition, Leader], ids: Mapping[str, bytes]) -> FetchRequest:
        by_topic: dict[str, list[FetchPartition]] = defaultdict(list)
        for partition, leader in leaders.items():
            assigned = self._assigned[partition]
            by_topic[partition.topic].append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=leader.leader_epoch,
                    fetch_offset=assigned.position,
                    last_fetched_epoch=assigned.last_epoch,
                    partition_max_bytes=self._options.partition_max_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=self._options.max_wait_ms,
            min_bytes=self._options.min_bytes,
            max_bytes=self._options.max_bytes,
            isolation_level=int(self._options.read_committed),
            topics=[FetchTopic(name, ids.get(name), partitions) for name, partitions in by_topic.items()],
            rack_id=self._options.rack,
        )

    async def _ask(self, broker_id: int, request: FetchRequest, *, by_id: bool) -> FetchResponse:
        connection = await self._cluster.connection(broker_id, Purpose.FETCH)
        version = connection.version_of(FETCH, newest=None if by_id else NEWEST_BY_NAME)
        timeout_ms = self._cluster.options.request_timeout_ms + self._options.max_wait_ms
        body = encode_fetch_request(version, request)
        answer = await connection.exchange(FETCH.key, version, body, timeout_ms=timeout_ms)
        try:
            return parse_fetch_response(answer, version)
        except ProtocolViolation as error:
            raise connection.broken_by(error) from error

    def _apply(self, asked: _Asked, response: FetchResponse) -> list[Fetched]:
        arrived = []
        for topic in response.topics:
            name = topic.name or asked.names.get(topic.topic_id or b"", "")
            for result in topic.partitions:
                partition = TopicPartition(name, result.partition)
                assigned = self._assigned.get(partition)
                if assigned is None or asked.rounds.get(partition) != assigned.round:
                    continue
                try:
                    fetched = self._apply_partition(partition, assigned, result)
                except ApiError as error:
                    self._note_trouble(error, {name})
                else:
                    self._retrying = None
                    if fetched is not None:
                        arrived.append(fetched)
        return arrived

    def _apply_partition(
        self, partition: TopicPartition, assigned: _Assigned, result: FetchPartitionResult
    ) -> Fetched | None:
        code = error_code(result.error_code)
        if code != ErrorCode.NONE and assigned.near_replica >= 0:
            # It may only lag behind: what the leader says counts.
            assigned.near_replica = -1
            return None
        if result.preferred_read_replica >= 0:
            assigned.near_replica = result.preferred_read_replica
            assigned.near_until = asyncio.get_running_loop().time() + self._options.near_replica_ms / 1000
            return None
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._options.out_of_range is OutOfRange.FAIL:
                raise ApiError(code, f"{partition} holds no offset {assigned.position} (any more or yet)")
            self._to_reset.add(partition)
            return None
        if code != ErrorCode.NONE:
            raise ApiError(code, f"{partition}: {ERROR_TABLE[code].text}")
        if result.diverging_epoch is not None and result.diverging_epoch.end_offset >= 0:
            # A new leader never had what we read last: go on where its history parts from ours.
            assigned.position = min(assigned.position, result.diverging_epoch.end_offset)
            assigned.last_epoch = result.diverging_epoch.epoch
            return None
        last = _last_header(result.records)
        if last is None:
            if len(result.records):
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{partition}: not one whole batch in the answer")
            return None
        position, assigned.position = assigned.position, max(assigned.position, last.next_offset)
        assigned.last_epoch = last.partition_leader_epoch
        return Fetched(
            partition,
            position,
            assigned.position,
            result.high_watermark,
            result.log_start_offset,
            memoryview(result.records),
            result.aborted_transactions,
        )

    async def _reset_positions(self) -> None:
        """Move positions that lie outside of their partitions to the end that the options name."""
        wanted = {partition: self._assigned[partition] for partition in self._to_reset if partition in self._assigned}
        if not wanted:
            return
        end = EARLIEST if self._options.out_of_range is OutOfRange.EARLIEST else LATEST
        try:
            found = await list_offsets(self._cluster, dict.fromkeys(wanted, end))
        except ApiError as error:
            self._note_trouble(error, {partition.topic for partition in wanted})
        else:
            for partition, assigned in wanted.items():
                assigned.position, assigned.last_epoch = found[partition].offset, -1
        self._to_reset.difference_update(wanted)

    def _note_trouble(self, error: ApiError | ClientError, topics: Iterable[str]) -> None:
        """Remember it for the next call, after what did arrive has been returned."""
        self._trouble = self._trouble or error
        if asks_for_new_metadata(error):
            for topic in topics:
                self._cluster.mark_stale(topic)

    async def _pause_after_trouble(self) -> None:
        if self._trouble is None:
            return
        trouble, self._trouble = self._trouble, None
        if self._retrying is None:
            self._retrying = Retrying(self._cluster.options, self._cluster.randomness)
        await self._retrying.pause(trouble)


def _last_header(data: memoryview | bytes | bytearray) -> BatchHeader | None:
    headers = deque((header for _, header in iterate_batches(data)), maxlen=1)
    return headers[0] if headers else None
