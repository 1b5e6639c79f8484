"""Progress in a consumer group: committed when it changes, and never a reason for a stream to stop."""

import logging
from collections.abc import Mapping

import pytest

from martlet.base.addresses import parse_bootstrap
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.groups import Groups
from martlet.spark.group_progress import GroupProgress

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> list[dict[TopicPartition, int]]:
    """What reaches the group."""
    found: list[dict[TopicPartition, int]] = []

    async def commit(groups: Groups, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets.get(A0) == 13:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members")
        found.append(dict(offsets))

    monkeypatch.setattr(Groups, "commit", commit)
    return found


async def test_only_changes_are_committed(committed: list[dict[TopicPartition, int]]) -> None:
    cluster = Cluster(parse_bootstrap("127.0.0.1:1"))
    progress = GroupProgress("g")
    for positions in ({A0: 1, A1: 1}, {A0: 1, A1: 1}, {A0: 2, A1: 1}):
        await progress.processed(cluster, positions)
    assert committed == [{A0: 1, A1: 1}, {A0: 2}]


async def test_without_a_group_nothing_is_committed(committed: list[dict[TopicPartition, int]]) -> None:
    await GroupProgress(None).processed(Cluster(parse_bootstrap("127.0.0.1:1")), {A0: 1})
    assert committed == []


async def test_a_refusal_is_reported_once_and_the_stream_goes_on(
    committed: list[dict[TopicPartition, int]], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(parse_bootstrap("127.0.0.1:1"))
    progress = GroupProgress("g")
    with caplog.at_level(logging.WARNING):
        await progress.processed(cluster, {A0: 13})
        await progress.processed(cluster, {A0: 13})
    assert [record.message for record in caplog.records] == [
        "progress was not committed to group 'g', its lag is out of date: the group has members"
    ]
    await progress.processed(cluster, {A0: 14})
    assert committed == [{A0: 14}]
