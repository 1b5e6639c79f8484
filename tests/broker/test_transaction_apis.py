"""Transactions as a broker answers them, request by request: both generations, old versions, what comes too late."""

import time
from itertools import count

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import TRANSACTIONAL_BIT
from martlet.wire.fetch import FetchPartition, FetchPartitionResult
from martlet.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from martlet.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from martlet.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from martlet.wire.messages.describe_transactions import DescribeTransactionsRequest
from martlet.wire.messages.end_txn import EndTxnRequest
from martlet.wire.messages.find_coordinator import FindCoordinatorRequest
from martlet.wire.messages.init_producer_id import InitProducerIdRequest
from martlet.wire.messages.list_transactions import ListTransactionsRequest
from martlet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from martlet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from martlet.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from martlet.wire.produce import ProducePartitionResult, encode_produce_request
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch_of, create_topic, describe, fetch_request

_numbers = count()
TIMEOUT_MS = 60_000
FIRST_PRODUCE, SECOND_PRODUCE = 9, 12


class TransactionalProducer:
    """One producer, request by request; `second` speaks the second generation."""

    def __init__(
        self, client: RawClient, *, second: bool = True, name: str | None = None, topic: str | None = None
    ) -> None:
        self.client = client
        self.second = second
        self.topic = topic or create_topic(client, 2)
        self.name = name or f"transaction-{next(_numbers)}"
        self.pair = (-1, -1)
        self.sequences: dict[int, int] = {}

    def init(self, *, version: int = 5, timeout_ms: int = TIMEOUT_MS) -> ErrorCode:
        deadline = time.monotonic() + 20
        while True:
            answer = self.client.call(InitProducerIdRequest(self.name, timeout_ms), version)
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
                break
        self.pair = (answer.producer_id, answer.producer_epoch)
        self.sequences.clear()
        return ErrorCode(answer.error_code)

    def produce(
        self,
        value: bytes = b"x",
        *,
        partition: int = 0,
        pair: tuple[int, int] | None = None,
        version: int | None = None,
    ) -> ProducePartitionResult:
        sequence = self.sequences.get(partition, 0)
        batch = batch_of(value, producer=(*(pair or self.pair), sequence), attributes=TRANSACTIONAL_BIT)
        version = version or self._produce_version
        while True:
            result = send_batch(self.client, self.topic, partition, batch, self.name, version)
            if result.error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS):
                break
        if result.error_code == 0:
            self.sequences[partition] = sequence + 1
        return result

    @property
    def _produce_version(self) -> int:
        return SECOND_PRODUCE if self.second else FIRST_PRODUCE

    def add(self, *partitions: int, version: int = 3, topic: str | None = None) -> list[int]:
        topics = [AddPartitionsToTxnTopic(topic or self.topic, list(partitions))]
        request = AddPartitionsToTxnRequest([], self.name, *self.pair, topics)
        while True:
            answer = self.client.call(request, version)
            (result,) = answer.results_by_topic_v3_and_below
            codes = [one.partition_error_code for one in result.results_by_partition]
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes:
                return codes

    def end(self, commit: bool = True, *, pair: tuple[int, int] | None = None, version: int | None = None) -> ErrorCode:
        version = version if version is not None else 5 if self.second else 4
        answer = self.client.call(EndTxnRequest(self.name, *(pair or self.pair), commit), version)
        if answer.error_code == 0 and version >= 5 and pair is None:
            self.pair = (answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return ErrorCode(answer.error_code)


def send_batch(
    client: RawClient, topic: str, partition: int, batch: bytes, name: str | None, version: int
) -> ProducePartitionResult:
    topics = [(topic, None, [(partition, batch)])]
    body = encode_produce_request(version, topics=topics, acks=-1, timeout_ms=10_000, transactional_id=name)
    client.send(ApiKey.PRODUCE, version, b"".join(body))
    return client.receive_produce(version)[1].topics[0].partitions[0]


def read(client: RawClient, topic: str, *, committed: bool, partition: int = 0) -> FetchPartitionResult:
    request = fetch_request(topic, FetchPartition(partition, fetch_offset=0))._replace(isolation_level=int(committed))
    return client.fetch(request, 12).topics[0].partitions[0]


def wait_stable(client: RawClient, topic: str, partition: int = 0) -> FetchPartitionResult:
    """The partition when no transaction holds it any more."""
    deadline = time.monotonic() + 20
    while True:
        result = read(client, topic, committed=True, partition=partition)
        if result.last_stable_offset == result.high_watermark:
            return result
        assert time.monotonic() < deadline


@pytest.fixture(params=[False, True], ids=["first", "second"])
def producer(client: RawClient, request: pytest.FixtureRequest) -> TransactionalProducer:
    made = TransactionalProducer(client, second=request.param)
    assert made.init() == 0
    return made


@pytest.fixture
def second(client: RawClient) -> TransactionalProducer:
    made = TransactionalProducer(client)
    assert made.init() == 0
    return made


@pytest.fixture
def first(client: RawClient) -> TransactionalProducer:
    made = TransactionalProducer(client, second=False)
    assert made.init() == 0
    return made


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_the_coordinator_of_a_transaction_is_found(client: RawClient, version: int) -> None:
    request = FindCoordinatorRequest(key="some-id", key_type=1, coordinator_keys=["some-id"])
    answer = client.call(request, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (0, 1)


def test_a_committed_transaction_is_seen_whole_and_before_that_not_at_all(producer: TransactionalProducer) -> None:
    client, topic = producer.client, producer.topic
    if not producer.second:
        assert producer.add(0, 1) == [0, 0]
    assert [producer.produce(b"a").error_code, producer.produce(b"b", partition=1).error_code] == [0, 0]
    open_ = read(client, topic, committed=True)
    assert (open_.last_stable_offset, open_.high_watermark, bytes(open_.records)) == (0, 1, b"")
    assert bytes(read(client, topic, committed=False).records)
    assert producer.end() == 0
    done = wait_stable(client, topic)
    assert done.high_watermark == 2, "the record and its marker"
    assert done.aborted_transactions == []
    assert wait_stable(client, topic, 1).high_watermark == 2


def test_an_aborted_transaction_is_listed_for_readers_of_committed_data(producer: TransactionalProducer) -> None:
    if not producer.second:
        producer.add(0)
    producer.produce(b"a")
    producer_id = producer.pair[0]
    assert producer.end(False) == 0
    done = wait_stable(producer.client, producer.topic)
    assert [tuple(one) for one in done.aborted_transactions or ()] == [(producer_id, 0)]
    assert read(producer.client, producer.topic, committed=False).aborted_transactions is None


def test_the_epoch_rises_at_each_end_of_the_second_generation_only(
    first: TransactionalProducer, second: TransactionalProducer
) -> None:
    for producer in (first, second):
        pair = producer.pair
        for number in range(3):
            if not producer.second:
                assert producer.add(0) == [0]
            assert producer.produce().error_code == 0
            assert producer.end(number != 1) == 0
        assert producer.pair == (pair[0], pair[1] + (3 if producer.second else 0))


def test_an_end_that_comes_twice_is_answered_as_the_first_time(second: TransactionalProducer) -> None:
    old = second.pair
    second.produce()
    assert second.end() == 0
    wait_stable(second.client, second.topic)
    answer = second.client.call(EndTxnRequest(second.name, *old, True), 5)
    assert (answer.error_code, (answer.producer_id, answer.producer_epoch)) == (0, second.pair)
    assert second.end(False, pair=old) == ErrorCode.INVALID_TXN_STATE


def test_what_comes_late_of_an_ended_transaction_does_not_touch_the_next_one(second: TransactionalProducer) -> None:
    old = second.pair
    second.produce(b"first")
    assert second.end() == 0
    wait_stable(second.client, second.topic)
    assert second.produce(b"second").error_code == 0
    assert second.end(pair=old) == ErrorCode.PRODUCER_FENCED
    assert second.end(False, pair=old, version=4) == ErrorCode.PRODUCER_FENCED
    late = batch_of(b"late", producer=(*old, 1), attributes=TRANSACTIONAL_BIT)
    result = send_batch(second.client, second.topic, 0, late, second.name, SECOND_PRODUCE)
    assert result.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    marker = WritableTxnMarker(*old, True, [WritableTxnMarkerTopic(second.topic, [0])], 0, 2)
    (answer,) = second.client.call(WriteTxnMarkersRequest([marker]), 2).markers
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert second.end(False) == 0
    done = wait_stable(second.client, second.topic)
    assert len(done.aborted_transactions or ()) == 1


def test_a_batch_of_the_first_generation_needs_its_partition_added_before(first: TransactionalProducer) -> None:
    assert first.produce(version=9).error_code == ErrorCode.INVALID_TXN_STATE
    assert first.produce(version=11).error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert first.add(1) == [0]
    assert first.produce().error_code == ErrorCode.INVALID_TXN_STATE
    assert first.produce(partition=1).error_code == 0


def test_a_batch_in_no_transaction_of_a_named_producer_is_refused(second: TransactionalProducer) -> None:
    batch = batch_of(b"x", producer=(*second.pair, 0), attributes=TRANSACTIONAL_BIT)
    nameless = send_batch(second.client, second.topic, 0, batch, None, 9)
    assert nameless.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert second.produce().error_code == 0
    outside = batch_of(b"x", producer=(*second.pair, 1))
    result = send_batch(second.client, second.topic, 0, outside, second.name, 9)
    assert result.error_code == ErrorCode.INVALID_TXN_STATE


def test_a_repeated_publish_is_answered_with_its_first_offset_also_after_the_end(second: TransactionalProducer) -> None:
    batch = batch_of(b"x", producer=(*second.pair, 0), attributes=TRANSACTIONAL_BIT)
    for _ in range(2):
        result = send_batch(second.client, second.topic, 0, batch, second.name, SECOND_PRODUCE)
        assert (result.error_code, result.base_offset) == (0, 0)


def test_an_unknown_partition_has_the_others_not_attempted(first: TransactionalProducer) -> None:
    assert first.add(0, 9) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert first.end() == ErrorCode.INVALID_TXN_STATE


def test_a_fenced_producer_hears_it_in_the_words_of_its_version(first: TransactionalProducer) -> None:
    old = first.pair
    assert first.init() == 0
    new, first.pair = first.pair, old
    assert [first.add(0, version=version) for version in (1, 2, 3)] == [
        [ErrorCode.INVALID_PRODUCER_EPOCH],
        [ErrorCode.PRODUCER_FENCED],
        [ErrorCode.PRODUCER_FENCED],
    ]
    assert first.end(version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.end(version=2) == ErrorCode.PRODUCER_FENCED
    stale = InitProducerIdRequest(first.name, TIMEOUT_MS, *old)
    assert first.client.call(stale, 3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.client.call(stale, 4).error_code == ErrorCode.PRODUCER_FENCED
    other = AddOffsetsToTxnRequest(first.name, *old, "group")
    assert first.client.call(other, 1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.client.call(other, 2).error_code == ErrorCode.PRODUCER_FENCED
    assert new > old


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest("", TIMEOUT_MS), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("id", 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("id", 2**31 - 1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("id", TIMEOUT_MS, 5, -1), ErrorCode.INVALID_REQUEST),
        (EndTxnRequest("unknown", 1, 0, True), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (EndTxnRequest("", 1, 0, True), ErrorCode.INVALID_REQUEST),
        (AddOffsetsToTxnRequest("unknown", 1, 0, "g"), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_bad_requests_get_the_errors_that_clients_know(client: RawClient, request_: object, code: ErrorCode) -> None:
    version = 5 if not isinstance(request_, AddOffsetsToTxnRequest) else 4
    assert client.call(request_, version).error_code == code


def test_brokers_verify_and_add_in_one_request(second: TransactionalProducer) -> None:
    topics = [AddPartitionsToTxnTopic(second.topic, [0, 1])]
    verify = AddPartitionsToTxnTransaction(second.name, *second.pair, True, topics)
    add = AddPartitionsToTxnTransaction(second.name, *second.pair, False, topics[:])
    answer = second.client.call(AddPartitionsToTxnRequest([verify, add, verify]), 5)
    codes = [
        [one.partition_error_code for one in result.topic_results[0].results_by_partition]
        for result in answer.results_by_transaction
    ]
    assert codes == [[ErrorCode.TRANSACTION_ABORTABLE] * 2, [0, 0], [0, 0]]


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_are_staged_until_the_end(producer: TransactionalProducer, commit: bool) -> None:
    group, client = f"group-of-{producer.name}", producer.client
    if not producer.second:
        assert client.call(AddOffsetsToTxnRequest(producer.name, *producer.pair, group), 4).error_code == 0
    offsets = [TxnOffsetCommitRequestTopic(producer.topic, [TxnOffsetCommitRequestPartition(0, 42)])]
    request = TxnOffsetCommitRequest(producer.name, group, *producer.pair, topics=offsets)
    answer = client.call(request, 5 if producer.second else 3)
    assert answer.topics[0].partitions[0].error_code == 0

    def fetch(stable: bool) -> tuple[int, int]:
        asked = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(producer.topic, partition_indexes=[0])])
        (found,) = client.call(OffsetFetchRequest(groups=[asked], require_stable=stable), 8).groups
        return found.topics[0].partitions[0].error_code, found.topics[0].partitions[0].committed_offset

    assert fetch(True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetch(False) == (0, -1)
    assert producer.end(commit) == 0
    deadline = time.monotonic() + 20
    while fetch(True)[0]:
        assert time.monotonic() < deadline
    assert fetch(True) == (0, 42 if commit else -1)


def test_offsets_without_leave_are_refused_in_the_words_of_their_version(first: TransactionalProducer) -> None:
    offsets = [TxnOffsetCommitRequestTopic(first.topic, [TxnOffsetCommitRequestPartition(0, 42)])]
    request = TxnOffsetCommitRequest(first.name, "some-group", *first.pair, topics=offsets)
    codes = [first.client.call(request, version).topics[0].partitions[0].error_code for version in (0, 3, 4)]
    assert codes == [
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ]


def test_tools_see_what_is_open_and_how_it_ended(second: TransactionalProducer) -> None:
    client = second.client
    second.produce()
    (described, unknown) = client.call(DescribeTransactionsRequest([second.name, "unknown"]), 0).transaction_states
    assert (described.transaction_state, described.producer_id, described.producer_epoch) == ("Ongoing", *second.pair)
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [(second.topic, [0])]
    assert described.transaction_start_time_ms > 0
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    listed = client.call(ListTransactionsRequest(["Ongoing", "Nonsense"], transactional_id_pattern=second.name), 2)
    assert [one.transactional_id for one in listed.transaction_states] == [second.name]
    assert listed.unknown_state_filters == ["Nonsense"]
    assert client.call(ListTransactionsRequest(transactional_id_pattern="("), 2).error_code == (
        ErrorCode.INVALID_REGULAR_EXPRESSION
    )
    (partition,) = client.call(DescribeProducersRequest([TopicRequest(second.topic, [0])]), 0).topics[0].partitions
    assert partition.active_producers[0].current_txn_start_offset == 0
    second.end()
    wait_stable(client, second.topic)
    (partition,) = client.call(DescribeProducersRequest([TopicRequest(second.topic, [0])]), 0).topics[0].partitions
    assert partition.active_producers[0].current_txn_start_offset == -1
    deadline = time.monotonic() + 20
    while described.transaction_state != "CompleteCommit":
        assert time.monotonic() < deadline
        (described,) = client.call(DescribeTransactionsRequest([second.name]), 0).transaction_states


def test_a_marker_of_an_administrator_ends_what_hangs(second: TransactionalProducer) -> None:
    second.produce()
    marker = WritableTxnMarker(*second.pair, False, [WritableTxnMarkerTopic(second.topic, [0, 7])], 0, 0)
    (answer,) = second.client.call(WriteTxnMarkersRequest([marker]), 2).markers
    codes = [one.error_code for one in answer.topics[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    wait_stable(second.client, second.topic)


def test_the_state_topic_is_internal_and_no_client_writes_to_it(second: TransactionalProducer) -> None:
    described = describe(second.client, "__transaction_state")
    assert described.is_internal
    result = send_batch(second.client, "__transaction_state", 0, batch_of(b"x"), None, 9)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_two_phase_form_is_not_announced_and_not_served_unless_enabled(client: RawClient) -> None:
    (range_,) = [key for key in client.api_versions(3).api_keys if key.api_key == ApiKey.INIT_PRODUCER_ID]
    assert range_.max_version == 5
    request = InitProducerIdRequest("prepared", TIMEOUT_MS, enable2_pc=True)
    assert client.call(request, 6).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
