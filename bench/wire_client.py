"""A small blocking Kafka client for setting benchmarks up and for checking what they left: one connection, no retries.

Rules: everything goes over the wire as any client's requests do; nothing reaches into a broker. Not for measuring
(`bench.load_client` is), but simple enough to reason about in the crash test.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from martlet.base.errors import ErrorCode
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)
from martlet.wire.headers import encode_request_frame, read_response_header, response_prefix
from martlet.wire.message_codec import decode, encode, prepare
from martlet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from martlet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from martlet.wire.produce import (
    ProducePartitionResult,
    encode_produce_request,
    encode_produce_response,
    parse_produce_response,
)

# The versions that librdkafka 2.16 speaks.
PRODUCE_VERSION: Final = 10
FETCH_VERSION: Final = 16
_METADATA_VERSION: Final = 12
_CREATE_TOPICS_VERSION: Final = 7
_CLIENT_ID: Final = "martlet-bench"
_RETRIED: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_ID)

# Compiling a message's codec takes a while the first time, which must not count as the broker's.
for _message, _version in (
    (MetadataRequest, _METADATA_VERSION),
    (MetadataResponse, _METADATA_VERSION),
    (CreateTopicsRequest, _CREATE_TOPICS_VERSION),
    (CreateTopicsResponse, _CREATE_TOPICS_VERSION),
):
    prepare(_message, _version)

T = TypeVar("T")


class RequestRefused(Exception):
    """The broker answered with an error."""

    def __init__(self, what: str, code: int, detail: str | None = None) -> None:
        super().__init__(f"{what}: error {code} {detail or ''}")
        self.code = code


class TopicInfo(NamedTuple):
    name: str
    topic_id: bytes
    partitions: int


class WireClient:
    """One connection; requests are answered in turn. Also a context manager."""

    def __init__(self, port: int, timeout_seconds: float = 60.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, api_key: ApiKey, version: int, body: bytes) -> memoryview:
        """Send one request and return the body of its answer; raises OSError when the connection ends."""
        self._correlation_id += 1
        self._socket.sendall(encode_request_frame(api_key, version, self._correlation_id, _CLIENT_ID, body))
        (length,) = struct.unpack(">i", self._receive(4))
        frame = self._receive(length)
        correlation_id, position = read_response_header(frame, api_key, version)
        if correlation_id != self._correlation_id:
            raise RequestRefused(f"answer {correlation_id} to request {self._correlation_id}", -1)
        return memoryview(frame)[position:]

    def _receive(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]
        return data

    def _call_message(self, api_key: ApiKey, version: int, request: object, answer: type[T]) -> T:
        return decode(answer, version, self.call(api_key, version, encode(request, version)))

    def create_topics(self, names: Sequence[str], *, partitions: int = 1, **configs: str) -> None:
        """Create topics; `configs` have underscores for dots."""
        settings = [CreatableTopicConfig(name.replace("_", "."), value) for name, value in configs.items()]
        wanted = [CreatableTopic(name, partitions, 1, [], settings) for name in names]
        request = CreateTopicsRequest(wanted)
        answer = self._call_message(ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, request, CreateTopicsResponse)
        for topic in answer.topics:
            if topic.error_code:
                raise RequestRefused(f"create topic {topic.name}", topic.error_code, topic.error_message)

    def topic(self, name: str) -> TopicInfo:
        """What the broker says about a topic, once it has a leader."""
        request = MetadataRequest([MetadataRequestTopic(bytes(16), name)], allow_auto_topic_creation=True)
        deadline = time.monotonic() + 30
        while True:
            answer = self._call_message(ApiKey.METADATA, _METADATA_VERSION, request, MetadataResponse)
            topic = answer.topics[0]
            if not topic.error_code and all(not one.error_code for one in topic.partitions):
                return TopicInfo(name, topic.topic_id, len(topic.partitions))
            if topic.error_code not in (0, *_RETRIED) or time.monotonic() > deadline:
                raise RequestRefused(f"metadata of {name}", topic.error_code)
            time.sleep(0.002)

    def publish(self, topic: str, partition: int, batch: bytes, *, timeout_ms: int = 30_000) -> ProducePartitionResult:
        """Send one batch with acks=all and return what became of it."""
        body = produce_body(topic, partition, batch, timeout_ms)
        answer = parse_produce_response(self.call(ApiKey.PRODUCE, PRODUCE_VERSION, body), PRODUCE_VERSION)
        return answer.topics[0].partitions[0]

    def send_and_wait(self, topic: str, batch: bytes) -> None:
        """Send one batch to a server that answers with whatever bytes, as the bare loop does."""
        self._socket.sendall(produce_frame(topic, 0, batch))
        (length,) = struct.unpack(">i", self._receive(4))
        self._receive(length)

    def fetch(self, topic: TopicInfo, partition: int, offset: int, *, max_bytes: int) -> FetchPartitionResult:
        """The batches from `offset` on, at once."""
        body = fetch_body(topic, partition, offset, max_bytes=max_bytes, max_wait_ms=0)
        answer = parse_fetch_response(self.call(ApiKey.FETCH, FETCH_VERSION, body), FETCH_VERSION)
        if answer.error_code:
            raise RequestRefused(f"fetch of {topic.name}", answer.error_code)
        result = answer.topics[0].partitions[0]
        if result.error_code:
            raise RequestRefused(f"fetch of {topic.name}-{partition} at {offset}", result.error_code)
        return result


def produce_body(topic: str, partition: int, batch: bytes, timeout_ms: int = 30_000) -> bytes:
    topics = [(topic, None, [(partition, batch)])]
    chunks = encode_produce_request(PRODUCE_VERSION, topics=topics, acks=-1, timeout_ms=timeout_ms)
    return b"".join(chunks)


def produce_frame(topic: str, partition: int, batch: bytes) -> bytes:
    """A whole Produce request, as it goes over the wire."""
    body = produce_body(topic, partition, batch)
    return encode_request_frame(ApiKey.PRODUCE, PRODUCE_VERSION, 1, _CLIENT_ID, body)


def produce_error_at(topic: str) -> int:
    """Where in the answer to `produce_frame`, behind its length, the error code stands."""
    correlation_id, tags, topic_count, name_length, partition_count, index = 4, 1, 1, 1, 1, 4
    return correlation_id + tags + topic_count + name_length + len(topic) + partition_count + index


def produce_answer_bytes(topic: str) -> int:
    """The size of the whole answer to `produce_frame` when nothing went wrong."""
    plain = encode_produce_response(PRODUCE_VERSION, [(topic, None, [ProducePartitionResult(0, 0, 0, -1, 0)])])
    return len(response_prefix(1, ApiKey.PRODUCE, PRODUCE_VERSION, len(plain))) + len(plain)


def fetch_body(topic: TopicInfo, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int) -> bytes:
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms, max_bytes=max_bytes, topics=[FetchTopic(None, topic.topic_id, [wanted])]
    )
    return encode_fetch_request(FETCH_VERSION, request)


def fetch_frame(topic: TopicInfo, partition: int, offset: int, *, max_bytes: int, max_wait_ms: int = 500) -> bytes:
    """A whole Fetch request, as it goes over the wire."""
    body = fetch_body(topic, partition, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
    return encode_request_frame(ApiKey.FETCH, FETCH_VERSION, 1, _CLIENT_ID, body)


@contextlib.contextmanager
def patient_client(port: int, seconds_max: float = 60.0) -> Iterator[WireClient]:
    """A client of a server that may not listen yet."""
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            client = WireClient(port)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.002)
    with client:
        yield client
