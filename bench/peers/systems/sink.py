"""A server that speaks Kafka's protocol and throws away what it is sent: the load generator's own limit.

    python -m bench.peers.systems.sink --port N

Rules: a publish is parsed as far as its answer needs and answered at once; no checksum is looked at, nothing is kept
but the largest batch of each partition. That one is the answer to every fetch, with another base offset. Whatever is
measured beside this server cannot be faster than what the client reached with it.
"""

import argparse
import asyncio
import contextlib
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, cast

import uvloop

from bench.peers.systems.system import Durability, Protocol, Running, System, running
from bench.processes import ServerProcess, free_port
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import FetchPartitionResult, encode_fetch_response, parse_fetch_request
from martlet.wire.headers import RequestHeader, read_request_header, response_prefix
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from martlet.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from martlet.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from martlet.wire.produce import ProducePartitionResult, encode_produce_response, parse_produce_request

_PREFIX: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_BUFFER_BYTES: Final = 4 << 20
_ENDLESS: Final = 1 << 60


class Sink:
    """What is known of topics: their partitions, and that the first one created is what a topic id means."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._partitions: dict[str, int] = {}
        self._batches: dict[tuple[str, int], bytes] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self.handlers: Final[dict[int, tuple[int, int, Callable[[memoryview, int], bytes]]]] = {
            ApiKey.PRODUCE: (3, 10, self._produce),
            ApiKey.FETCH: (4, 11, self._fetch),
            ApiKey.METADATA: (0, 12, self._metadata),
            ApiKey.API_VERSIONS: (0, 3, self._api_versions),
            ApiKey.CREATE_TOPICS: (2, 7, self._create_topics),
        }

    def answer(self, header: RequestHeader, body: memoryview) -> bytes:
        low, high, handler = self.handlers[header.api_key]
        version = header.api_version
        if not low <= version <= high:
            # Only ApiVersions may be asked in a version that is not served; the answer then has the oldest layout.
            version = 0
        answer = handler(body, version)
        return response_prefix(header.correlation_id, header.api_key, version, len(answer)) + answer

    def _produce(self, body: memoryview, version: int) -> bytes:
        topics = []
        for topic in parse_produce_request(body, version).topics:
            results = []
            for index, records in topic.partitions:
                key = (topic.name or "", index)
                if records is not None and len(records) > len(self._batches.get(key, b"")):
                    self._batches[key] = bytes(records)
                self._offsets[key] = offset = self._offsets.get(key, -1) + 1
                results.append(ProducePartitionResult(index, 0, offset, -1, 0))
            topics.append((topic.name, None, results))
        return encode_produce_response(version, topics)

    def _fetch(self, body: memoryview, version: int) -> bytes:
        topics = []
        for topic in parse_fetch_request(body, version).topics:
            results = []
            for wanted in topic.partitions:
                batch = self._batches.get((topic.topic or "", wanted.partition), b"")
                batch = _OFFSET.pack(wanted.fetch_offset) + batch[_OFFSET.size :] if batch else b""
                results.append(
                    FetchPartitionResult(
                        wanted.partition,
                        high_watermark=_ENDLESS,
                        last_stable_offset=_ENDLESS,
                        log_start_offset=0,
                        records=batch,
                    )
                )
            topics.append((topic.topic, None, results))
        return b"".join(encode_fetch_response(version, topics))

    def _metadata(self, body: memoryview, version: int) -> bytes:
        asked = decode(MetadataRequest, version, body).topics
        names = list(self._partitions) if asked is None else [one.name or "" for one in asked]
        topics = []
        for name in names:
            indexes = range(self._partitions.get(name, 1))
            partitions = [MetadataResponsePartition(0, index, 1, 0, [1], [1]) for index in indexes]
            topics.append(MetadataResponseTopic(0, name, partitions=partitions))
        brokers = [MetadataResponseBroker(1, "127.0.0.1", self._port)]
        return encode(MetadataResponse(0, brokers, "sink", 1, topics), version)

    def _api_versions(self, _body: memoryview, version: int) -> bytes:
        ranges = [ApiVersion(key, low, high) for key, (low, high, _) in self.handlers.items()]
        return encode(ApiVersionsResponse(0, ranges), version)

    def _create_topics(self, body: memoryview, version: int) -> bytes:
        results = []
        for topic in decode(CreateTopicsRequest, version, body).topics:
            self._partitions[topic.name] = topic.num_partitions
            results.append(CreatableTopicResult(topic.name, num_partitions=topic.num_partitions, replication_factor=1))
        return encode(CreateTopicsResponse(0, results), version)


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        view = memoryview(self._buffer)
        position = 0
        while self._filled - position >= 4:
            end = position + 4 + _PREFIX.unpack_from(view, position)[0]
            if end > self._filled:
                break
            frame = view[position + 4 : end]
            header = read_request_header(frame)
            assert self._transport is not None
            self._transport.write(self._sink.answer(header, frame[header.body_position :]))
            position = end
        if position:
            rest = bytes(view[position : self._filled])
            view[: len(rest)] = rest
            self._filled = len(rest)


class SinkSystem(System):
    """The sink in the place of a system: its rates are the load generator's limit."""

    name = "sink"
    protocol = Protocol.KAFKA

    def obtain(self) -> str:
        return "part of these benchmarks"

    def client_python(self) -> str:
        return sys.executable

    def configuration(self, durability: Durability) -> str:
        return "not a queue: a server that discards what is published, the load generator's own limit"

    @contextlib.contextmanager
    def start(self, directory: Path, durability: Durability, *, nodes: int = 1) -> Iterator[Running]:
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        command = [sys.executable, "-m", "bench.peers.systems.sink", "--port", str(port)]
        process = ServerProcess(command, port, directory / "sink.log")
        with running([process], lambda: Running(self, durability, [process], f"127.0.0.1:{port}", directory)) as system:
            yield system


async def _serve(port: int) -> None:
    sink = Sink(port)
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(sink), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
