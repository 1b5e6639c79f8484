"""Bytes no client should send: each ends its own connection, or gets the protocol's error, and harms no other."""

import logging
import struct
from collections.abc import Callable, Iterator

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.api_keys import ApiKey, is_flexible
from martlet.wire.message_codec import decode
from martlet.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, publish_values, read_all, values_of
from tests.broker.sample_requests import sample_body, samples, served_versions

LIMIT = 104_857_600
STRANGERS = {
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    "HTTP request": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "HTTP post": b"POST /topics HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.9\r\n",
}


@pytest.fixture
def stranger(broker: RunningBroker) -> Iterator[RawClient]:
    """The connection that misbehaves."""
    with RawClient(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture(autouse=True)
def others_unaffected(client: RawClient) -> Iterator[None]:
    """A client connected before the mischief goes on publishing and reading after it."""
    topic = create_topic(client)
    publish_values(client, topic, b"before")
    yield
    publish_values(client, topic, b"after")
    assert values_of(read_all(client, topic)) == [b"before", b"after"]


# --- framing


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, LIMIT + 1], ids=["-1", "lowest", "highest", "limit+1"])
def test_a_frame_length_that_cannot_be_ends_the_connection(stranger: RawClient, length: int) -> None:
    stranger.send_bytes(struct.pack(">i", length) + bytes(64))
    assert stranger.wait_closed() == b""


@pytest.mark.parametrize("size", [0, 1, 7, 9])
def test_a_frame_too_short_for_a_header_ends_the_connection(stranger: RawClient, size: int) -> None:
    stranger.send_frame(bytes(size))
    assert stranger.wait_closed() == b""


@pytest.mark.parametrize("content", STRANGERS.values(), ids=STRANGERS)
def test_another_protocol_on_the_port_ends_the_connection(stranger: RawClient, content: bytes) -> None:
    stranger.send_bytes(content)
    assert stranger.wait_closed() == b""


@pytest.mark.parametrize(("name", "content"), STRANGERS.items(), ids=STRANGERS)
def test_the_log_names_the_other_protocol_in_one_line(
    make_broker: Callable[..., RunningBroker], caplog: pytest.LogCaptureFixture, name: str, content: bytes
) -> None:
    running = make_broker()
    caplog.clear()
    with RawClient(running.bootstrap_servers) as connection:
        connection.send_bytes(content)
        connection.wait_closed()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert name.split()[0] in lines[0]
    assert "\n" not in lines[0]


def test_a_thousand_bad_connections_do_not_flood_the_log(
    make_broker: Callable[..., RunningBroker], caplog: pytest.LogCaptureFixture
) -> None:
    running = make_broker()
    for _ in range(1000):
        with RawClient(running.bootstrap_servers) as connection:
            connection.send_bytes(STRANGERS["HTTP request"])
            connection.wait_closed()
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 <= len(lines) <= 20


@pytest.mark.parametrize("client_id", [b"\xff\xfe\x00", b"\x7f\xffab"], ids=["not UTF-8", "shorter than it claims"])
def test_a_broken_client_id_ends_the_connection(stranger: RawClient, client_id: bytes) -> None:
    length = client_id[:2] if client_id[0] == 0x7F else struct.pack(">h", len(client_id))
    text = client_id[2:] if client_id[0] == 0x7F else client_id
    stranger.send_frame(struct.pack(">hhi", ApiKey.API_VERSIONS, 0, 1) + length + text)
    assert stranger.wait_closed() == b""


# --- APIs and versions


@pytest.mark.parametrize(
    "key", sorted({*map(int, ApiKey), -1, 4, 5, 6, 7, 93, 1000, 32767, -32768} - set(map(int, served_versions())))
)
def test_an_unknown_api_ends_the_connection(stranger: RawClient, key: int) -> None:
    stranger.send(key, 0, b"")
    assert stranger.wait_closed() == b""


@pytest.mark.parametrize("key", sorted(set(served_versions()) - {ApiKey.API_VERSIONS}), ids=lambda key: key.name)
def test_a_version_not_served_ends_the_connection(broker: RunningBroker, key: ApiKey) -> None:
    versions = served_versions()[key]
    for version in {versions[0] - 1, versions[-1] + 1, -1, 99, 32767, -32768}:
        with RawClient(broker.bootstrap_servers) as connection:
            connection.send(key, version, sample_body(key, versions[-1], "any"))
            assert connection.wait_closed() == b"", f"version {version}"


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest_layout(stranger: RawClient, version: int) -> None:
    sent = stranger.send(ApiKey.API_VERSIONS, version, b"\xff\xff no such layout")
    received, body = stranger.receive(ApiKey.API_VERSIONS, 0)
    answer = decode(ApiVersionsResponse, 0, body)
    assert received == sent
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    (offered,) = answer.api_keys
    assert (offered.api_key, offered.min_version, offered.max_version) == (ApiKey.API_VERSIONS, 0, 4)
    assert stranger.api_versions(4).error_code == ErrorCode.NONE, "the client may try again on the same connection"


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("ok", "-1"), ("ok", "1\n"), ("ü", "1")])
def test_a_software_name_that_is_no_word_is_an_invalid_request(stranger: RawClient, name: str, version: str) -> None:
    answer = stranger.call(ApiVersionsRequest(client_software_name=name, client_software_version=version), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


# --- bodies


def test_every_request_cut_short_anywhere_ends_the_connection(broker: RunningBroker, client: RawClient) -> None:
    versions = served_versions()
    edges = [s for s in samples(create_topic(client)) if s.version in (versions[s.key][0], versions[s.key][-1])]
    for key, version, body in edges:
        for size in range(len(body)):
            if len(body) > 120 and 24 < size < len(body) - 24 and size % 7:
                continue
            with RawClient(broker.bootstrap_servers) as connection:
                connection.send(key, version, body[:size])
                assert connection.wait_closed() == b"", f"{key.name} v{version} cut at {size} of {len(body)}"


def test_bytes_after_the_end_of_a_request_are_ignored(broker: RunningBroker, client: RawClient) -> None:
    """Kafka ignores them, and librdkafka 2.16 sends three with every Metadata request for all topics."""
    with RawClient(broker.bootstrap_servers) as connection:
        for key, version, body in samples(create_topic(client)):
            sent = connection.send(key, version, body + b"\x01\x00\x00")
            received, _ = connection.receive(key, version)
            assert received == sent, f"{key.name} v{version}"


def test_unknown_tagged_fields_are_skipped_everywhere(broker: RunningBroker, client: RawClient) -> None:
    with RawClient(broker.bootstrap_servers) as connection:
        for key, version, body in samples(create_topic(client)):
            if is_flexible(key, version):
                assert body[-1] == 0, "a flexible message ends with its tagged fields"
                sent = connection.send(key, version, body[:-1] + b"\x02\x63\x03abc\xc8\x01\x00")
                received, _ = connection.receive(key, version)
                assert received == sent, f"{key.name} v{version}"


@pytest.mark.parametrize(
    "tags",
    [
        b"\x02\x63\x00\x63\x00",
        b"\x02\x64\x00\x63\x00",
        b"\x01\x63\x7f",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00",
        b"\x01\xff\xff\xff\xff\x7f\x00",
    ],
    ids=["twice", "descending", "too long", "huge count", "long varint", "padded varint", "huge tag"],
)
def test_broken_tagged_fields_end_the_connection(stranger: RawClient, tags: bytes) -> None:
    body = sample_body(ApiKey.METADATA, 12, "any")
    stranger.send(ApiKey.METADATA, 12, body[:-1] + tags)
    assert stranger.wait_closed() == b""


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"),
        (ApiKey.METADATA, 1, b"\x80\x00\x00\x00"),
        (ApiKey.METADATA, 12, b"\xff\xff\xff\xff\x0f"),
        (ApiKey.METADATA, 12, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        (ApiKey.PRODUCE, 8, b"\xff\xff\xff\xff\x00\x00\x00\x01\x7f\xff\xff\xff"),
        (ApiKey.PRODUCE, 9, b"\x00\xff\xff\x00\x00\x00\x01\xff\xff\xff\xff\x0f"),
        (ApiKey.FETCH, 4, bytes(17) + b"\x7f\xff\xff\xff"),
        (ApiKey.FETCH, 13, bytes(25) + b"\xff\xff\xff\xff\x0f"),
        (ApiKey.CREATE_TOPICS, 2, b"\x7f\xff\xff\xff"),
        (ApiKey.DELETE_TOPICS, 1, b"\x00\x01\x00\x05a"),
        (ApiKey.LIST_OFFSETS, 1, b"\xff\xff\xff\xff\x00\x00\x00\x01\x00\x01a\x7f\xff\xff\xff"),
        (ApiKey.METADATA, 1, b"\x00\x00\x00\x01\x00\x02\xff\xfe"),
        (ApiKey.METADATA, 1, b"\x00\x00\x00\x01\xff\xff"),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, b"\x01\x00\x00\x07\xd0\x05"),
    ],
)
def test_absurd_counts_and_broken_values_end_the_connection(
    stranger: RawClient, key: ApiKey, version: int, body: bytes
) -> None:
    stranger.send(key, version, body)
    assert stranger.wait_closed() == b""
