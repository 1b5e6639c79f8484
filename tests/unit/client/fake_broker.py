"""A scripted broker on a loopback port: enough of the protocol to be talked to, and every answer can be overridden.

A reply is a body in bytes, SILENCE (the request is swallowed), HANG_UP (the connection is cut without an answer) or an
awaitable of one of these. What was asked is kept in `requests`, decoded.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, NamedTuple, Self, TypeAlias

from sim.randomness import SimRandomness

from martlet.base.addresses import Address
from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.options import ClientOptions
from martlet.wire import message_codec
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import iterate_batches, stamp_batch
from martlet.wire.fetch import FetchPartitionResult, FetchRequest, encode_fetch_response, parse_fetch_request
from martlet.wire.frames import FrameReceiver
from martlet.wire.headers import read_request_header, response_prefix
from martlet.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from martlet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from martlet.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from martlet.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from martlet.wire.produce import (
    ProducePartitionResult,
    ProduceRequest,
    encode_produce_response,
    parse_produce_request,
)


class Special(Enum):
    """Replies that are no body."""

    SILENCE = 1
    HANG_UP = 2


SILENCE = Special.SILENCE
HANG_UP = Special.HANG_UP

Reply: TypeAlias = bytes | Special
Script: TypeAlias = Callable[[Any, int], Reply | Awaitable[Reply] | None]
"""Request and version to a reply; None means the usual one."""

VERSIONS: dict[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.OFFSET_DELETE: (0, 0),
}


class Asked(NamedTuple):
    """One request as it arrived."""

    api_key: int
    version: int
    request: Any


class FakeTopic:
    """A topic with its partitions' leaders and epochs."""

    def __init__(self, topic_id: bytes, leaders: list[int]) -> None:
        self.id = topic_id
        self.leaders = leaders
        self.epochs = [1] * len(leaders)


class FakeCluster:
    """What the brokers of one fake cluster share: addresses, topics and logs."""

    def __init__(self) -> None:
        self.brokers: dict[int, FakeBroker] = {}
        self.topics: dict[str, FakeTopic] = {}
        self.logs: dict[TopicPartition, bytearray] = defaultdict(bytearray)
        self.next_producer_id = 1000

    def add_topic(self, name: str, leaders: list[int]) -> FakeTopic:
        self.topics[name] = FakeTopic(bytes([len(self.topics) + 1]) * 16, leaders)
        return self.topics[name]

    def name_of(self, topic_id: bytes | None) -> str:
        return next(name for name, topic in self.topics.items() if topic.id == topic_id)

    def end_offset(self, partition: TopicPartition) -> int:
        end = 0
        for _, header in iterate_batches(self.logs[partition]):
            end = header.next_offset
        return end


class FakeBroker:
    """One listening broker of a fake cluster."""

    def __init__(self, cluster: FakeCluster | None = None, broker_id: int = 1) -> None:
        self.cluster = cluster or FakeCluster()
        self.cluster.brokers[broker_id] = self
        self.broker_id = broker_id
        self.versions = dict(VERSIONS)
        self.scripts: dict[int, Script] = {}
        self.requests: list[Asked] = []
        self.connection_count = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.address = Address("127.0.0.1", 0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.address.port)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.drop_connections()
            await self._server.wait_closed()
            await asyncio.sleep(0)

    def drop_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def asked(self, key: ApiKey) -> list[Any]:
        """The requests of one kind, oldest first."""
        return [asked.request for asked in self.requests if asked.api_key == key]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self._writers.add(writer)
        receiver = FrameReceiver(1 << 27)
        try:
            while data := await reader.read(65536):
                for frame in receiver.feed(data):
                    if not await self._answer(bytearray(frame), writer):
                        return
        except (ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, frame: bytearray, writer: asyncio.StreamWriter) -> bool:
        view = memoryview(frame)
        header = read_request_header(view)
        key, version = header.api_key, header.api_version
        body = view[header.body_position :]
        if key == ApiKey.API_VERSIONS and not _offers(self.versions, key, version):
            request: Any = ApiVersionsRequest()
        else:
            request = self._decode(key, version, body)
        self.requests.append(Asked(key, version, request))
        reply: Any = self.scripts[key](request, version) if key in self.scripts else None
        if isinstance(reply, Awaitable):
            reply = await reply
        if reply is None:
            reply = await self._usual(key, version, request)
        if reply is HANG_UP:
            return False
        if reply is not SILENCE:
            writer.write(response_prefix(header.correlation_id, key, version, len(reply)) + reply)
            await writer.drain()
        return True

    def _decode(self, key: int, version: int, body: memoryview) -> Any:
        if key == ApiKey.PRODUCE:
            return parse_produce_request(body, version)
        if key == ApiKey.FETCH:
            return parse_fetch_request(body, version)
        module_name = ApiKey(key).name.lower()
        module = __import__(f"martlet.wire.messages.{module_name}", fromlist=["x"])
        class_name = "".join(word.capitalize() for word in module_name.split("_")) + "Request"
        return message_codec.decode(getattr(module, class_name), version, body)

    async def _usual(self, key: int, version: int, request: Any) -> Reply:
        if key == ApiKey.API_VERSIONS:
            return self._api_versions(version)
        if key == ApiKey.METADATA:
            return message_codec.encode(self.metadata(request), version)
        if key == ApiKey.PRODUCE:
            return self.produce(request, version)
        if key == ApiKey.FETCH:
            return await self.fetch(request, version)
        if key == ApiKey.LIST_OFFSETS:
            return message_codec.encode(self._list_offsets(request), version)
        if key == ApiKey.INIT_PRODUCER_ID:
            return message_codec.encode(self._init_producer_id(request), version)
        raise AssertionError(f"no script for {ApiKey(key).name}")

    def _api_versions(self, version: int) -> bytes:
        ranges = [ApiVersion(api_key=key, min_version=a, max_version=b) for key, (a, b) in self.versions.items()]
        if not _offers(self.versions, ApiKey.API_VERSIONS, version):
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges)
            return message_codec.encode(refusal, 0)
        return message_codec.encode(ApiVersionsResponse(api_keys=ranges), version)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        topics = self.cluster.topics
        wanted = list(topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker_id, host=broker.address.host, port=broker.address.port)
                for broker_id, broker in self.cluster.brokers.items()
            ],
            cluster_id="fake",
            controller_id=min(self.cluster.brokers),
            topics=[self._topic_metadata(name) for name in wanted],
        )

    def _topic_metadata(self, name: str) -> MetadataResponseTopic:
        topic = self.cluster.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        return MetadataResponseTopic(
            name=name,
            topic_id=topic.id,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=topic.epochs[index],
                    replica_nodes=[leader],
                    isr_nodes=[leader],
                )
                for index, leader in enumerate(topic.leaders)
            ],
        )

    def produce(self, request: ProduceRequest, version: int) -> Reply:
        """Append every batch and answer with its offsets."""
        topics = []
        for topic in request.topics:
            name = topic.name or self.cluster.name_of(topic.topic_id)
            results = []
            for index, records in topic.partitions:
                assert records is not None
                base_offset = self.append(TopicPartition(name, index), bytes(records))
                results.append(ProducePartitionResult(index, base_offset=base_offset))
            topics.append((topic.name, topic.topic_id, results))
        return SILENCE if request.acks == 0 else encode_produce_response(version, topics)

    def append(self, partition: TopicPartition, batch: bytes) -> int:
        base_offset = self.cluster.end_offset(partition)
        stamped = bytearray(batch)
        stamp_batch(stamped, 0, base_offset, 1)
        self.cluster.logs[partition] += stamped
        return base_offset

    async def fetch(self, request: FetchRequest, version: int) -> bytes:
        """Everything there is from the asked offset on; waits a moment when that is nothing."""
        topics = []
        found = False
        for topic in request.topics:
            name = topic.topic or self.cluster.name_of(topic.topic_id)
            results = []
            for wanted in topic.partitions:
                partition = TopicPartition(name, wanted.partition)
                log = self.cluster.logs[partition]
                start = next((at for at, h in iterate_batches(log) if h.last_offset >= wanted.fetch_offset), len(log))
                end = self.cluster.end_offset(partition)
                found = found or start < len(log)
                results.append(
                    FetchPartitionResult(
                        wanted.partition,
                        high_watermark=end,
                        last_stable_offset=end,
                        log_start_offset=0,
                        records=bytes(log[start:]),
                    )
                )
            topics.append((topic.topic, topic.topic_id, results))
        if not found:
            await asyncio.sleep(min(request.max_wait_ms, 20) / 1000)
        return b"".join(encode_fetch_response(version, topics=topics))

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=wanted.partition_index,
                            offset=0
                            if wanted.timestamp == -2
                            else self.cluster.end_offset(TopicPartition(topic.name, wanted.partition_index)),
                            leader_epoch=1,
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _init_producer_id(self, _request: InitProducerIdRequest) -> InitProducerIdResponse:
        self.cluster.next_producer_id += 1
        return InitProducerIdResponse(producer_id=self.cluster.next_producer_id, producer_epoch=0)


def _offers(versions: dict[int, tuple[int, int]], key: int, version: int) -> bool:
    oldest, newest = versions.get(key, (0, -1))
    return oldest <= version <= newest


def impatient(**changes: Any) -> ClientOptions:
    """Options for tests: short pauses and timeouts."""
    values: dict[str, Any] = {
        "connect_timeout_ms": 1_000,
        "request_timeout_ms": 1_000,
        "retry_timeout_ms": 2_000,
        "retry_backoff_ms": 2,
        "retry_backoff_max_ms": 10,
        "unknown_topic_wait_ms": 0,
    }
    return ClientOptions(**(values | changes))


def client_of(*brokers: FakeBroker, **changes: Any) -> Cluster:
    """A client of these brokers with seeded chance."""
    return Cluster([broker.address for broker in brokers], impatient(**changes), SimRandomness(1))
