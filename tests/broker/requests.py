"""The few requests that nearly every test of a running broker makes, in one line each."""

import itertools
import time
from collections.abc import Sequence
from typing import Final

from martlet.base.errors import ErrorCode
from martlet.wire.batch import build_batch, iterate_batches
from martlet.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchTopic
from martlet.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from martlet.wire.messages.init_producer_id import InitProducerIdRequest
from martlet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from martlet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from martlet.wire.produce import ProducePartitionResult
from martlet.wire.records.record import Record, read_records
from tests.broker.raw_client import RawClient

RECORDS_BYTES_MAX: Final = 64 << 20

_numbers = itertools.count()


def unique_topic(prefix: str = "topic") -> str:
    """A name no other test uses; brokers are shared."""
    return f"{prefix}-{next(_numbers)}"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def create_topic(client: RawClient, partitions: int = 1, *, name: str | None = None, **configs: str) -> str:
    """A new topic; a setting's dots are underscores here."""
    topic = CreatableTopic(
        name=name or unique_topic(),
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    (result,) = client.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert result.error_code == ErrorCode.NONE, result.error_message
    return topic.name


def describe(client: RawClient, topic: str) -> MetadataResponseTopic:
    """The topic as Metadata tells it; never creates it."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (described,) = client.call(request, 12).topics
    assert isinstance(described, MetadataResponseTopic)
    return described


def leader_epoch(client: RawClient, topic: str, partition: int = 0) -> int:
    return describe(client, topic).partitions[partition].leader_epoch


def batch_of(
    *values: bytes | None,
    key: bytes | None = None,
    timestamp_ms: int | None = None,
    compression: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """One batch as a client would send it; `producer` is (id, epoch, base sequence)."""
    at_ms = now_ms() if timestamp_ms is None else timestamp_ms
    producer_id, producer_epoch, base_sequence = producer
    return build_batch(
        [(at_ms, key, value, ()) for value in values],
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        attributes=attributes,
    )


def publish(
    client: RawClient, topic: str, batch: bytes | None, *, partition: int = 0, version: int = 9, acks: int = -1
) -> ProducePartitionResult:
    """Publish one batch to one partition."""
    response = client.produce([(topic, None, [(partition, batch)])], version, acks=acks)
    return response.topics[0].partitions[0]


def publish_values(client: RawClient, topic: str, *values: bytes, partition: int = 0) -> int:
    """Publish one batch that must be taken; returns its base offset."""
    result = publish(client, topic, batch_of(*values), partition=partition)
    assert result.error_code == ErrorCode.NONE, result
    return result.base_offset


def fetch_request(
    topic: str | bytes,
    *partitions: FetchPartition,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
) -> FetchRequest:
    """A fetch of some partitions of one topic, given by name or by id."""
    by_id = isinstance(topic, bytes)
    asked = FetchTopic(None if by_id else str(topic), bytes(topic) if isinstance(topic, bytes) else None, partitions)
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, topics=[asked])


def fetch_one(
    client: RawClient, topic: str, offset: int = 0, *, partition: int = 0, version: int = 12
) -> FetchPartitionResult:
    """What one partition has from an offset on, without waiting."""
    response = client.fetch(fetch_request(topic, FetchPartition(partition, fetch_offset=offset)), version)
    assert response.error_code == ErrorCode.NONE
    return response.topics[0].partitions[0]


def records_of(result: FetchPartitionResult) -> list[Record]:
    """The records in a fetch's answer, batch after batch, their checksums checked."""
    return read_records(bytes(result.records), RECORDS_BYTES_MAX, check_crc=True)


def read_all(client: RawClient, topic: str, *, partition: int = 0, offset: int = 0) -> list[Record]:
    """Every record of a partition from an offset on; like a client it moves on by batches, which may be empty."""
    records: list[Record] = []
    while True:
        result = fetch_one(client, topic, offset, partition=partition)
        assert result.error_code == ErrorCode.NONE, result.error_code
        batches = list(iterate_batches(bytes(result.records)))
        if not batches:
            assert offset == result.high_watermark, "the end is reachable"
            return records
        records += [record for record in records_of(result) if record.offset >= offset]
        offset = batches[-1][1].next_offset


def values_of(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def list_offset(
    client: RawClient, topic: str, timestamp: int, *, version: int = 11, partition: int = 0, epoch: int = -1
) -> ListOffsetsPartitionResponse:
    """The answer of ListOffsets for one partition."""
    asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    (answer,) = client.call(request, version).topics[0].partitions
    assert isinstance(answer, ListOffsetsPartitionResponse)
    return answer


def new_producer_id(client: RawClient) -> int:
    response = client.call(InitProducerIdRequest(transaction_timeout_ms=60_000), 4)
    assert response.error_code == ErrorCode.NONE
    producer_id: int = response.producer_id
    return producer_id
