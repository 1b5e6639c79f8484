"""A publish whose batches are appended and wait to be acknowledged, and the answer to every publish.

Rules: nothing is acknowledged by a broker that has lost touch with its cluster, under another leader epoch than the one
in which it was appended, or, with acks=all, while fewer replicas are in sync than the topic demands.

Proved by: tests/unit/broker/parked/test_publish_acks.py
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import Link, Reply
from martlet.broker.partitions.partition import Partition
from martlet.broker.routing.leader_hint import add_leader_hints
from martlet.broker.services import BrokerServices
from martlet.log.validation import InvalidRecords
from martlet.wire.api_keys import ApiKey
from martlet.wire.leader_hints import NodeEndpoint
from martlet.wire.produce import ProducePartitionResult, RecordError, encode_produce_response

_FIRST_WITH_LEADER_HINTS: Final = 10

TopicResults = list[tuple[str | None, bytes | None, list[ProducePartitionResult]]]


class Awaited(NamedTuple):
    """A batch that is appended but not acknowledged yet, and where its result stands in the answer."""

    partition: Partition
    leader_epoch: int
    next_offset: int
    results: list[ProducePartitionResult]
    position: int


def refused(index: int, error: ApiError) -> ProducePartitionResult:
    record_errors: tuple[RecordError, ...] = ()
    if isinstance(error, InvalidRecords):
        record_errors = tuple(RecordError(number, text) for number, text in error.record_errors)
    return ProducePartitionResult(index, error.code, record_errors=record_errors, error_message=error.detail)


def count_errors(broker: BrokerServices, answer: TopicResults) -> None:
    broker.metrics.count_errors(ApiKey.PRODUCE, (result.error_code for *_, results in answer for result in results))


def send_answer(broker: BrokerServices, link: Link, reply: Reply, answer: TopicResults, *, has_errors: bool) -> None:
    """Answer, unless this broker has lost touch with its cluster meanwhile: then nothing is acknowledged."""
    version = reply.header.api_version
    if not broker.partitions.may_act():
        lost = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has lost touch with its cluster")
        has_errors = True
        for _, _, results in answer:
            results[:] = [one if one.error_code else refused(one.index, lost) for one in results]
    endpoints: Sequence[NodeEndpoint] = ()
    if has_errors:
        count_errors(broker, answer)
    if has_errors and version >= _FIRST_WITH_LEADER_HINTS:
        endpoints = add_leader_hints(broker.cluster, link, answer)
    reply.send((encode_produce_response(version, answer, reply.throttle(), endpoints),))


class WaitingProduce:
    """A publish whose batches are appended and wait to be acknowledged; answered once, when all are or time is up."""

    __slots__ = (
        "_answer",
        "_awaited",
        "_broker",
        "_by_all",
        "_has_errors",
        "_link",
        "_outstanding",
        "_reply",
        "_timer",
    )

    def __init__(
        self, broker: BrokerServices, link: Link, reply: Reply, answer: TopicResults, awaited: Sequence[Awaited]
    ) -> None:
        self._broker = broker
        self._link = link
        self._reply = reply
        self._answer = answer
        self._awaited = awaited
        self._by_all = self._has_errors = False
        self._outstanding = 0
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, timeout_ms: int, *, by_all: bool, has_errors: bool) -> None:
        """Ask every partition to report; `start` has seen that none is ready yet."""
        self._by_all = by_all
        self._has_errors = has_errors
        for one in self._awaited:
            partition = one.partition
            if (
                partition.when_committed(one.next_offset, self._reported, gives_up=True)
                if by_all
                else partition.watermarks.when_own(one.next_offset, self._reported)
            ):
                self._outstanding += 1
        self._broker.metrics.parked_produces += 1
        if not self._outstanding:
            self._send()
            return
        self._reply.on_abandoned = self._leave
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._timed_out)

    def _reported(self) -> None:
        self._outstanding -= 1
        if not self._outstanding and not (self._reply.ready or self._reply.abandoned):
            self._send()

    def _timed_out(self) -> None:
        if not self._reply.ready:
            self._send()

    def _send(self) -> None:
        """Answer; what is not held by enough now was too late, or its partition is led by another broker."""
        self._leave()
        for one in self._awaited:
            error = self._refusal(one)
            if error is not None:
                self._has_errors = True
                index = one.results[one.position].index
                one.results[one.position] = refused(index, error)
        send_answer(self._broker, self._link, self._reply, self._answer, has_errors=self._has_errors)

    def _refusal(self, one: Awaited) -> ApiError | None:
        """Why a batch cannot be acknowledged now; None when it can."""
        partition = one.partition
        if partition.closed_with is not None:
            return partition.closed_with
        if partition.leader is None or partition.leader_epoch != one.leader_epoch:
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader changed before the batch was committed")
        if one.next_offset <= (partition.high_watermark if self._by_all else partition.watermarks.own_offset):
            return None
        if self._by_all and not partition.has_enough_in_sync:
            return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return ApiError(ErrorCode.REQUEST_TIMED_OUT)

    def _leave(self) -> None:
        self._broker.metrics.parked_produces -= 1
        if self._timer is not None:
            self._timer.cancel()
