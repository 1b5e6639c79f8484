"""The rules of committing, fetching, deleting and expiring offsets, for one group at a time."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.offsets.commit import COMMIT_BYTES_MAX, Commit, commit_offsets
from martlet.groups.offsets.fetch import fetch_offsets
from martlet.groups.offsets.removal import (
    ExpiryRule,
    TombstoneBudget,
    delete_offsets,
    expired_offsets,
    offsets_of_group,
    offsets_of_topics,
)
from martlet.groups.ports import GroupsOptions
from martlet.groups.records import OffsetCommitted, OffsetRemoved
from martlet.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition
from martlet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from martlet.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics

from .offset_cases import SomeTopics, commit_request, table_of, topic_id

TOPICS = SomeTopics(orders=4, clicks=1)
OPTIONS = GroupsOptions()


def commit(request: OffsetCommitRequest, version: int = 8) -> Commit:
    return commit_offsets(request, version, topics=TOPICS, options=OPTIONS, now_ms=1_000)


def error_of(outcome: Commit) -> int:
    return outcome.response.topics[0].partitions[0].error_code


def test_a_commit_keeps_epoch_and_metadata() -> None:
    outcome = commit(commit_request(epoch=7, metadata="état"))
    assert outcome.records == [OffsetCommitted("g", "orders", 0, 5, 7, "état", 1_000, -1)]
    assert error_of(outcome) == ErrorCode.NONE


def test_missing_metadata_is_stored_as_no_text() -> None:
    assert commit(commit_request(metadata=None)).records[0].metadata == ""


def test_metadata_may_have_so_many_characters_and_no_more() -> None:
    assert error_of(commit(commit_request(metadata="é" * 4_096))) == ErrorCode.NONE
    too_long = commit(commit_request(metadata="é" * 4_097))
    assert error_of(too_long) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert too_long.records == []
    assert too_long.is_worth_asking


def test_unknown_topics_and_partitions_are_refused_one_by_one() -> None:
    request = commit_request(topic="nothing")
    request.topics += commit_request(partition=4).topics + commit_request(partition=-1).topics
    outcome = commit(request)
    assert [topic.partitions[0].error_code for topic in outcome.response.topics] == [3, 3, 3]
    assert outcome.records == []
    assert not outcome.is_worth_asking


def test_from_version_10_topics_are_known_by_id() -> None:
    request = commit_request()
    request.topics[0].name = ""
    outcome = commit(request, version=10)
    assert [record.topic for record in outcome.records] == ["orders"]
    assert outcome.response.topics[0].topic_id == topic_id("orders")
    request.topics[0].topic_id = topic_id("nothing")
    assert error_of(commit(request, version=10)) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_negative_offset_is_stored_as_it_is() -> None:
    assert commit(commit_request(offset=-3)).records[0].offset == -3


@pytest.mark.parametrize(
    ("retention_ms", "expires_at_ms"), [(-1, -1), (0, 1_000), (500, 1_500), (-9_000, 0), (2**63 - 1, 2**63 - 1)]
)
def test_a_client_may_choose_its_retention(retention_ms: int, expires_at_ms: int) -> None:
    assert commit(commit_request(retention_ms=retention_ms)).records[0].expires_at_ms == expires_at_ms


def test_a_commit_that_fits_into_no_batch_is_refused() -> None:
    request = commit_request()
    partition = OffsetCommitRequestPartition(0, 5, -1, "x" * 4_096)
    request.topics[0].partitions = [partition] * (COMMIT_BYTES_MAX // 4_096)
    with pytest.raises(ApiError) as refusal:
        commit(request)
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


# Fetching

TABLE = table_of(
    OffsetCommitted("g", "orders", 1, 11, 4, "note"),
    OffsetCommitted("g", "orders", 0, 10),
    OffsetCommitted("g", "clicks", 0, 20),
    OffsetCommitted("g", "deleted", 0, 30),
)


def fetch(topics: list[OffsetFetchRequestTopics] | None, version: int = 8, group_id: str = "g") -> list[object]:
    asked = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    answer = fetch_offsets(asked, version, require_stable=True, table=TABLE, topics=TOPICS)
    assert (answer.group_id, answer.error_code) == (group_id, 0)
    return [
        (topic.name or topic.topic_id, part.partition_index, part.committed_offset, part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    ]


def test_without_topics_everything_is_fetched_in_order() -> None:
    expected = [("clicks", 0, 20, 0), ("deleted", 0, 30, 0), ("orders", 0, 10, 0), ("orders", 1, 11, 0)]
    assert fetch(None) == expected


def test_a_partition_without_a_commit_has_offset_minus_one() -> None:
    asked = [OffsetFetchRequestTopics("orders", partition_indexes=[1, 2]), OffsetFetchRequestTopics("nothing")]
    asked[1].partition_indexes = [0]
    assert fetch(asked) == [("orders", 1, 11, 0), ("orders", 2, -1, 0), ("nothing", 0, -1, 0)]


def test_a_group_that_does_not_exist_has_no_offsets() -> None:
    assert fetch(None, group_id="other") == []
    assert fetch([OffsetFetchRequestTopics("orders", partition_indexes=[0])], group_id="other") == [
        ("orders", 0, -1, 0)
    ]


def test_epoch_and_metadata_come_back() -> None:
    asked = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("orders", partition_indexes=[1, 3])])
    parts = fetch_offsets(asked, 8, require_stable=False, table=TABLE, topics=TOPICS).topics[0].partitions
    assert [(part.committed_leader_epoch, part.metadata) for part in parts] == [(4, "note"), (-1, "")]


def test_by_id_an_unknown_topic_is_an_error_and_a_deleted_one_is_left_out() -> None:
    asked = [
        OffsetFetchRequestTopics(topic_id=topic_id("orders"), partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=topic_id("nothing"), partition_indexes=[0]),
    ]
    assert fetch(asked, version=10) == [
        (topic_id("orders"), 0, 10, 0),
        (topic_id("nothing"), 0, -1, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    everything = fetch(None, version=10)
    assert everything == [
        (topic_id("clicks"), 0, 20, 0),
        (topic_id("orders"), 0, 10, 0),
        (topic_id("orders"), 1, 11, 0),
    ]


# Deleting


def delete_request(*partitions: tuple[str, int]) -> OffsetDeleteRequest:
    topics = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index)]) for topic, index in partitions]
    return OffsetDeleteRequest("g", topics)


def test_offsets_are_deleted_but_for_subscribed_and_unknown_topics() -> None:
    request = delete_request(("orders", 0), ("orders", 0), ("orders", 3), ("clicks", 0), ("deleted", 0))
    response, records = delete_offsets(
        request, table=TABLE, topics=TOPICS, is_subscribed=lambda topic: topic == "clicks"
    )
    assert [topic.partitions[0].error_code for topic in response.topics] == [0, 0, 0, 86, 3]
    assert records == [OffsetRemoved("g", "orders", 0)]


def test_a_removal_stops_where_its_budget_ends() -> None:
    budget = TombstoneBudget(170)
    assert len(offsets_of_group(TABLE, "g", budget)) == 2
    assert budget.is_spent


def test_offsets_of_a_deleted_topic_go_in_all_groups_but_newer_ones_stay() -> None:
    table = table_of(
        OffsetCommitted("g", "t", 0, 1, committed_at_ms=10),
        OffsetCommitted("h", "t", 0, 1, committed_at_ms=20),
        OffsetCommitted("h", "t", 1, 1, committed_at_ms=21),
        OffsetCommitted("h", "u", 0, 1, committed_at_ms=10),
    )
    removed = list(offsets_of_topics(table, ["t"], until_ms=20, budget=TombstoneBudget()))
    assert removed == [OffsetRemoved("g", "t", 0), OffsetRemoved("h", "t", 0)]


# Expiring

AGING = table_of(
    OffsetCommitted("g", "read", 0, 1, committed_at_ms=0),
    OffsetCommitted("g", "old", 0, 1, committed_at_ms=0),
    OffsetCommitted("g", "old", 1, 1, committed_at_ms=50),
    OffsetCommitted("g", "chosen", 0, 1, committed_at_ms=0, expires_at_ms=400),
)


def expired(rule: ExpiryRule, now_ms: int) -> tuple[set[tuple[str, int]], bool]:
    found = expired_offsets(AGING, "g", rule, retention_ms=100, now_ms=now_ms, budget=TombstoneBudget())
    return {(record.topic, record.partition) for record in found.records}, found.is_all


def test_offsets_of_topics_that_are_read_never_expire() -> None:
    rule = ExpiryRule(lambda topic: topic == "read")
    assert expired(rule, 99) == (set(), False)
    assert expired(rule, 100) == ({("old", 0)}, False)
    assert expired(rule, 150) == ({("old", 0), ("old", 1)}, False)
    assert expired(rule, 400) == ({("old", 0), ("old", 1), ("chosen", 0)}, False)


def test_in_an_empty_group_the_retention_counts_from_the_moment_it_became_empty() -> None:
    rule = ExpiryRule(lambda topic: False, empty_since_ms=200)
    assert expired(rule, 299) == (set(), False)
    assert expired(rule, 300) == ({("read", 0), ("old", 0), ("old", 1)}, False)
    assert expired(rule, 400) == ({("read", 0), ("old", 0), ("old", 1), ("chosen", 0)}, True)
