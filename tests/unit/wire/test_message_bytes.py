"""Messages byte by byte: known encodings, broken ones, and the limits of the decoder."""

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import martlet
from martlet.base.errors import ProtocolViolation
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from martlet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from martlet.wire.messages.delete_topics import DeleteTopicsRequest
from martlet.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from martlet.wire.messages.init_producer_id import InitProducerIdRequest
from martlet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [
        (ApiVersionsRequest(), 0, b""),
        (ApiVersionsRequest("librdkafka", "2.6"), 3, b"\x0blibrdkafka\x042.6\x00"),
        (ApiVersionsResponse(35, [ApiVersion(18, 0, 4)]), 0, b"\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x04"),
        (MetadataRequest([]), 0, b"\x00\x00\x00\x00"),
        (MetadataRequest(None), 1, b"\xff\xff\xff\xff"),
        (MetadataRequest(None), 9, b"\x00\x01\x00\x00\x00"),
        (MetadataRequest([MetadataRequestTopic(name="a")], False), 4, b"\x00\x00\x00\x01\x00\x01a\x00"),
        (MetadataRequest([MetadataRequestTopic(TOPIC_ID)]), 12, b"\x02" + TOPIC_ID + b"\x00\x00\x01\x00\x00"),
        (InitProducerIdRequest(None, 60_000), 0, b"\xff\xff\x00\x00\xea\x60"),
        (InitProducerIdRequest("t", 1, 5, 2), 3, b"\x02t\x00\x00\x00\x01" + bytes(7) + b"\x05\x00\x02\x00"),
        (
            DescribeTopicPartitionsRequest([TopicRequest("t")], 9, Cursor("t", 1)),
            0,
            b"\x02\x02t\x00\x00\x00\x00\x09\x01\x02t\x00\x00\x00\x01\x00\x00",
        ),
        (DescribeTopicPartitionsRequest([], 9, None), 0, b"\x01\x00\x00\x00\x09\xff\x00"),
        (
            ApiVersionsResponse(finalized_features_epoch=3, finalized_features=[FinalizedFeatureKey("t", 2, 1)]),
            3,
            b"\x00\x00\x01\x00\x00\x00\x00\x02"
            + b"\x01\x08"
            + bytes(7)
            + b"\x03"
            + b"\x02\x08\x02\x02t\x00\x02\x00\x01\x00",
        ),
    ],
)
def test_known_messages_have_known_bytes(message: Any, version: int, expected: bytes) -> None:
    assert encode(message, version) == expected
    assert encode(decode(type(message), version, expected), version) == expected


def test_a_field_the_version_lacks_is_left_out_and_reads_as_its_default() -> None:
    message = MetadataRequest([], allow_auto_topic_creation=False)
    assert decode(MetadataRequest, 3, encode(message, 3)).allow_auto_topic_creation is True
    assert decode(MetadataRequest, 4, encode(message, 4)).allow_auto_topic_creation is False


def test_the_body_may_start_anywhere_in_any_buffer() -> None:
    body = encode(MetadataRequest(None), 9)
    for data in (b"head" + body, bytearray(b"head" + body), memoryview(b"head" + body)):
        assert decode(MetadataRequest, 9, data, position=4) == MetadataRequest(None)


def test_what_was_decoded_does_not_change_with_the_buffer() -> None:
    buffer = bytearray(encode(MetadataRequest([MetadataRequestTopic(TOPIC_ID)]), 12))
    message = decode(MetadataRequest, 12, memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert message.topics == [MetadataRequestTopic(TOPIC_ID)]


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    tags = b"\x02\x64\x03abc\xff\x7f\x00"
    body = b"\x02" + TOPIC_ID + b"\x02a" + tags + b"\x01\x00" + tags
    assert decode(MetadataRequest, 12, body) == MetadataRequest([MetadataRequestTopic(TOPIC_ID, "a")])


def test_unknown_tagged_fields_between_known_ones_are_skipped() -> None:
    body = b"\x00\x00\x01\x00\x00\x00\x00\x02\x01\x08" + bytes(7) + b"\x05\x63\x01x"
    assert decode(ApiVersionsResponse, 3, body) == ApiVersionsResponse(finalized_features_epoch=5)


BROKEN = {
    "nothing": (MetadataRequest, 9, b""),
    "null topics in v0": (MetadataRequest, 0, b"\xff\xff\xff\xff"),
    "a count of -2": (MetadataRequest, 1, b"\xff\xff\xff\xfe"),
    "two billion topics": (MetadataRequest, 1, b"\x7f\xff\xff\xff"),
    "four billion topics": (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f\x01\x00\x00\x00"),
    "a count of six bytes": (MetadataRequest, 9, b"\x80\x80\x80\x80\x80\x01\x01\x00\x00\x00"),
    "a null name where v9 allows none": (MetadataRequest, 9, b"\x02\x00\x00\x01\x00\x00\x00"),
    "a null name where v4 allows none": (MetadataRequest, 4, b"\x00\x00\x00\x01\xff\xff\x01"),
    "a name of -2 bytes": (MetadataRequest, 4, b"\x00\x00\x00\x01\xff\xfe\x01"),
    "a name longer than the message": (MetadataRequest, 4, b"\x00\x00\x00\x01\x00\x09abc\x01"),
    "a name that is not UTF-8": (MetadataRequest, 4, b"\x00\x00\x00\x01\x00\x02\xff\xfe\x01"),
    "a short name that is not UTF-8": (MetadataRequest, 9, b"\x02\x03\xff\xfe\x00\x01\x00\x00\x00"),
    "a tag repeated": (MetadataRequest, 9, b"\x00\x01\x00\x00\x02\x05\x00\x05\x00"),
    "tags descending": (MetadataRequest, 9, b"\x00\x01\x00\x00\x02\x05\x00\x04\x00"),
    "a tag cut short": (MetadataRequest, 9, b"\x00\x01\x00\x00\x01\x05\x02a"),
    "more tags than fit": (MetadataRequest, 9, b"\x00\x01\x00\x00\x7f\x05\x00"),
    "a known tag larger than its value": (
        ApiVersionsResponse,
        3,
        b"\x00\x00\x01\x00\x00\x00\x00\x01\x01\x09" + bytes(9),
    ),
    "a known tag smaller than its value": (
        ApiVersionsResponse,
        3,
        b"\x00\x00\x01\x00\x00\x00\x00\x02\x01\x04" + bytes(4) + b"\x02\x02\x00\x00",
    ),
    "a nullable struct that is marked 2": (DescribeTopicPartitionsRequest, 0, b"\x01\x00\x00\x00\x09\x02\x00"),
    "a nullable struct that is marked 0": (DescribeTopicPartitionsRequest, 0, b"\x01\x00\x00\x00\x09\x00\x00"),
}


@pytest.mark.parametrize(("message_class", "version", "data"), BROKEN.values(), ids=BROKEN)
def test_broken_bytes_are_a_violation_that_names_the_message(message_class: Any, version: int, data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match=rf"^{message_class.__name__} v{version}: "):
        decode(message_class, version, data)


def test_a_message_cut_anywhere_is_a_violation() -> None:
    whole = encode(MetadataRequest([MetadataRequestTopic(TOPIC_ID, "name")]), 12)
    for size in range(len(whole)):
        with pytest.raises(ProtocolViolation):
            decode(MetadataRequest, 12, whole[:size])


def test_more_elements_than_the_budget_are_a_violation() -> None:
    message = DeleteTopicsRequest(topic_names=["a"] * 100)
    body = encode(message, 4)
    assert decode(DeleteTopicsRequest, 4, body, object_budget=100) == message
    with pytest.raises(ProtocolViolation, match="more elements"):
        decode(DeleteTopicsRequest, 4, body, object_budget=99)


def test_the_budget_counts_elements_of_all_levels_together() -> None:
    message = CreateTopicsRequest([CreatableTopic("t", configs=[]) for _ in range(3)])
    body = encode(message, 5)
    assert decode(CreateTopicsRequest, 5, body, object_budget=3) == message
    with pytest.raises(ProtocolViolation, match="more elements"):
        decode(CreateTopicsRequest, 5, body, object_budget=2)


def test_the_budget_counts_tagged_fields() -> None:
    body = b"\x00\x01\x00\x00\x03\x05\x00\x06\x00\x07\x00"
    assert decode(MetadataRequest, 9, body, object_budget=3) == MetadataRequest(None)
    with pytest.raises(ProtocolViolation, match="more elements"):
        decode(MetadataRequest, 9, body, object_budget=2)


def test_requests_have_a_smaller_budget_than_responses() -> None:
    count = 300_000
    with pytest.raises(ProtocolViolation, match="more elements"):
        decode(DeleteTopicsRequest, 1, count.to_bytes(4, "big") + bytes(2 * count + 4))


def test_a_declared_count_allocates_nothing() -> None:
    data = b"\x7f\xff\xff\xff" + bytes(1000)
    with pytest.raises(ProtocolViolation):
        decode(MetadataRequest, 1, data)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolViolation):
            decode(MetadataRequest, 1, data)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (MetadataRequest(None), 0),
        (MetadataRequest([MetadataRequestTopic()]), 9),
        (MetadataResponse(controller_id=2**31), 12),
        (ApiVersionsRequest("x" * 32768, ""), 3),
        (DeleteTopicsRequest(topic_names=["x" * 32768]), 1),
        (ApiVersionsRequest("\ud800", ""), 3),
    ],
    ids=["null array", "null string", "number out of range", "long compact string", "long string", "lone surrogate"],
)
def test_a_message_its_version_cannot_carry_is_refused(message: Any, version: int) -> None:
    with pytest.raises(ValueError, match=rf"^{type(message).__name__} v{version} cannot be encoded"):
        encode(message, version)


@pytest.mark.parametrize("version", [-1, 14])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match="MetadataRequest has no version"):
        decode(MetadataRequest, version, b"")
    with pytest.raises(ValueError, match="MetadataRequest has no version"):
        encode(MetadataRequest(), version)


def test_importing_the_codec_and_all_messages_does_not_import_the_schema_library() -> None:
    source = Path(martlet.__file__).parent.parent
    script = """
import importlib, pkgutil, sys
import martlet.wire.message_codec, martlet.wire.headers, martlet.wire.frames
import martlet.wire.messages as messages
for entry in pkgutil.iter_modules(messages.__path__):
    importlib.import_module(f"{messages.__name__}.{entry.name}")
sys.exit(any(name.partition(".")[0] == "kio" for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": str(source)}, check=False).returncode == 0
