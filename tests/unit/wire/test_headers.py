"""Request and response headers, byte by byte."""

import pytest

from martlet.base.errors import ProtocolViolation
from martlet.wire.api_keys import ApiKey
from martlet.wire.headers import (
    RequestHeader,
    encode_request_frame,
    read_request_header,
    read_response_header,
    response_prefix,
)


def test_an_old_request_header_ends_after_the_client_id() -> None:
    frame = b"\x00\x03\x00\x08\x00\x00\x00\x07\x00\x02mebody"
    assert read_request_header(frame) == RequestHeader(3, 8, 7, "me", 12)


def test_a_flexible_request_header_keeps_the_old_client_id_and_adds_tags() -> None:
    frame = b"\x00\x03\x00\x09\x00\x00\x00\x07\x00\x02me\x01\x05\x03abcbody"
    header = read_request_header(memoryview(bytearray(frame)))
    assert header == RequestHeader(3, 9, 7, "me", 18)
    assert frame[header.body_position :] == b"body"


def test_the_client_id_may_be_null() -> None:
    assert read_request_header(b"\x00\x03\x00\x01\x00\x00\x00\x07\xff\xff").client_id is None


def test_an_undefined_version_is_read_without_tags() -> None:
    header = read_request_header(b"\x00\x12\x00\x63\x00\x00\x00\x07\x00\x00\xff\xff\xff")
    assert header == RequestHeader(18, 99, 7, "", 10)


def test_an_undefined_key_is_read_without_tags() -> None:
    assert read_request_header(b"\x7f\xff\x00\x00\x00\x00\x00\x07\x00\x00\xff").body_position == 10


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x03\x00\x08\x00\x00\x00\x07\x00",
        b"\x00\x03\x00\x08\x00\x00\x00\x07\xff\xfe",
        b"\x00\x03\x00\x08\x00\x00\x00\x07\x00\x03me",
        b"\x00\x03\x00\x08\x00\x00\x00\x07\x00\x02\xff\xfe",
        b"\x00\x03\x00\x09\x00\x00\x00\x07\x00\x02me",
        b"\x00\x03\x00\x09\x00\x00\x00\x07\x00\x02me\x01\x05\x7fabc",
        b"\x00\x03\x00\x09\x00\x00\x00\x07\x00\x02me\x02\x05\x00\x05\x00",
        b"\x00\x03\x00\x09\x00\x00\x00\x07\x00\x02me\xff\xff\xff\xff\x0f",
    ],
    ids=[
        "empty",
        "short",
        "negative client id",
        "client id beyond the frame",
        "client id not UTF-8",
        "tags missing",
        "tag beyond the frame",
        "tag repeated",
        "four billion tags",
    ],
)
def test_a_broken_request_header_is_a_violation(frame: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_request_header(frame)


def test_a_response_prefix_counts_header_and_body() -> None:
    assert response_prefix(7, ApiKey.METADATA, 8, 100) == b"\x00\x00\x00\x68\x00\x00\x00\x07"
    assert response_prefix(7, ApiKey.METADATA, 9, 100) == b"\x00\x00\x00\x69\x00\x00\x00\x07\x00"


@pytest.mark.parametrize("version", range(6))
def test_a_response_to_api_versions_never_has_tags(version: int) -> None:
    prefix = response_prefix(7, ApiKey.API_VERSIONS, version, 0)
    assert prefix == b"\x00\x00\x00\x04\x00\x00\x00\x07"
    assert read_response_header(prefix[4:], ApiKey.API_VERSIONS, version) == (7, 4)


@pytest.mark.parametrize(("version", "client_id"), [(8, "me"), (8, None), (9, "me"), (9, None), (12, "é")])
def test_what_the_client_writes_the_broker_reads(version: int, client_id: str | None) -> None:
    frame = encode_request_frame(ApiKey.METADATA, version, -5, client_id, b"body")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = read_request_header(frame[4:])
    assert header[:4] == (ApiKey.METADATA, version, -5, client_id)
    assert frame[4:][header.body_position :] == b"body"


@pytest.mark.parametrize("version", [8, 9])
def test_what_the_broker_answers_the_client_reads(version: int) -> None:
    frame = response_prefix(11, ApiKey.METADATA, version, 4) + b"body"
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = read_response_header(frame[4:], ApiKey.METADATA, version)
    assert correlation_id == 11
    assert frame[4:][position:] == b"body"


def test_a_short_response_header_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation):
        read_response_header(b"\x00\x00\x00", ApiKey.METADATA, 8)
    with pytest.raises(ProtocolViolation):
        read_response_header(b"\x00\x00\x00\x01", ApiKey.METADATA, 9)
