"""A fetch from arrival to answer: examine its partitions, wait while they hold too little, read, answer.

What a partition gives depends on who reads: a consumer (`consumer_fetch.py`) or a follower (`replica_fetch.py`), each a
`Reads` that this machine is given. Examining costs no disk access: partitions say where bytes lie and how many. Bytes
are read once, when the answer goes out: on the event loop where they are in the page cache, in a thread where they are
not.

Proved by: tests/unit/broker/parked/test_follower_reads.py, tests/unit/broker/parked/test_replica_fetch.py
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.base.ids import TopicId
from martlet.broker.ground.request import Link, Reply
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.watermarks import ChangeWaiters
from martlet.broker.routing.leader_hint import add_leader_hints
from martlet.broker.services import BrokerServices
from martlet.log.log_slice import LogSlice
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    encode_fetch_response,
)
from martlet.wire.leader_hints import NodeEndpoint

_WAIT_MS_MAX: Final = 300_000
"""A fetch waits no longer than this whatever it asks for, so that an abandoned one cannot stay for ever."""

_TopicResults = list[tuple[str | None, bytes | None, list[FetchPartitionResult]]]


class _Found(NamedTuple):
    """Where one partition's answer stands and which bytes belong into it."""

    partition: Partition
    leader_epoch: int
    slice: LogSlice
    results: list[FetchPartitionResult]
    position: int


class FetchAttempt:
    """What one pass over the partitions of a request has found."""

    __slots__ = ("answer", "bytes_max", "complete", "found", "has_errors", "partitions", "results", "size")

    def __init__(self, bytes_max: int) -> None:
        self.answer: _TopicResults = []
        self.results: list[FetchPartitionResult] = []
        """Those of the topic that is being examined."""
        self.found: list[_Found] = []
        self.partitions: list[Partition] = []
        self.bytes_max = bytes_max
        self.size = 0
        self.has_errors = False
        self.complete = False
        """Something that must not wait: an error, a divergence, or a partition that gave all it may."""

    def include(self, partition: Partition, asked: FetchPartition, end_offset: int) -> None:
        """The result that comes next is to hold what lies below `end_offset`, as far as the limits allow."""
        limit = min(max(self.bytes_max - self.size, 0), asked.partition_max_bytes)
        piece = partition.log.locate(
            asked.fetch_offset, max_bytes=limit, end_offset=end_offset, at_least_one=not self.size
        )
        if piece.size:
            self.size += piece.size
            self.complete = self.complete or piece.is_final
            self.found.append(_Found(partition, partition.leader_epoch, piece, self.results, len(self.results)))


class Reads(Protocol):
    """What one kind of reader gets of a partition, and what it waits for."""

    def begin(self) -> None:
        """Another attempt begins."""
        ...

    def examine(self, attempt: FetchAttempt, topic: str, asked: FetchPartition) -> FetchPartitionResult | None:
        """The result for one partition without its records; None leaves it out of the answer."""
        ...

    def changes(self, partition: Partition) -> ChangeWaiters:
        """What wakes this reader while it waits."""
        ...

    def filled(self, partition: Partition, result: FetchPartitionResult, content: bytes) -> FetchPartitionResult:
        """The result with what was read for it; raises StorageFailure."""
        ...

    def answered(self) -> None:
        """The answer is about to go out."""
        ...


class WaitingFetch:
    """A fetch that is being served; answered exactly once."""

    __slots__ = ("_broker", "_link", "_parked", "_reads", "_reply", "_request", "_retry_scheduled", "_timer")

    def __init__(self, broker: BrokerServices, request: FetchRequest, link: Link, reply: Reply, reads: Reads) -> None:
        self._broker = broker
        self._request = request
        self._link = link
        self._reply = reply
        self._reads = reads
        self._parked: FetchAttempt | None = None
        """What was found last, while the fetch waits."""
        self._retry_scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Answer now, or wait for the partitions to change."""
        attempt = self._attempt()
        if self._is_enough(attempt):
            self._read_and_send(attempt)
        else:
            self._park(attempt)

    # --- examining

    def _is_enough(self, attempt: FetchAttempt) -> bool:
        request = self._request
        return attempt.complete or attempt.size >= request.min_bytes or request.max_wait_ms <= 0 or not request.topics

    def _attempt(self) -> FetchAttempt:
        broker, reads = self._broker, self._reads
        attempt = FetchAttempt(min(self._request.max_bytes, broker.settings.fetch_bytes_max))
        may_act = broker.partitions.may_act()
        reads.begin()
        for topic in self._request.topics:
            name = topic.topic
            if name is None:
                known = broker.image.topic_by_id(TopicId(topic.topic_id or b""))
                name = known.name if known is not None else None
            results = attempt.results = []
            for asked in topic.partitions:
                try:
                    if not may_act:
                        broker.partitions.check_acting()
                    if name is None:
                        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
                    result = reads.examine(attempt, name, asked)
                except ApiError as error:
                    attempt.complete = attempt.has_errors = True
                    result = FetchPartitionResult(asked.partition, _code_for_readers(error.code))
                except StorageFailure as failure:
                    attempt.complete = True
                    result = self._failed(attempt, attempt.partitions[-1], asked.partition, failure)
                if result is not None:
                    results.append(result)
            if results:
                attempt.answer.append((topic.topic, topic.topic_id, results))
        return attempt

    # --- waiting

    def _park(self, attempt: FetchAttempt) -> None:
        self._parked = attempt
        for partition in attempt.partitions:
            self._reads.changes(partition).add(self._changed)
        self._reply.on_abandoned = self._unpark
        self._broker.metrics.parked_fetches += 1
        wait_ms = min(self._request.max_wait_ms, _WAIT_MS_MAX)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._waited_enough)

    def _changed(self) -> None:
        # Many appends may come in one turn of the loop; one attempt after it sees them all.
        if not self._retry_scheduled:
            self._retry_scheduled = True
            asyncio.get_running_loop().call_soon(self._retry)

    def _retry(self) -> None:
        self._retry_scheduled = False
        if self._timer is None:
            return
        attempt = self._attempt()
        if self._is_enough(attempt):
            self._unpark()
            self._read_and_send(attempt)
        elif self._parked is not None:
            before, self._parked = self._parked, attempt
            if attempt.partitions != before.partitions:  # a topic was deleted and created again
                for partition in before.partitions:
                    self._reads.changes(partition).remove(self._changed)
                for partition in attempt.partitions:
                    self._reads.changes(partition).add(self._changed)

    def _waited_enough(self) -> None:
        attempt = self._parked
        self._unpark()
        # A fetch that is woken at every change need not try again when there was none.
        self._read_and_send(self._attempt() if attempt is None or self._retry_scheduled else attempt)

    def _unpark(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._broker.metrics.parked_fetches -= 1
        if self._parked is not None:
            for partition in self._parked.partitions:
                self._reads.changes(partition).remove(self._changed)
            self._parked = None

    # --- reading and answering

    def _read_and_send(self, attempt: FetchAttempt) -> None:
        contents: list[bytes | StorageFailure] = []
        for found in attempt.found:
            content = _read_now(found.slice)
            if content is None:
                break
            contents.append(content)
        else:
            self._send(attempt, contents)
            return
        reading = self._broker.partitions.readers.run(lambda: [_read(found.slice) for found in attempt.found])
        reading.add_done_callback(lambda done: self._send(attempt, _as_it_was(attempt, done.result())))

    def _send(self, attempt: FetchAttempt, contents: list[bytes | StorageFailure]) -> None:
        for found, content in zip(attempt.found, contents, strict=True):
            partition, result = found.partition, found.results[found.position]
            try:
                if isinstance(content, StorageFailure):
                    with contextlib.suppress(StorageFailure):
                        partition.log.segments.find_damage_at(found.slice)
                    raise content
                result = self._reads.filled(partition, result, content)
            except StorageFailure as failure:
                result = self._failed(attempt, partition, result.partition, failure)
            found.results[found.position] = result
        endpoints: Sequence[NodeEndpoint] = ()
        if attempt.has_errors:
            endpoints = add_leader_hints(self._broker.cluster, self._link, attempt.answer)
            codes = (result.error_code for *_, results in attempt.answer for result in results)
            self._broker.metrics.count_errors(ApiKey.FETCH, codes)
        self._reads.answered()
        version, throttle_ms = self._reply.header.api_version, self._reply.throttle()
        self._reply.send(
            encode_fetch_response(version, attempt.answer, throttle_time_ms=throttle_ms, node_endpoints=endpoints)
        )

    def _failed(
        self, attempt: FetchAttempt, partition: Partition, index: int, failure: StorageFailure
    ) -> FetchPartitionResult:
        attempt.has_errors = True
        return FetchPartitionResult(index, self._broker.partitions.damage.read_failed(partition, failure))


def diverging_epoch(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """Where the reader's history leaves ours, if it does: it names the epoch of the last batch it has read."""
    if asked.last_fetched_epoch < 0 or partition.history_fault is not None:
        return None
    log = partition.log
    epoch, end_offset = log.epochs.end_offset_for(asked.last_fetched_epoch, log_end_offset=log.end_offset)
    if epoch < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None


def _code_for_readers(code: ErrorCode) -> ErrorCode:
    # Consumers do not expect to hear from a fetch that there is no leader; this makes them search for one.
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.LEADER_NOT_AVAILABLE else code


def _as_it_was(attempt: FetchAttempt, contents: list[bytes | StorageFailure]) -> list[bytes | StorageFailure]:
    """What was read, without that of partitions which got another leader meanwhile: they may have been truncated."""
    for number, found in enumerate(attempt.found):
        if found.partition.leader_epoch != found.leader_epoch:
            result = found.results[found.position]
            found.results[found.position] = FetchPartitionResult(result.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            attempt.has_errors = True
            contents[number] = b""
    return contents


def _read(piece: LogSlice) -> bytes | StorageFailure:
    try:
        return piece.read()
    except StorageFailure as failure:
        return failure


def _read_now(piece: LogSlice) -> bytes | StorageFailure | None:
    try:
        return piece.read_now()
    except StorageFailure as failure:
        return failure
