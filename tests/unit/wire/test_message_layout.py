"""Layouts: what is taken from the schema, and what happens to the fields our classes do not have."""

import io
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from martlet.wire.decoder_source import decoder_source
from martlet.wire.encoder_source import encoder_source
from martlet.wire.layout import message_kind, message_layout, our_field_name
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from martlet.wire.messages.create_topics import CreateTopicsRequest
from martlet.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from martlet.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from martlet.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from martlet.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.unit.wire.message_catalogue import schema_class
from tests.unit.wire.narrow_messages import (
    api_versions,
    consumer_group_describe,
    describe_cluster,
    describe_topic_partitions,
    produce,
)


def test_fields_come_in_wire_order_with_tags_apart() -> None:
    layout = message_layout(ApiVersionsResponse, 3)
    assert [field.name for field in layout.fields] == ["error_code", "api_keys", "throttle_time_ms"]
    assert [(tag, field.name) for tag, field in layout.tagged_fields] == [
        (0, "supported_features"),
        (1, "finalized_features_epoch"),
        (2, "finalized_features"),
        (3, "zk_migration_ready"),
    ]


def test_nullability_follows_the_version() -> None:
    assert [message_layout(MetadataRequest, version).fields[0].is_nullable for version in (0, 1, 13)] == [
        False,
        True,
        True,
    ]


def test_defaults_are_in_our_types() -> None:
    fields = {field.name: field for field in message_layout(CreateTopicsRequest, 7).fields}
    assert fields["timeout_ms"].default == 60_000
    assert type(fields["timeout_ms"].default) is int
    assert fields["topics"].default == []


@pytest.mark.parametrize(
    ("message_class", "version", "expected"),
    [
        (MetadataRequest, 0, 4),
        (MetadataRequest, 9, 5),
        (ListOffsetsRequest, 1, 8),
        (DescribeTopicPartitionsRequest, 0, 7),
    ],
)
def test_the_smallest_message_is_as_small_as_the_layout_says(message_class: Any, version: int, expected: int) -> None:
    assert message_layout(message_class, version).bytes_min == expected
    assert len(encode(message_class(), version)) == expected


def test_the_smallest_element_counts_its_nested_lengths() -> None:
    topics = message_layout(MetadataResponse, 12).fields[-1]
    assert topics.element_bytes_min(is_flexible=True) == 2 + 1 + 16 + 1 + 1 + 4 + 1


def test_times_say_their_unit_once() -> None:
    assert our_field_name("throttle_time", "timedelta_i32") == "throttle_time_ms"
    assert our_field_name("log_append_time_ms", "datetime_i64") == "log_append_time_ms"
    assert our_field_name("timestamp", "int64") == "timestamp"


def test_the_kind_of_a_message_is_in_its_name() -> None:
    assert message_kind(MetadataRequest) == "request"
    assert message_kind(MetadataResponse) == "response"
    assert message_kind(ListOffsetsPartition) == "data"


def test_fields_we_do_not_keep_are_read_over() -> None:
    full = DescribeClusterResponse(
        throttle_time_ms=9, error_code=3, cluster_id="c", brokers=[DescribeClusterBroker(1, "h", 2, "r")] * 3,
        cluster_authorized_operations=77,
    )  # fmt: skip
    narrow = decode(describe_cluster.DescribeClusterResponse, 2, encode(full, 2))
    assert narrow == describe_cluster.DescribeClusterResponse(3, 77)


@pytest.mark.parametrize("cursor", [None, Cursor("t", 5)])
def test_a_nullable_struct_we_do_not_keep_is_read_over(cursor: Cursor | None) -> None:
    full = DescribeTopicPartitionsRequest([TopicRequest("t")], 55, cursor)
    narrow = decode(describe_topic_partitions.DescribeTopicPartitionsRequest, 0, encode(full, 0))
    assert narrow == describe_topic_partitions.DescribeTopicPartitionsRequest(55)


def test_tagged_fields_we_do_not_keep_are_skipped() -> None:
    full = ApiVersionsResponse(
        0, [ApiVersion(1, 2, 3)], 4, [SupportedFeatureKey("s", 1, 2)], 5, [FinalizedFeatureKey("f", 2, 1)], True
    )
    assert decode(api_versions.ApiVersionsResponse, 3, encode(full, 3)) == api_versions.ApiVersionsResponse(5, True)


def test_fields_we_do_not_keep_are_written_at_their_defaults() -> None:
    written = encode(describe_cluster.DescribeClusterResponse(3, 77), 2)
    assert decode(DescribeClusterResponse, 2, written) == DescribeClusterResponse(
        error_code=3, cluster_authorized_operations=77
    )
    written = encode(describe_topic_partitions.DescribeTopicPartitionsRequest(55), 0)
    assert decode(DescribeTopicPartitionsRequest, 0, written) == DescribeTopicPartitionsRequest([], 55, None)
    written = encode(api_versions.ApiVersionsResponse(5, True), 3)
    assert decode(ApiVersionsResponse, 3, written) == ApiVersionsResponse(
        finalized_features_epoch=5, zk_migration_ready=True
    )


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (
            produce.ProduceRequest(
                1, [produce.TopicProduceData("t", [produce.PartitionProduceData(3, b"\xff" * 300)])]
            ),
            3,
        ),
        (
            produce.ProduceRequest(
                1, [produce.TopicProduceData("t", [produce.PartitionProduceData(3, b"\xff" * 300)])]
            ),
            9,
        ),
        (produce.ProduceRequest(1, [produce.TopicProduceData("t", [produce.PartitionProduceData(3, b"records")])]), 9),
        (produce.ProduceRequest(1, [produce.TopicProduceData("t", [produce.PartitionProduceData(3, None)])]), 3),
        (produce.ProduceRequest(1, [produce.TopicProduceData("t", [produce.PartitionProduceData(3, None)])]), 9),
        (produce.ProduceResponse([produce.TopicProduceResponse("t", [produce.PartitionProduceResponse(5, 1234)])]), 8),
        (
            consumer_group_describe.ConsumerGroupDescribeResponse(
                [consumer_group_describe.DescribedGroup([consumer_group_describe.Member("m")])]
            ),
            1,
        ),
    ],
)
def test_partial_messages_are_valid_for_the_schema_library(message: Any, version: int) -> None:
    schema = schema_class(type(message), version)
    encoded = encode(message, version)
    read, size = entity_reader(schema)(encoded, 0)
    assert size == len(encoded)
    out = io.BytesIO()
    entity_writer(schema)(out, read)
    assert decode(type(message), version, out.getvalue()) == message


def test_the_generated_source_can_be_read() -> None:
    layout = message_layout(MetadataRequest, 12)
    assert decoder_source(layout).startswith("def decode(data, p, budget):\n")
    assert encoder_source(layout).startswith("def encode(message):\n")
