"""Topic ids and topic-partitions as people and Kafka's tools write them."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from martlet.base.ids import NO_TOPIC_ID, TopicPartition, format_topic_id, parse_topic_id


def test_a_topic_partition_prints_like_its_directory() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_the_empty_topic_id_prints_as_kafka_prints_it() -> None:
    assert format_topic_id(NO_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAA"


def test_a_known_uuid_prints_as_kafka_prints_it() -> None:
    raw = uuid.UUID("00000000-0000-0001-0000-000000000001").bytes
    assert format_topic_id(raw) == "AAAAAAAAAAEAAAAAAAAAAQ"


@given(st.binary(min_size=16, max_size=16))
def test_a_printed_topic_id_reads_back(raw: bytes) -> None:
    text = format_topic_id(raw)
    assert len(text) == 22
    assert parse_topic_id(text) == raw


@pytest.mark.parametrize("text", ["", "short", "A" * 23, "A" * 21 + "!", "é" * 22, "A" * 40])
def test_anything_else_is_refused_as_a_topic_id(text: str) -> None:
    with pytest.raises(ValueError, match="not a topic id"):
        parse_topic_id(text)
