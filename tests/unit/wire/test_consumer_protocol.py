"""Subscriptions and assignments: the bytes of each version, and leniency towards what clients really send."""

import io
from typing import Any

import pytest
from kio.schema.consumer_protocol_assignment.v3 import data as assignment_schema
from kio.schema.consumer_protocol_subscription.v3 import data as subscription_schema
from kio.serial import entity_writer

from martlet.wire.consumer_protocol import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)

V0 = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
OWNED = b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07"


def schema_bytes(message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(message))(out, message)
    return out.getvalue()


def test_the_oldest_version_has_topics_and_user_data() -> None:
    assert read_subscription(V0) == Subscription(("t",), version=0)
    assert write_subscription(Subscription(("t",), version=0)) == V0


def test_each_version_appends_a_field() -> None:
    everything = Subscription(("t",), b"u", {"t": (0, 7)}, 5, "r")
    start = b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01u"
    tails = [b"", OWNED, OWNED + b"\x00\x00\x00\x05", OWNED + b"\x00\x00\x00\x05\x00\x01r"]
    expected = [
        Subscription(("t",), b"u", version=0),
        Subscription(("t",), b"u", {"t": (0, 7)}, version=1),
        Subscription(("t",), b"u", {"t": (0, 7)}, 5, version=2),
        everything,
    ]
    for version, tail in enumerate(tails):
        data = bytes([0, version]) + start + tail
        assert read_subscription(data) == expected[version]
        assert write_subscription(expected[version]) == data


def test_the_bytes_are_those_of_the_schema_library() -> None:
    library: Any = subscription_schema
    subscription = library.ConsumerProtocolSubscription(
        topics=("a", "b"),
        user_data=None,
        owned_partitions=(library.TopicPartition(topic="a", partitions=(0, 2)),),
        generation_id=9,
        rack_id="r1",
    )
    ours = Subscription(("a", "b"), None, {"a": (0, 2)}, 9, "r1")
    assert write_subscription(ours) == b"\x00\x03" + schema_bytes(subscription)

    library = assignment_schema
    assigned = (library.TopicPartition(topic="a", partitions=(1, 3)),)
    assignment = library.ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=b"x")
    assert write_assignment(3, {"a": (1, 3)}, b"x") == b"\x00\x03" + schema_bytes(assignment)


def test_a_version_1_without_owned_partitions_is_understood() -> None:
    assert read_subscription(b"\x00\x01" + V0[2:]) == Subscription(("t",), version=1)


def test_a_newer_version_is_read_as_ours() -> None:
    newest = write_subscription(Subscription(("t",), b"u", {"t": (0, 7)}, 5, "r"))
    assert read_subscription(b"\x00\x09" + newest[2:] + b"more") == read_subscription(newest)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xff\xff" + V0[2:],
        b"\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x00\x7f\xff\xff\xff\x00\x01t",
        V0[:-1],
        b"\x00\x01" + V0[2:] + b"\x00",
        b"\x00\x01" + V0[2:] + b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff\xff\xff\xff\xff",
    ],
)
def test_what_is_no_subscription_reads_as_none(data: bytes) -> None:
    assert read_subscription(data) is None


def test_an_assignment_is_read_and_written() -> None:
    data = b"\x00\x00" + OWNED + b"\xff\xff\xff\xff"
    assert read_assignment(data) == Assignment({"t": (0, 7)}, version=0)
    assert write_assignment(0, {"t": [0, 7]}) == data


def test_a_topic_that_comes_twice_has_the_partitions_of_both() -> None:
    twice = b"\x00\x00\x00\x00\x00\x02" + (b"\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x03") * 2
    assert read_assignment(twice) == Assignment({"t": (3, 3)}, version=0)


def test_no_bytes_are_an_assignment_of_nothing_and_others_that_are_none_read_as_none() -> None:
    assert read_assignment(b"") == Assignment()
    assert read_assignment(b"\x00\x00\x00") is None
    assert read_assignment(b"\x00\x00\x7f\xff\xff\xff") is None
