"""Lag in messages and in time, against logs whose timestamps are known."""

from collections.abc import AsyncIterator

import pytest

from martlet.base.ids import TopicPartition
from martlet.client.groups import CommittedOffset
from martlet.client.lag import PartitionLag, partition_lags
from martlet.wire.batch import TransactionMarker, build_batch, build_marker_batch
from tests.unit.client.fake_broker import FakeBroker, client_of

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW_MS = 100_000


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as started:
        started.cluster.add_topic("t", [1, 1])
        yield started


def publish(broker: FakeBroker, partition: TopicPartition, *timestamps_ms: int) -> None:
    """One batch with a message for each timestamp."""
    broker.append(partition, build_batch([(stamp, None, b"v", ()) for stamp in timestamps_ms]))


def publish_marker(broker: FakeBroker, partition: TopicPartition) -> None:
    marker = TransactionMarker(is_commit=True, coordinator_epoch=0)
    broker.append(partition, build_marker_batch(marker, timestamp_ms=1, producer_id=9, producer_epoch=0))


async def lag_of(broker: FakeBroker, committed: dict[TopicPartition, int]) -> list[PartitionLag]:
    async with client_of(broker) as cluster:
        offsets = {partition: CommittedOffset(offset) for partition, offset in committed.items()}
        return await partition_lags(cluster, offsets, [], NOW_MS)


async def test_lag_is_the_messages_behind_and_the_age_of_the_first_of_them(broker: FakeBroker) -> None:
    publish(broker, T0, 10_000, 20_000, 30_000)
    publish(broker, T0, 40_000, 50_000)
    for offset, messages, age_ms in ((0, 5, 90_000), (1, 4, 80_000), (2, 3, 70_000), (3, 2, 60_000), (4, 1, 50_000)):
        assert await lag_of(broker, {T0: offset}) == [PartitionLag(T0, offset, 0, 5, messages, age_ms)]


async def test_a_group_at_the_end_or_beyond_is_not_behind(broker: FakeBroker) -> None:
    publish(broker, T0, 10_000)
    assert await lag_of(broker, {T0: 1, T1: 0}) == [PartitionLag(T0, 1, 0, 1, 0, 0), PartitionLag(T1, 0, 0, 0, 0, 0)]
    assert await lag_of(broker, {T0: 9}) == [PartitionLag(T0, 9, 0, 1, 0, 0)]


async def test_partitions_that_are_read_but_not_committed_have_no_lag(broker: FakeBroker) -> None:
    publish(broker, T0, 10_000)
    async with client_of(broker) as cluster:
        lags = await partition_lags(cluster, {T1: CommittedOffset(0)}, [T0], NOW_MS)
    assert lags == [PartitionLag(T0, None, 0, 1, None, None), PartitionLag(T1, 0, 0, 0, 0, 0)]


async def test_a_topic_or_partition_that_is_gone_has_no_lag(broker: FakeBroker) -> None:
    gone, beyond = TopicPartition("gone", 0), TopicPartition("t", 7)
    assert await lag_of(broker, {gone: 5, beyond: 6}) == [
        PartitionLag(gone, 5, None, None, None, None),
        PartitionLag(beyond, 6, None, None, None, None),
    ]


async def test_markers_are_passed_over(broker: FakeBroker) -> None:
    publish(broker, T0, 10_000)
    publish_marker(broker, T0)
    publish(broker, T0, 40_000)
    assert await lag_of(broker, {T0: 1}) == [PartitionLag(T0, 1, 0, 3, 2, 60_000)]


async def test_where_only_markers_are_left_no_message_waits(broker: FakeBroker) -> None:
    publish(broker, T0, 10_000)
    publish_marker(broker, T0)
    assert await lag_of(broker, {T0: 1}) == [PartitionLag(T0, 1, 0, 2, 1, 0)]


async def test_a_message_from_the_future_is_not_older_than_now(broker: FakeBroker) -> None:
    publish(broker, T0, NOW_MS + 5)
    assert await lag_of(broker, {T0: 0}) == [PartitionLag(T0, 0, 0, 1, 1, 0)]


async def test_what_has_no_timestamp_or_cannot_be_read_has_no_age(broker: FakeBroker) -> None:
    publish(broker, T0, -1)
    broken = bytearray(build_batch([(1_000, None, b"v", ())]))
    broken[61] = 0x7F  # the length of the only record
    broker.append(T1, bytes(broken))
    assert await lag_of(broker, {T0: 0, T1: 0}) == [
        PartitionLag(T0, 0, 0, 1, 1, None),
        PartitionLag(T1, 0, 0, 1, 1, None),
    ]
