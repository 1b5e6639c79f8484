"""Produce: append batches and acknowledge them as the request's `acks` and the topic's flush policy say.

Versions 3–13 are served; 0–13 is advertised, because librdkafka before 2.11.1 switches all compression off when it
does not see version 0. v7 zstd, v8 per-record errors, v10 leader hints, v13 topic ids.
- One batch for a partition; a second one in the same request is refused with INVALID_REQUEST.
- Partitions are independent: one refused batch does not harm the others of the request.
- Batches are appended as they arrived, inside the receive buffer, before the next request is looked at; answers wait.
- Where records must be opened (compacted topics, a bound on old timestamps) large compressed batches are opened in a
  thread, and later requests of the connection wait for it.
- acks=0 gets no answer; when such a publish fails the connection is closed, which is how the client learns of it.
- With one replica acks=1 and acks=all are the same: both wait for the flush where the policy is `commit`.
Deviation: transactional publishes are refused with INVALID_TXN_STATE until transactions are served.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.partition import LONG_CHECK_BYTES, Partition
from martlet.broker.request import Link, Reply
from martlet.broker.services import BrokerServices
from martlet.log.validation import InvalidRecords, check_client_batch
from martlet.observe.metrics import BrokerMetrics, DropReason
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import BatchHeader
from martlet.wire.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopic,
    RecordError,
    encode_produce_response,
    parse_produce_request,
)

KEY: Final = ApiKey.PRODUCE
VERSIONS: Final = (3, 13)
ADVERTISED: Final = (0, 13)

_ACKS_ALLOWED: Final = (-1, 0, 1)

_TopicResults = list[tuple[str | None, bytes | None, list[ProducePartitionResult]]]


_Checked = dict[int, BatchHeader | ApiError]
"""Results of checks made beforehand, by the identity of the batch's view."""


class _Awaited(NamedTuple):
    """A batch that is appended but not committed, and where its result stands in the answer."""

    partition: Partition
    next_offset: int
    results: list[ProducePartitionResult]
    position: int


def start(broker: BrokerServices, link: Link, frame: memoryview, reply: Reply) -> None:
    """Append everything now; answer now or when it is committed."""
    version = reply.header.api_version
    request = parse_produce_request(frame[reply.header.body_position :], version)
    if len(frame) >= LONG_CHECK_BYTES and _needs_long_checks(broker, request):
        # The receive buffer is needed for other requests while a thread looks at this one.
        copy = memoryview(bytearray(frame))[reply.header.body_position :]
        _check_in_thread(broker, parse_produce_request(copy, version), reply)
    else:
        _append_all(broker, request, reply, {})


def _append_all(broker: BrokerServices, request: ProduceRequest, reply: Reply, checked: _Checked) -> None:
    version = reply.header.api_version
    answer: _TopicResults = []
    awaited: list[_Awaited] = []
    appended_to: set[Partition] = set()
    refusal = _refusal_of_all(request)
    now_ms = broker.clock.now_ms()
    for topic in request.topics:
        results: list[ProducePartitionResult] = []
        answer.append((topic.name, topic.topic_id, results))
        for index, records in topic.partitions:
            try:
                if refusal is not None:
                    raise refusal
                broker.partitions.check_writable()
                partition = _partition(broker, topic, index)
                if partition in appended_to:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "a request carries one batch for a partition")
                appended_to.add(partition)
                header = checked.get(id(records)) or _check(partition, records, version, now_ms)
                if isinstance(header, ApiError):
                    raise header
                appended = partition.append(cast(memoryview, records), header, now_ms=now_ms)
            except ApiError as error:
                results.append(_refused(broker.metrics, index, error))
                continue
            if appended.last_offset >= partition.high_watermark:
                awaited.append(_Awaited(partition, appended.last_offset + 1, results, len(results)))
            results.append(
                ProducePartitionResult(
                    index, 0, appended.base_offset, appended.log_append_time_ms, partition.log.log_start_offset
                )
            )
    if request.acks == 0:
        _finish_unanswered(answer, reply)
    elif awaited:
        WaitingProduce(broker.metrics, reply, answer, awaited).wait(request.timeout_ms)
    else:
        reply.send((encode_produce_response(version, answer),))


# --- batches that must be opened to be checked, and are large


def _needs_long_checks(broker: BrokerServices, request: ProduceRequest) -> bool:
    return any(
        partition.check_takes_long(records)
        for topic in request.topics
        for index, records in topic.partitions
        if records is not None and (partition := _open_partition(broker, topic, index)) is not None
    )


def _check_in_thread(broker: BrokerServices, request: ProduceRequest, reply: Reply) -> None:
    """Check the batches in a thread, then go on; nothing of this connection overtakes it meanwhile."""
    reply.holds_line = True
    version, now_ms = reply.header.api_version, broker.clock.now_ms()
    waiting = [
        (records, partition)
        for topic in request.topics
        for index, records in topic.partitions
        if records is not None and (partition := _open_partition(broker, topic, index)) is not None
    ]

    def check_all() -> _Checked:
        return {id(records): _try_check(partition, records, version, now_ms) for records, partition in waiting}

    def go_on(done: "asyncio.Future[_Checked]") -> None:
        if not reply.abandoned:
            _append_all(broker, request, reply, done.result())
        reply.release_line()

    asyncio.get_running_loop().run_in_executor(None, check_all).add_done_callback(go_on)


def _open_partition(broker: BrokerServices, topic: ProduceTopic, index: int) -> Partition | None:
    try:
        return _partition(broker, topic, index)
    except ApiError:
        return None


def _check(partition: Partition, records: memoryview | None, version: int, now_ms: int) -> BatchHeader:
    return check_client_batch(records, partition.log.options, now_ms=now_ms, produce_version=version)


def _try_check(partition: Partition, records: memoryview, version: int, now_ms: int) -> BatchHeader | ApiError:
    try:
        return _check(partition, records, version, now_ms)
    except ApiError as error:
        return error


class WaitingProduce:
    """A publish whose batches are appended and wait to be committed; answered once, by commit or by timeout."""

    __slots__ = ("_answer", "_awaited", "_metrics", "_outstanding", "_reply", "_timer")

    def __init__(
        self, metrics: BrokerMetrics, reply: Reply, answer: _TopicResults, awaited: Sequence[_Awaited]
    ) -> None:
        self._metrics = metrics
        self._reply = reply
        self._answer = answer
        self._awaited = awaited
        self._outstanding = 0
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, timeout_ms: int) -> None:
        """Ask every partition to report; `start` has seen that none is committed yet."""
        for one in self._awaited:
            if one.partition.when_committed(one.next_offset, self._committed):
                self._outstanding += 1
        self._metrics.parked_produces += 1
        if not self._outstanding:
            self._send()
            return
        self._reply.on_abandoned = self._leave
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._timed_out)

    def _committed(self) -> None:
        self._outstanding -= 1
        if not self._outstanding and not (self._reply.ready or self._reply.abandoned):
            self._send()

    def _timed_out(self) -> None:
        if not self._reply.ready:
            self._send()

    def _send(self) -> None:
        """Answer; what is not committed now was too late, or its partition is gone."""
        self._leave()
        for one in self._awaited:
            if one.partition.high_watermark < one.next_offset:
                index = one.results[one.position].index
                error = one.partition.closed_with or ApiError(ErrorCode.REQUEST_TIMED_OUT)
                one.results[one.position] = _refused(self._metrics, index, error)
        self._reply.send((encode_produce_response(self._reply.header.api_version, self._answer),))

    def _leave(self) -> None:
        self._metrics.parked_produces -= 1
        if self._timer is not None:
            self._timer.cancel()


def _partition(broker: BrokerServices, topic: ProduceTopic, index: int) -> Partition:
    if topic.name is not None:
        partition = broker.partitions.get(topic.name, index)
    else:
        partition = broker.partitions.get_by_id(topic.topic_id or b"", index)
    if partition.internal:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.name.topic} is written by the broker only")
    return partition


def _refusal_of_all(request: ProduceRequest) -> ApiError | None:
    """An error that hits every batch of the request alike."""
    if request.acks not in _ACKS_ALLOWED:
        return ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; -1, 0 and 1 are allowed")
    if request.transactional_id is not None:
        return ApiError(ErrorCode.INVALID_TXN_STATE, "this broker does not serve transactions")
    return None


def _refused(metrics: BrokerMetrics, index: int, error: ApiError) -> ProducePartitionResult:
    metrics.errors_total[error.code] += 1
    record_errors: tuple[RecordError, ...] = ()
    if isinstance(error, InvalidRecords):
        record_errors = tuple(RecordError(number, text) for number, text in error.record_errors)
    return ProducePartitionResult(index, error.code, record_errors=record_errors, error_message=error.detail)


def _finish_unanswered(answer: _TopicResults, reply: Reply) -> None:
    failed = next((result for _, _, results in answer for result in results if result.error_code), None)
    if failed is None:
        reply.send_nothing()
    else:
        reply.refuse(f"a publish with acks=0 was refused: {failed.error_message}", DropReason.ACKS_0_FAILURE)
