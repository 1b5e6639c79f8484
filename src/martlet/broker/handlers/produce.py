"""Produce: append batches and acknowledge them as the request's `acks` and the topic's flush policy say.

Versions 3–13 are served; 0–13 is advertised, because librdkafka before 2.11.1 switches all compression off when it
does not see version 0. v7 zstd, v8 per-record errors, v10 leader hints, v13 topic ids.
- One batch for a partition; a second one in the same request is refused with INVALID_REQUEST.
- Partitions are independent: one refused batch does not harm the others of the request.
- Batches are appended as they arrived, inside the receive buffer, before the next request is read; answers wait.
- Where records must be opened (compacted topics, a bound on old timestamps, queue features) or brought into another
  codec (see `compression.type`), large batches are worked on in a thread, and later requests of the connection wait.
- acks=0 gets no answer; when such a publish fails the connection is closed, which is how the client learns of it.
- acks=1 is answered when this broker holds the batch (where the policy is `commit`: on its disk); acks=all when it is
  committed, that is when every replica in sync holds it. With one replica that is the same.
- acks=all needs as many replicas in sync as the topic demands, before the append (NOT_ENOUGH_REPLICAS) and after it
  (NOT_ENOUGH_REPLICAS_AFTER_APPEND: the batch is in the log and may yet be committed).
- A batch behind one that was refused for a passing reason is refused like it, see `refused_batches`.
- Nothing is appended, and nothing is acknowledged, by a broker that has lost touch with its cluster, or under another
  leader epoch than the one in which it was appended.
- A batch that begins a transaction on its partition waits until the coordinator of the transaction has confirmed the
  partition (v12+: has added it), see `parked/transaction_leave`.
"""

import asyncio
from contextlib import suppress
from typing import Final, cast

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.broker.ground.request import Link, Reply
from martlet.broker.parked.produce import Awaited, TopicResults, WaitingProduce, count_errors, refused, send_answer
from martlet.broker.parked.transaction_leave import NO_LEAVE, Leave, LeaveQuestion
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.transaction_guards import may_append_unasked
from martlet.broker.services import BrokerServices
from martlet.log.options import LogOptions
from martlet.log.recompression import needs_recompression, recompress
from martlet.log.validation import check_client_batch
from martlet.observe.metrics import DropReason
from martlet.queues.publish_look import Delayed
from martlet.security.rules import Operation
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import HEADER_BYTES, MAGIC, BatchHeader, read_batch_header
from martlet.wire.compression import Compression
from martlet.wire.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopic,
    parse_produce_request,
)

KEY: Final = ApiKey.PRODUCE
VERSIONS: Final = (3, 13)
ADVERTISED: Final = (0, 13)

_ACKS_ALLOWED: Final = (-1, 0, 1)
_ACKS_ALL: Final = -1
LONG_CHECK_BYTES: Final = 16_384
"""A compressed batch from this size on is opened in a thread where it has to be opened at all, and one that is to be
compressed is compressed there."""
_MANY_RECORDS_BYTES: Final = 8 * LONG_CHECK_BYTES
"""From this size on headers of ours in every record take longer to read than the event loop should stand still."""
_PASSING_REASONS: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""Those that say nothing against the batch: the same bytes may be taken a moment later."""

_Batch = tuple[memoryview, BatchHeader, list[Delayed] | None]
"""A batch as it is to be appended, and what the topic's features found in it."""

_Checked = dict[int, _Batch | ApiError]
"""Results of checks made beforehand, by the identity of the view of the batch as it came."""


def start(broker: BrokerServices, link: Link, frame: memoryview, reply: Reply) -> None:
    """Append everything now; answer now or when it is committed."""
    version = reply.header.api_version
    request = parse_produce_request(frame[reply.header.body_position :], version)
    if request.transactional_id is not None:
        beginning = _beginning_transactions(broker, request)
        if beginning:
            question = LeaveQuestion(request.transactional_id, version, beginning)
            _ask_for_leave(broker, link, memoryview(bytearray(frame)), reply, question)
            return
    if _may_take_long(broker, frame) and _needs_long_checks(broker, request):
        # The receive buffer is needed for other requests while a thread checks this one.
        copy = memoryview(bytearray(frame))[reply.header.body_position :]
        _check_in_thread(broker, link, parse_produce_request(copy, version), reply, NO_LEAVE)
    else:
        _append_all(broker, link, request, reply, {}, NO_LEAVE)


def _append_all(
    broker: BrokerServices, link: Link, request: ProduceRequest, reply: Reply, checked: _Checked, leave: Leave
) -> None:
    version = reply.header.api_version
    by_all = request.acks == _ACKS_ALL
    answer: TopicResults = []
    awaited: list[Awaited] = []
    appended_to: set[Partition] = set()
    has_errors = False
    refusal = _refusal_of_all(broker, request)
    now_ms = broker.clock.now_ms()
    for topic in request.topics:
        results: list[ProducePartitionResult] = []
        answer.append((topic.name, topic.topic_id, results))
        of_topic = refusal or _refusal_of_topic(broker, link, topic)
        for index, records in topic.partitions:
            try:
                if of_topic is not None:
                    raise of_topic
                broker.partitions.space.check()
                partition = _partition(broker, topic, index)
                if partition in appended_to:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "a request carries one batch for a partition")
                appended_to.add(partition)
                batch = checked.get(id(records)) or _check(partition, records, version, now_ms)
                if isinstance(batch, ApiError):
                    raise batch
                leave.check(partition, batch[1], request.transactional_id, version)
                if by_all and not partition.has_enough_in_sync:
                    partition.check_enough_in_sync()
                appended = partition.append(*batch, now_ms=now_ms)
                if partition in leave.guards:
                    partition.guards.drop(batch[1].producer_id)
            except ApiError as error:
                has_errors = True
                results.append(refused(index, error))
                if error.code in _PASSING_REASONS and records is not None:
                    _remember_refusal(broker, topic, index, records, error.code)
                continue
            next_offset = appended.last_offset + 1
            if next_offset > (partition.high_watermark if by_all else partition.watermarks.own_offset):
                awaited.append(Awaited(partition, partition.leader_epoch, next_offset, results, len(results)))
            results.append(
                ProducePartitionResult(
                    index, 0, appended.base_offset, appended.log_append_time_ms, partition.log.log_start_offset
                )
            )
    if request.acks == 0:
        _finish_unanswered(broker, answer, reply)
    elif awaited:
        waiting = WaitingProduce(broker, link, reply, answer, awaited)
        waiting.wait(request.timeout_ms, by_all=by_all, has_errors=has_errors)
    else:
        send_answer(broker, link, reply, answer, has_errors=has_errors)


# --- batches that begin transactions


def _beginning_transactions(broker: BrokerServices, request: ProduceRequest) -> list[tuple[Partition, BatchHeader]]:
    """The batches for which the coordinator has to be asked; what is wrong with others is found at the append."""
    beginning: list[tuple[Partition, BatchHeader]] = []
    for topic in request.topics:
        for index, records in topic.partitions:
            partition = _open_partition(broker, topic, index)
            if partition is None or records is None or len(records) < HEADER_BYTES:
                continue
            header = read_batch_header(records)
            with suppress(ApiError):
                if header.is_transactional and not may_append_unasked(partition.log.producers, header):
                    beginning.append((partition, header))
    return beginning


def _ask_for_leave(
    broker: BrokerServices, link: Link, frame: memoryview, reply: Reply, question: LeaveQuestion
) -> None:
    """Go on when the coordinator has answered; nothing of this connection overtakes it meanwhile."""
    reply.holds_queue = True
    request = parse_produce_request(frame[reply.header.body_position :], reply.header.api_version)

    async def go_on() -> None:
        leave = await question.ask(broker)
        if reply.abandoned:
            return
        if _may_take_long(broker, frame) and _needs_long_checks(broker, request):
            _check_in_thread(broker, link, request, reply, leave)
        else:
            _append_all(broker, link, request, reply, {}, leave)
            reply.release_queue()

    broker.transactions.questions.run(go_on())


# --- batches that must be opened to be checked, and are large


def _may_take_long(broker: BrokerServices, frame: memoryview) -> bool:
    return len(frame) >= LONG_CHECK_BYTES or broker.topic_settings.recompresses


def _needs_long_checks(broker: BrokerServices, request: ProduceRequest) -> bool:
    return any(
        takes_long(partition.log.options, records, is_opened=partition.features is not None)
        for topic in request.topics
        for index, records in topic.partitions
        if records is not None and (partition := _open_partition(broker, topic, index)) is not None
    )


def takes_long(options: LogOptions, records: memoryview, *, is_opened: bool = False) -> bool:
    """Whether checking this batch means (de)compressing much, which must not happen on the event loop.

    `is_opened` says that its records are looked at for what their topic's queues have to know.
    """
    if len(records) < HEADER_BYTES:
        return False
    is_large = len(records) >= LONG_CHECK_BYTES
    is_many = is_opened and len(records) >= _MANY_RECORDS_BYTES
    is_opened = is_opened or options.compact or options.bounds_past_timestamps
    if options.compression is None and not (is_large and is_opened):
        return False
    header = read_batch_header(records)
    is_compressed = header.compression != Compression.NONE
    if needs_recompression(header, options):
        # How much a compressed batch holds is not known before it is opened.
        return is_large or is_compressed
    return is_many or (is_large and is_compressed and is_opened)


def _check_in_thread(broker: BrokerServices, link: Link, request: ProduceRequest, reply: Reply, leave: Leave) -> None:
    """Check the batches in a thread, then go on; nothing of this connection overtakes it meanwhile."""
    reply.holds_queue = True
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
            _append_all(broker, link, request, reply, done.result(), leave)
        reply.release_queue()

    asyncio.get_running_loop().run_in_executor(None, check_all).add_done_callback(go_on)


def _open_partition(broker: BrokerServices, topic: ProduceTopic, index: int) -> Partition | None:
    try:
        return _partition(broker, topic, index)
    except ApiError:
        return None


def _check(partition: Partition, records: memoryview | None, version: int, now_ms: int) -> _Batch:
    options = partition.log.options
    header = check_client_batch(records, options, now_ms=now_ms, produce_version=version)
    batch = cast(memoryview, records)
    features = partition.features
    delayed = None if features is None else features.check(batch, header, now_ms)
    if options.compression is None or not needs_recompression(header, options):
        return batch, header, delayed
    return *recompress(batch, header, options), delayed


def _try_check(partition: Partition, records: memoryview, version: int, now_ms: int) -> _Batch | ApiError:
    try:
        return _check(partition, records, version, now_ms)
    except ApiError as error:
        return error


def _partition(broker: BrokerServices, topic: ProduceTopic, index: int) -> Partition:
    if topic.name is not None:
        partition = broker.partitions.get(topic.name, index)
    else:
        partition = broker.partitions.get_by_id(topic.topic_id or b"", index)
    if partition.internal:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.name.topic} is written by the broker only")
    return partition


def _remember_refusal(
    broker: BrokerServices, topic: ProduceTopic, index: int, records: memoryview, code: ErrorCode
) -> None:
    name = topic.name
    if name is None:
        known = broker.image.topic_by_id(TopicId(topic.topic_id or b""))
        name = known.name if known is not None else None
    partition = broker.partitions.hosted(name, index) if name is not None else None
    # The batch has not been checked yet: what is no batch says nothing about any producer.
    if partition is not None and len(records) >= HEADER_BYTES:
        header = read_batch_header(records)
        if header.magic == MAGIC and header.size == len(records):
            partition.refused.note(header, code, broker.clock.now_ms())


def _refusal_of_all(broker: BrokerServices, request: ProduceRequest) -> ApiError | None:
    """An error that hits every batch of the request alike."""
    if not broker.partitions.may_act():
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has lost touch with its cluster")
    if request.acks not in _ACKS_ALLOWED:
        return ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; -1, 0 and 1 are allowed")
    return None


def _refusal_of_topic(broker: BrokerServices, link: Link, topic: ProduceTopic) -> ApiError | None:
    """An error that hits every batch for the topic: its client may not write there."""
    rules = broker.access.rules
    if rules is None:
        return None
    name = topic.name
    if name is None:
        known = broker.image.topic_by_id(TopicId(topic.topic_id or b""))
        if known is None:
            return None  # what follows says that no topic has this id
        name = known.name
    return None if rules.may(link, Operation.WRITE, name, KEY.name) else ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _finish_unanswered(broker: BrokerServices, answer: TopicResults, reply: Reply) -> None:
    reply.throttle()
    failed = next((result for _, _, results in answer for result in results if result.error_code), None)
    if failed is None:
        reply.send_nothing()
    else:
        count_errors(broker, answer)
        reply.refuse(f"a publish with acks=0 was refused: {failed.error_message}", DropReason.ACKS_0_FAILURE)
