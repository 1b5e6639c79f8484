"""The offset APIs over the wire, at every version: where answers and errors stand, and what becomes of offsets."""

from collections.abc import Callable

import pytest

from martlet.base.errors import ErrorCode
from martlet.broker.coordinators.hosted_shard import HostedShard
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from martlet.wire.messages.list_groups import ListGroupsRequest
from martlet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from martlet.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.group_requests import commit, committed, enter, fetch_offsets, unique_group
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, describe, fetch_one, list_offset
from tests.broker.scrape import wait_until

TOO_LONG_NAME = "g" * 5_000


def ids_of(client: RawClient, topic: str) -> bytes:
    return describe(client, topic).topic_id


def delete_topic(client: RawClient, topic: str) -> None:
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], topic_names=[topic], timeout_ms=1000)
    assert client.call(delete, 6).responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_can_be_committed_at_every_version(client: RawClient, version: int) -> None:
    topic, group = create_topic(client, 3), unique_group()
    named = ids_of(client, topic) if version >= 10 else topic
    expected = {0: 0, 2: 0, 9: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    assert commit(client, group, named, {0: 10, 2: 30, 9: 1}, version=version) == expected
    _, found = fetch_offsets(client, group, topic, 0, 1, 2)
    assert [found[index].committed_offset for index in range(3)] == [10, -1, 30]
    assert found[0].metadata == "note"
    assert found[0].committed_leader_epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_can_be_fetched_at_every_version(client: RawClient, version: int) -> None:
    topic, group = create_topic(client, 3), unique_group()
    commit(client, group, topic, {0: 10, 2: 30})
    named = ids_of(client, topic) if version >= 10 else topic
    code, found = fetch_offsets(client, group, named, 0, 1, 2, 2, 0, version=version)
    assert code == 0
    assert [(index, one.committed_offset, one.error_code) for index, one in found.items()] == [
        (0, 10, 0),
        (1, -1, 0),
        (2, 30, 0),
    ]
    assert found[0].committed_leader_epoch == (3 if version >= 5 else -1)


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group_can_be_fetched(client: RawClient, version: int) -> None:
    topics, group = [create_topic(client), create_topic(client)], unique_group()
    for topic in topics:
        commit(client, group, topic, {0: 7})
    request = OffsetFetchRequest(group, None, [OffsetFetchRequestGroup(group, topics=None)])
    response = client.call(request, version)
    answer = response.groups[0] if version >= 8 else response
    names = {found.name or found.topic_id for found in answer.topics}
    assert names == {ids_of(client, topic) if version >= 10 else topic for topic in topics}
    assert {one.committed_offset for found in answer.topics for one in found.partitions} == {7}


@pytest.mark.parametrize("version", range(1, 11))
def test_what_is_wrong_with_the_group_stands_where_the_version_has_a_place(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    named = ids_of(client, topic) if version >= 10 else topic
    code, found = fetch_offsets(client, TOO_LONG_NAME, named, 0, 1, version=version)
    if version >= 2:
        assert (code, found) == (ErrorCode.INVALID_GROUP_ID, {})
    else:
        refused = [(one.committed_offset, one.error_code) for one in found.values()]
        assert refused == [(-1, ErrorCode.INVALID_GROUP_ID)] * 2


def test_a_group_named_twice_in_one_request_is_not_answered_twice(client: RawClient) -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)] * 2)
    assert {answer.error_code for answer in client.call(request, 8).groups} == {ErrorCode.INVALID_REQUEST}


def test_commits_to_what_does_not_exist_are_refused_each_for_itself(client: RawClient) -> None:
    group = unique_group()
    assert commit(client, group, "never-created", {0: 1}) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert commit(client, group, b"\x07" * 16, {0: 1}, version=10) == {0: ErrorCode.UNKNOWN_TOPIC_ID}
    code, found = fetch_offsets(client, group, b"\x07" * 16, 0, version=10)
    assert (code, found[0].error_code) == (0, ErrorCode.UNKNOWN_TOPIC_ID)


def test_a_refusal_by_the_group_stands_in_every_partition(client: RawClient) -> None:
    topic, group = create_topic(client, 2), unique_group()
    joined = enter(client, group)
    wrong = commit(client, group, topic, {0: 1, 1: 1}, member=(joined.member_id, 99))
    assert wrong == dict.fromkeys((0, 1), int(ErrorCode.ILLEGAL_GENERATION))
    assert commit(client, group, topic, {0: 1}, note="x" * 5_000, member=(joined.member_id, 1)) == {
        0: ErrorCode.OFFSET_METADATA_TOO_LARGE
    }


def test_thousands_of_partitions_are_committed_and_fetched_in_parts(client: RawClient) -> None:
    topic, group = create_topic(client, 5_000), unique_group()
    assert set(commit(client, group, topic, {index: index for index in range(5_000)}).values()) == {0}
    for version in (7, 8):
        _, found = fetch_offsets(client, group, topic, *range(5_000), version=version)
        assert {index: one.committed_offset for index, one in found.items()} == {index: index for index in range(5_000)}


def test_offsets_can_be_deleted(client: RawClient) -> None:
    topic, group = create_topic(client), unique_group()
    commit(client, group, topic, {0: 5})
    asked = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])]
    response = client.call(OffsetDeleteRequest(group, asked), 0)
    assert (response.error_code, response.topics[0].partitions[0].error_code) == (0, 0)
    assert committed(client, group, topic) == -1
    assert client.call(OffsetDeleteRequest("no-such-group", asked), 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deleted_topic_takes_its_offsets_with_it(client: RawClient) -> None:
    topic, group = create_topic(client), unique_group()
    commit(client, group, topic, {0: 5})
    delete_topic(client, topic)
    create_topic(client, name=topic)
    assert committed(client, group, topic) == -1


def test_offsets_of_a_topic_deleted_just_before_a_crash_go_at_the_next_start(
    make_broker: Callable[..., RunningBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make_broker()
    with RawClient(running.bootstrap_servers) as client:
        topic, other = create_topic(client), create_topic(client)
        commit(client, "g", topic, {0: 5})
        commit(client, "g", other, {0: 6})
        # As if the broker had died between the deletion and what follows from it.
        monkeypatch.setattr(HostedShard, "topics_changed", lambda self, changed, deleted: None)
        delete_topic(client, topic)
        assert committed(client, "g", topic) == 5
        monkeypatch.undo()
    running.restart()
    with RawClient(running.bootstrap_servers) as client:
        wait_until(lambda: client.call(ListGroupsRequest(), 4).error_code == 0, "everything is loaded")
        create_topic(client, name=topic)
        assert committed(client, "g", topic) == -1
        assert committed(client, "g", other) == 6


def _list_offset(client: RawClient, partition: int) -> int:
    return list_offset(client, CONSUMER_OFFSETS_TOPIC, -1, partition=partition).error_code


def _fetch(client: RawClient, partition: int) -> int:
    return fetch_one(client, CONSUMER_OFFSETS_TOPIC, partition=partition).error_code


@pytest.mark.parametrize("read", [_list_offset, _fetch])
def test_every_group_keeps_its_coordinator_while_the_offsets_topic_is_read(
    make_broker: Callable[..., RunningBroker], read: Callable[[RawClient, int], int]
) -> None:
    with RawClient(make_broker().bootstrap_servers) as client:
        topic = create_topic(client)
        commit(client, "before", topic, {0: 7})
        partitions = range(len(describe(client, CONSUMER_OFFSETS_TOPIC).partitions))
        assert {read(client, partition) for partition in partitions} == {0}
        groups = [f"group-{number}" for number in range(60)]
        for number, group in enumerate(groups):
            assert commit(client, group, topic, {0: number}) == {0: 0}, group
        assert {read(client, partition) for partition in partitions} == {0}
        assert [committed(client, group, topic) for group in groups] == list(range(60))
        assert committed(client, "before", topic) == 7
