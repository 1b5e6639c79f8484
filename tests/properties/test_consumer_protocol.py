"""Subscriptions and assignments of any content come back as they were, and no bytes make the readers raise."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.wire.consumer_protocol import (
    NEWEST_VERSION,
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)

int32s = st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
blobs = st.none() | st.binary(max_size=20)
partitions = st.dictionaries(texts, st.lists(int32s, max_size=4).map(tuple), max_size=4)


@given(
    st.builds(
        Subscription,
        topics=st.lists(texts, max_size=4).map(tuple),
        user_data=blobs,
        owned=partitions,
        generation=int32s,
        rack=st.none() | texts,
        version=st.just(NEWEST_VERSION),
    )
)
def test_a_subscription_comes_back_as_it_was_written(subscription: Subscription) -> None:
    assert read_subscription(write_subscription(subscription)) == subscription


@given(st.integers(0, NEWEST_VERSION), partitions, blobs)
def test_an_assignment_comes_back_as_it_was_written(
    version: int, assigned: Mapping[str, tuple[int, ...]], user_data: bytes | None
) -> None:
    expected = Assignment(assigned, user_data, version)
    assert read_assignment(write_assignment(version, assigned, user_data)) == expected


@settings(max_examples=500)
@given(st.integers(-1, 5), st.binary(max_size=60))
def test_any_bytes_read_as_something_or_none(version: int, data: bytes) -> None:
    for raw in (data, version.to_bytes(2, "big", signed=True) + data):
        read_subscription(raw)
        read_assignment(raw)


@settings(max_examples=200)
@given(st.lists(texts, max_size=3).map(tuple), partitions, st.data())
def test_cut_or_changed_bytes_read_as_something_or_none(
    topics: tuple[str, ...], owned: Mapping[str, tuple[int, ...]], data: st.DataObject
) -> None:
    raw = bytearray(write_subscription(Subscription(topics, b"user", owned, 3, "rack")))
    position = data.draw(st.integers(0, len(raw) - 1))
    read_subscription(bytes(raw[:position]))
    raw[position] = data.draw(st.integers(0, 255))
    read_subscription(bytes(raw))
