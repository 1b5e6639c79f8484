"""One small topic for each cell of the damage matrix, and everybody's way to fill and read them.

Each has three sealed segments and an active one of about ten batches each, with index entries in all of them, and two
leader epochs, if it is filled in two starts. In each start one transaction is aborted, so that the middle segment and
the active one have an index of aborted transactions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.log.checkpoints import decode_offsets
from martlet.wire.batch import iterate_batches
from martlet.wire.fetch import FetchPartition, FetchPartitionResult
from martlet.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch_of, fetch_request
from tests.broker.scrape import wait_until
from tests.damage.cells import Cell, Hurt
from tests.damage.judge import Refused, Truth

BATCHES_PER_START: Final = (19, 17)
_ROUNDS_BEFORE_ABORT: Final = 13
_FETCH_BYTES: Final = 7_000
_CONFIG: Final = {
    "segment.bytes": "20000",
    "index.interval.bytes": "4096",
    "martlet.flush": "interval",
    "flush.ms": "50",
}
_REFUSALS: Final = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)


@dataclass
class MatrixTopic:
    """One cell, and the topic that suffers it."""

    cell: Cell
    name: str
    records: int = 0
    """All that its offsets count, markers too."""
    sequence: int = 0
    last_batch: bytes = b""
    hurt: Hurt = field(default_factory=Hurt)
    truth: Truth = field(default_factory=lambda: Truth([]))
    is_offline: bool = False


def create_topics(client: RawClient, topics: Sequence[MatrixTopic], *, replication: int = 1) -> None:
    def creatable(topic: MatrixTopic) -> CreatableTopic:
        wanted = _CONFIG | topic.cell.config | {"min.insync.replicas": str(min(replication, 2))}
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in wanted.items()]
        return CreatableTopic(name=topic.name, num_partitions=1, replication_factor=replication, configs=configs)

    response = client.call(CreateTopicsRequest(topics=[creatable(topic) for topic in topics], timeout_ms=30_000), 7)
    assert all(result.error_code == ErrorCode.NONE for result in response.topics)


def publish_rounds(client: RawClient, topics: Sequence[MatrixTopic], producer_id: int, rounds: int) -> None:
    """One batch to each topic in each round: together they are few requests."""
    for number in range(rounds):
        count = 1 + number % 3
        for topic in topics:
            values = [b"%s %05d " % (topic.name.encode(), topic.records + one) for one in range(count)]
            padding = bytes(range(256)) * (8 // count)
            topic.last_batch = batch_of(
                *[value + padding for value in values],
                key=b"%d" % (number % 4),
                producer=(producer_id, 0, topic.sequence),
            )
            topic.records += count
            topic.sequence += count
        response = client.produce([(topic.name, None, [(0, topic.last_batch)]) for topic in topics])
        for result in response.topics:
            assert result.partitions[0].error_code == ErrorCode.NONE, result


def publish_start(
    servers: str, topics: Sequence[MatrixTopic], start: int, publish: Callable[[Sequence[MatrixTopic], int], None]
) -> None:
    """What is published in one start of all brokers; `publish` does some rounds of it."""
    publish(topics, _ROUNDS_BEFORE_ABORT)
    _abort_a_transaction(servers, topics, f"aborted-{start}")
    publish(topics, BATCHES_PER_START[start] - _ROUNDS_BEFORE_ABORT)


def _abort_a_transaction(servers: str, topics: Sequence[MatrixTopic], name: str) -> None:
    """One message in each topic that is never committed, and its marker."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    errors: list[object] = []
    for topic in topics:
        producer.produce(topic.name, b"never", b"0", 0, on_delivery=lambda error, _: errors.append(error))
        topic.records += 2
    assert producer.flush(30) == 0
    assert errors == [None] * len(topics)
    producer.abort_transaction(30)


def wait_until_noted(log_directory: Path, topics: Sequence[MatrixTopic]) -> None:
    """Until all that was published is flushed, and a broker's recovery points say so: damage is to what is safe."""

    def is_noted() -> bool:
        offsets = decode_offsets((log_directory / "recovery-point-offset-checkpoint").read_bytes())
        return all(offsets.get(TopicPartition(topic.name, 0)) == topic.records for topic in topics)

    wait_until(is_noted, f"all that was published to be noted in {log_directory}", within_seconds=30)


class LedElsewhere(Exception):
    """Another broker leads by now."""


def _check(result: FetchPartitionResult, offset: int) -> None:
    if result.error_code in _REFUSALS:
        raise Refused
    if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        raise LedElsewhere(f"offset {offset}")
    assert result.error_code == ErrorCode.NONE, f"offset {offset}: {ErrorCode(result.error_code).name}"


def read_from(client: RawClient, topic: MatrixTopic, offset: int) -> bytes:
    asked = FetchPartition(0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
    result = client.fetch(fetch_request(topic.name, asked)).topics[0].partitions[0]
    _check(result, offset)
    return bytes(result.records)


def read_committed(client: RawClient, topic: MatrixTopic, offset: int) -> bytes:
    """As a reader of committed messages reads; all of the topic's transactions must be named as aborted."""
    asked = FetchPartition(0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
    request = fetch_request(topic.name, asked)._replace(isolation_level=1)
    result = client.fetch(request).topics[0].partitions[0]
    _check(result, offset)
    aborted = result.aborted_transactions or ()
    for _, header in iterate_batches(result.records):
        if header.is_transactional and not header.is_control:
            named = any(one[0] == header.producer_id and one[1] <= header.base_offset for one in aborted)
            assert named, f"offset {header.base_offset} was aborted and is served as committed"
    return bytes(result.records)
