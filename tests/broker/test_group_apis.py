"""The group APIs over the wire, at old and new versions: what clients see of groups and of a coordinator's life."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from martlet.wire.messages.delete_groups import DeleteGroupsRequest
from martlet.wire.messages.describe_groups import DescribeGroupsRequest
from martlet.wire.messages.find_coordinator import FindCoordinatorRequest
from martlet.wire.messages.list_groups import ListGroupsRequest
from tests.broker.group_requests import (
    commit,
    committed,
    consumer_heartbeat,
    enter,
    fetch_offsets,
    heartbeat,
    join,
    join_request,
    leave,
    sync,
    unique_group,
)
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch_of, create_topic, describe, publish
from tests.broker.scrape import scrape, wait_until

OFFSETS_TOPIC = "__consumer_offsets"
TOO_LONG_NAME = "g" * 5_000


def call_in_thread(address: str, work: Callable[[RawClient], Any]) -> "tuple[threading.Thread, list[Any]]":
    """Work on a connection of its own, for requests that wait."""
    results: list[Any] = []

    def run() -> None:
        with RawClient(address) as client:
            results.append(work(client))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def parked(broker: RunningBroker) -> float:
    return scrape(broker.operations_url)["martlet_parked_group_requests"]


# --- finding the coordinator


@pytest.mark.parametrize("version", range(7))
def test_every_group_has_this_broker_as_coordinator(client: RawClient, broker: RunningBroker, version: int) -> None:
    response = client.call(FindCoordinatorRequest(0, ["g", "h", "g", ""], "g"), version)
    answers = response.coordinators if version >= 4 else [response]
    host, _, port = broker.bootstrap_servers.rpartition(":")
    assert [(each.error_code, each.node_id, each.host, each.port) for each in answers] == [
        (0, 1, host, int(port)) for _ in answers
    ]
    if version >= 4:
        assert [each.key for each in answers] == ["g", "h", ""]
    if version >= 1:
        # As Kafka words it: where there is one message it says so, in a list it stays empty.
        assert {each.error_message for each in answers} == {"" if version >= 4 else "NONE"}


def test_the_offsets_topic_is_made_once_however_many_ask_first(make_broker: Callable[..., RunningBroker]) -> None:
    running = make_broker(offsets_topic_partitions=7)

    def ask(number: int) -> int:
        with RawClient(running.bootstrap_servers) as client:
            code: int = client.call(FindCoordinatorRequest(key=f"group-{number}"), 1).error_code
            return code

    with ThreadPoolExecutor(20) as threads:
        assert set(threads.map(ask, range(20))) == {0}
    with RawClient(running.bootstrap_servers) as client:
        topic = describe(client, OFFSETS_TOPIC)
        assert (topic.is_internal, len(topic.partitions)) == (True, 7)


def test_a_shard_without_records_has_no_log_on_disk(make_broker: Callable[..., RunningBroker], tmp_path: Path) -> None:
    running = make_broker(data=str(tmp_path))
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client)
        assert client.call(FindCoordinatorRequest(key="g"), 1).error_code == ErrorCode.NONE
        assert committed(client, "g", topic) == -1
        assert not list(tmp_path.glob(f"broker-1/{OFFSETS_TOPIC}-*"))
        assert commit(client, "g", topic, {0: 1}) == {0: 0}
        assert len(list(tmp_path.glob(f"broker-1/{OFFSETS_TOPIC}-*"))) == 1


def test_clients_cannot_publish_to_the_offsets_topic(client: RawClient) -> None:
    client.call(FindCoordinatorRequest(key="g"), 1)
    assert publish(client, OFFSETS_TOPIC, batch_of(b"x", key=b"k")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# --- the classic protocol


@pytest.mark.parametrize("version", range(10))
def test_a_member_lives_from_join_to_leave_at_every_version(client: RawClient, version: int) -> None:
    group = unique_group()
    joined = join(client, group, version=version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"metadata")]
    synced = sync(client, group, joined, version=min(version, 5))
    assert (synced.error_code, synced.assignment) == (0, joined.member_id.encode())
    assert heartbeat(client, group, joined, version=min(version, 4)) == ErrorCode.NONE
    assert leave(client, group, joined.member_id, version=min(version, 5)) == ErrorCode.NONE
    assert heartbeat(client, group, joined, version=min(version, 4)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(client, group, joined.member_id, version=min(version, 5)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_member_waits_until_the_first_comes_back(broker: RunningBroker, client: RawClient) -> None:
    group = unique_group()
    first = enter(client, group)
    thread, results = call_in_thread(broker.bootstrap_servers, lambda other: join(other, group))
    wait_until(lambda: heartbeat(client, group, first) == ErrorCode.REBALANCE_IN_PROGRESS, "the rebalance begins")
    assert not results
    again = join(client, group, first.member_id)
    thread.join(10)
    (second,) = results
    assert (again.generation_id, second.generation_id) == (2, 2)
    assert {again.leader, second.leader} == {first.member_id}
    assert len(again.members) == 2
    assert second.members == []
    waiting, synced = call_in_thread(broker.bootstrap_servers, lambda other: sync(other, group, second))
    wait_until(lambda: parked(broker) >= 1, "the follower waits for the leader")
    assert sync(client, group, again).assignment == first.member_id.encode()
    waiting.join(10)
    assert synced[0].assignment == second.member_id.encode()


@pytest.mark.parametrize("version", range(10))
def test_a_refused_join_has_the_layout_of_its_version(client: RawClient, version: int) -> None:
    response = client.call(join_request("", "me"), version)
    assert (response.error_code, response.generation_id, response.member_id) == (ErrorCode.INVALID_GROUP_ID, -1, "me")


def test_a_full_group_takes_no_more_members(make_broker: Callable[..., RunningBroker]) -> None:
    running = make_broker(group_max_size=1, consumer_group_max_size=1)
    with RawClient(running.bootstrap_servers) as client:
        enter(client, "g")
        assert join(client, "g").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        topic = create_topic(client)
        assert consumer_heartbeat(client, "c", "A" * 22, 0, topic).error_code == ErrorCode.NONE
        assert consumer_heartbeat(client, "c", "B" * 22, 0, topic).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


# --- the consumer protocol


@pytest.mark.parametrize("version", [0, 1])
def test_a_member_of_the_consumer_protocol_gets_its_partitions(client: RawClient, version: int) -> None:
    topic, group, member = create_topic(client, 3), unique_group(), "M" * 22
    joined = consumer_heartbeat(client, group, member, 0, topic, version=version)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, member, 1)
    assert joined.assignment is not None
    assert [(each.topic_id, each.partitions) for each in joined.assignment.topic_partitions] == [
        (describe(client, topic).topic_id, [0, 1, 2])
    ]
    (described,) = client.call(ConsumerGroupDescribeRequest([group, group]), version).groups
    assert (described.error_code, described.group_epoch, len(described.members)) == (0, 1, 1)
    assert commit(client, group, topic, {0: 5}, version=9, member=(member, 1)) == {0: 0}
    assert commit(client, group, topic, {0: 6}, version=9, member=(member, 7)) == {0: ErrorCode.STALE_MEMBER_EPOCH}
    assert consumer_heartbeat(client, group, member, -1, version=version).member_epoch == -1
    assert committed(client, group, topic) == 5


def test_a_refused_consumer_heartbeat_says_why(client: RawClient) -> None:
    response = consumer_heartbeat(client, unique_group(), "M" * 22, 5)
    assert response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert response.error_message
    (described,) = client.call(ConsumerGroupDescribeRequest(["no-such-group"]), 0).groups
    assert (described.error_code, described.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, "no-such-group")


# --- groups as a whole


@pytest.mark.parametrize("version", range(7))
def test_groups_can_be_described(client: RawClient, version: int) -> None:
    group = unique_group()
    joined = enter(client, group)
    found, missing = client.call(DescribeGroupsRequest([group, "no-such-group", group]), version).groups
    assert (found.error_code, found.group_state, found.protocol_type, found.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    assert [(each.member_id, each.client_id, each.client_host) for each in found.members] == [
        (joined.member_id, "raw", "/127.0.0.1")
    ]
    assert found.authorized_operations == -2147483648
    expected = (0, "Dead") if version < 6 else (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert (missing.error_code, missing.group_state) == expected


@pytest.mark.parametrize("version", range(6))
def test_groups_can_be_listed_and_filtered(client: RawClient, version: int) -> None:
    topic, stable, simple, consumer = create_topic(client), unique_group(), unique_group(), unique_group()
    enter(client, stable)
    commit(client, simple, topic, {0: 1})
    consumer_heartbeat(client, consumer, "M" * 22, 0, topic)

    def listed(states: list[str], types: list[str]) -> set[str]:
        response = client.call(ListGroupsRequest(states, types), version)
        assert response.error_code == ErrorCode.NONE
        return {group.group_id for group in response.groups} & {stable, simple, consumer}

    assert listed([], []) == {stable, simple, consumer}
    if version >= 4:
        assert listed(["empty"], []) == {simple}
        assert listed(["NoSuchState"], []) == set()
        many = [f"state-{number}" for number in range(10_000)]
        assert (listed(many, []), listed([*many, "EMPTY"], [])) == (set(), {simple})
    if version >= 5:
        assert listed([], ["Consumer"]) == {consumer}


@pytest.mark.parametrize("version", range(3))
def test_only_groups_without_members_can_be_deleted(client: RawClient, version: int) -> None:
    topic, busy, simple = create_topic(client), unique_group(), unique_group()
    enter(client, busy)
    commit(client, simple, topic, {0: 1})
    names = [busy, simple, "no-such-group", simple]
    results = client.call(DeleteGroupsRequest(names), version).results
    assert {result.group_id: result.error_code for result in results} == {
        busy: ErrorCode.NON_EMPTY_GROUP,
        simple: ErrorCode.NONE,
        "no-such-group": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert committed(client, simple, topic) == -1


@pytest.mark.parametrize("group", ["", "\x00", "../../etc", "\n\x1b[31m", "grüße", "\U0001f600" * 100, TOO_LONG_NAME])
def test_hostile_group_names_get_an_answer_from_every_api(client: RawClient, group: str) -> None:
    topic = create_topic(client)
    ok = (0, int(ErrorCode.INVALID_GROUP_ID), int(ErrorCode.GROUP_ID_NOT_FOUND))
    assert join(client, group).error_code in ok
    (code,) = commit(client, group, topic, {0: 1}).values()
    assert code in (*ok, int(ErrorCode.UNKNOWN_MEMBER_ID))
    assert fetch_offsets(client, group, topic, 0)[0] in ok
    assert client.call(DescribeGroupsRequest([group]), 5).groups[0].error_code in ok
    assert client.call(ConsumerGroupDescribeRequest([group]), 0).groups[0].error_code in ok
    deleted = client.call(DeleteGroupsRequest([group]), 2).results[0].error_code
    assert deleted in (*ok, ErrorCode.NON_EMPTY_GROUP)
    assert client.call(ListGroupsRequest(), 5).error_code == ErrorCode.NONE
    refused = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_REQUEST)
    assert consumer_heartbeat(client, group, "M" * 22, 3).error_code in refused


# --- starting and stopping


def test_a_restart_keeps_offsets_members_and_generation(make_broker: Callable[..., RunningBroker]) -> None:
    running = make_broker()
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client, 2)
        joined = enter(client, "g")
        assert commit(client, "g", topic, {1: 42}, member=(joined.member_id, joined.generation_id)) == {1: 0}
        consumer_heartbeat(client, "c", "M" * 22, 0, topic)
    running.restart()
    with RawClient(running.bootstrap_servers) as client:
        wait_until(lambda: client.call(ListGroupsRequest(), 4).error_code == 0, "everything is loaded")
        assert heartbeat(client, "g", joined) == ErrorCode.NONE
        assert committed(client, "g", topic, 1) == 42
        again = join(client, "g", joined.member_id)
        assert (again.error_code, again.generation_id) == (0, joined.generation_id + 1)
        assert consumer_heartbeat(client, "c", "M" * 22, 1).error_code == ErrorCode.NONE


def test_while_a_shard_is_loaded_its_groups_get_an_error_and_the_rest_is_served(
    make_broker: Callable[..., RunningBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    from martlet.broker.coordinators import shard_loading

    running = make_broker(offsets_topic_partitions=1)
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client)
        commit(client, "g", topic, {0: 5})
        member = enter(client, "with a member")
    may_load = threading.Event()
    read = shard_loading._read

    def read_late(*arguments: Any) -> Any:
        assert may_load.wait(20)
        return read(*arguments)

    monkeypatch.setattr(shard_loading, "_read", read_late)
    running.restart()
    with RawClient(running.bootstrap_servers) as client:
        assert client.call(FindCoordinatorRequest(key="g"), 1).error_code == ErrorCode.NONE
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert fetch_offsets(client, "g", topic, 0)[0] == loading
        assert join(client, "g").error_code == loading
        assert commit(client, "g", topic, {0: 6}) == {0: loading}
        assert client.call(ListGroupsRequest(), 4).error_code == loading
        assert heartbeat(client, "with a member", member) == ErrorCode.NONE, "as in Kafka"
        assert publish(client, topic, batch_of(b"x")).error_code == ErrorCode.NONE
        may_load.set()
        wait_until(lambda: fetch_offsets(client, "g", topic, 0)[0] == ErrorCode.NONE, "the shard is loaded")
        assert committed(client, "g", topic) == 5
        assert scrape(running.operations_url)["martlet_coordinator_load_seconds_count"] >= 1


def test_a_stop_does_not_wait_for_members_that_wait_for_each_other(make_broker: Callable[..., RunningBroker]) -> None:
    running = make_broker()
    with RawClient(running.bootstrap_servers) as client:
        enter(client, "g")
        thread, results = call_in_thread(running.bootstrap_servers, lambda other: join(other, "g"))
        wait_until(lambda: parked(running) == 1, "the second member waits")
        started = time.monotonic()
        running.stop()
        assert time.monotonic() - started < 2.0, "it must not take shutdown_timeout_ms"
        thread.join(10)
        assert [response.error_code for response in results] == [ErrorCode.NOT_COORDINATOR]


def test_groups_members_lag_commits_and_rebalances_are_counted(make_broker: Callable[..., RunningBroker]) -> None:
    running = make_broker(group_lag_interval_ms=20)
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client)
        enter(client, "g")
        publish(client, topic, batch_of(b"x", b"y", b"z"))
        commit(client, "simple", topic, {0: 1})
        consumer_heartbeat(client, "c", "M" * 22, 0, topic)
        lag = f'martlet_group_lag_messages{{group="simple",topic="{topic}"}}'
        wait_until(lambda: scrape(running.operations_url).get(lag) == 2, "the lag is found out")
        samples = scrape(running.operations_url)
        assert samples['martlet_groups{state="Stable",type="classic"}'] == 1
        assert samples['martlet_groups{state="Empty",type="classic"}'] == 1
        assert samples['martlet_groups{state="Stable",type="consumer"}'] == 1
        assert samples['martlet_group_members{group="g"}'] == 1
        assert samples["martlet_group_rebalances_total"] == 2
        assert samples["martlet_offset_commits_total"] == 1
