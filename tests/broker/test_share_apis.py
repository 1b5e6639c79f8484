"""The share protocol over the wire: sessions and epochs, leases and what is said of them, waiting, and leaving."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from martlet.base.errors import ErrorCode
from martlet.base.ids import format_topic_id
from martlet.testing.running_broker import RunningBroker
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages import share_fetch
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from martlet.wire.messages.delete_groups import DeleteGroupsRequest
from martlet.wire.messages.find_coordinator import FindCoordinatorRequest
from martlet.wire.messages.list_groups import ListGroupsRequest
from martlet.wire.messages.share_group_describe import ShareGroupDescribeRequest
from tests.broker.group_requests import unique_group
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, describe, publish_values
from tests.broker.scrape import scrape, wait_until
from tests.broker.share_member import ShareMember, runs, set_group, set_subscription, values

Make = Callable[..., ShareMember]
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Stage:
    """A topic and a share group that begins at its first message."""

    def __init__(self, client: RawClient, servers: str) -> None:
        self.client, self.servers = client, servers
        self.topic, self.group = create_topic(client), unique_group()
        self.topic_id = describe(client, self.topic).topic_id
        set_group(client, self.group, share__auto__offset__reset="earliest")
        self.members: list[ShareMember] = []

    def publish(self, *texts: str) -> None:
        publish_values(self.client, self.topic, *(text.encode() for text in texts))

    def member(self, **words: Any) -> ShareMember:
        self.members.append(ShareMember(self.servers, self.group, self.topic, self.topic_id, **words))
        return self.members[-1]


@pytest.fixture
def stage(client: RawClient, broker: RunningBroker) -> Iterator[Stage]:
    made = Stage(client, broker.bootstrap_servers)
    yield made
    for member in made.members:
        member.client.close()


def eventually(member: ShareMember, **words: Any) -> share_fetch.PartitionData:
    """What a member gets as soon as something has come back."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        data = member.fetch(wait_ms=500, **words)
        if data.acquired_records:
            return data
    raise AssertionError("nothing came back")


# --- groups


@pytest.mark.parametrize("version", [1, 2])
def test_messages_are_leased_to_one_member_and_gone_when_accepted(stage: Stage, version: int) -> None:
    stage.publish("a", "b", "c")
    ann, bob = stage.member(version=version), stage.member(version=version)
    got = ann.fetch()
    assert (runs(got), values(got)) == ([(0, 2, 1)], [b"a", b"b", b"c"])
    assert runs(bob.fetch(wait_ms=0)) == []
    assert ann.acknowledge((0, 2, [ACCEPT])) is ErrorCode.NONE
    stage.publish("d")
    assert runs(eventually(bob)) == [(3, 3, 1)]


def test_a_share_group_is_listed_described_and_deleted_as_such(stage: Stage) -> None:
    ann = stage.member()
    listed = stage.client.call(ListGroupsRequest(types_filter=["share"]), 5).groups
    assert (stage.group, "share", "Stable", "share") in [
        (one.group_id, one.protocol_type, one.group_state, one.group_type) for one in listed
    ]
    (described,) = stage.client.call(ShareGroupDescribeRequest([stage.group]), 1).groups
    (member,) = described.members
    assert (described.group_state, described.assignor_name, member.member_id) == ("Stable", "simple", ann.id)
    assert [part.partitions for part in member.assignment.topic_partitions] == [[0]]
    deletion = DeleteGroupsRequest([stage.group])
    assert stage.client.call(deletion, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert ann.beat(-1).error_code == ErrorCode.NONE
    assert stage.client.call(deletion, 2).results[0].error_code == ErrorCode.NONE
    assert stage.client.call(deletion, 2).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_another_kind_is_not_found(stage: Stage) -> None:
    stage.member()
    request = ConsumerGroupHeartbeatRequest(
        stage.group, "m", 0, rebalance_timeout_ms=1000, subscribed_topic_names=[stage.topic], topic_partitions=[]
    )
    assert stage.client.call(request, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_what_a_group_sets_itself_holds_for_its_members(stage: Stage) -> None:
    set_group(stage.client, stage.group, share__heartbeat__interval__ms="7000")
    set_group(stage.client, stage.group, share__record__lock__duration__ms="20000")
    ann = stage.member()
    assert ann.beat(ann.member_epoch).heartbeat_interval_ms == 7_000
    assert ann.fetch_answer().acquisition_lock_timeout_ms == 20_000


def test_the_state_of_a_group_is_where_the_partition_is_led(stage: Stage) -> None:
    key = f"{stage.group}:{format_topic_id(stage.topic_id)}:0"
    found = stage.client.call(FindCoordinatorRequest(coordinator_keys=[key, "nonsense"], key_type=2), 6).coordinators
    assert [(one.error_code, one.node_id) for one in found] == [(0, 1), (ErrorCode.INVALID_REQUEST, -1)]


# --- what is said of messages


def test_released_messages_come_back_and_rejected_ones_do_not(stage: Stage) -> None:
    stage.publish("a", "b", "c", "d")
    ann = stage.member()
    assert runs(ann.fetch()) == [(0, 3, 1)]
    data = ann.fetch((0, 3, [ACCEPT, RELEASE, REJECT, RELEASE]))
    assert data.acknowledge_error_code == 0
    assert runs(data) == [(1, 1, 2), (3, 3, 2)], "what was said frees it for the same fetch"
    assert values(data) == [b"b", b"d"], "batches are cut to what is leased"


def test_a_message_is_given_up_after_its_last_delivery(stage: Stage) -> None:
    set_group(stage.client, stage.group, share__delivery__count__limit="2")
    stage.publish("poison")
    ann = stage.member()
    assert runs(ann.fetch()) == [(0, 0, 1)]
    assert runs(ann.fetch((0, 0, [RELEASE]))) == [(0, 0, 2)]
    assert runs(ann.fetch((0, 0, [RELEASE]), wait_ms=200)) == []


def test_leases_are_renewed_by_requests_that_fetch_nothing(stage: Stage) -> None:
    stage.publish("a")
    ann = stage.member()
    ann.fetch()
    assert ann.acknowledge((0, 0, [RENEW])) is ErrorCode.INVALID_REQUEST, "it has to be announced"
    assert ann.acknowledge((0, 0, [RENEW]), renews=True) is ErrorCode.NONE
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
    assert ann.fetch((0, 0, [RENEW]), is_renew_ack=True, **nothing).acknowledge_error_code == 0
    assert ann.fetch_answer((0, 0, [RENEW]), is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        ((0, 1, [ACCEPT]), ErrorCode.INVALID_REQUEST),  # of which not all were delivered
        ((0, 0, [9]), ErrorCode.INVALID_REQUEST),
        ((0, 0, [ACCEPT, ACCEPT]), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_no_member_may_say_is_refused_for_its_partition(stage: Stage, batch: Any, code: ErrorCode) -> None:
    stage.publish("a", "b")
    ann = stage.member()
    assert runs(ann.fetch(count=1)) == [(0, 0, 1)]
    assert ann.acknowledge(batch) is code
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE, "nothing of the refused was applied"
    assert ann.acknowledge((0, 0, [ACCEPT])) in (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE)


def test_nobody_settles_what_another_member_has(stage: Stage) -> None:
    stage.publish("a")
    ann, bob = stage.member(), stage.member()
    assert runs(ann.fetch()) == [(0, 0, 1)]
    bob.fetch(wait_ms=0)
    assert bob.acknowledge((0, 0, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


def test_at_most_so_many_messages_are_leased_as_are_wanted(stage: Stage) -> None:
    stage.publish(*"abcdefgh")
    ann = stage.member()
    assert runs(ann.fetch(count=3)) == [(0, 2, 1)]
    data = ann.fetch(count=2)
    assert (runs(data), values(data)) == ([(3, 4, 1)], [b"d", b"e"])


def test_a_lease_that_is_over_comes_back_and_wakes_a_waiting_fetch(stage: Stage) -> None:
    stage.publish("a")
    ann, bob = stage.member(), stage.member()
    set_subscription(stage.client, stage.group, lease__ms="1000")
    assert runs(ann.fetch()) == [(0, 0, 1)]
    started = time.monotonic()
    assert runs(bob.fetch(wait_ms=10_000)) == [(0, 0, 2)]
    assert time.monotonic() - started < 8
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


# --- sessions


def test_a_session_is_opened_kept_in_step_and_closed(stage: Stage) -> None:
    ann = stage.member()
    assert ann.acknowledge_answer(epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert ann.acknowledge_answer(epoch=5).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert ann.fetch_answer((0, 0, [ACCEPT])).error_code == ErrorCode.INVALID_REQUEST, "nothing is leased yet"
    first = ann.fetch_answer()
    assert [part.partition_index for topic in first.responses for part in topic.partitions] == [0], "it is new"
    assert ann.fetch_answer(topics=[]).responses == []
    assert ann.fetch_answer(share_session_epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert ann.acknowledge_answer(epoch=-1).error_code == ErrorCode.NONE
    assert ann.acknowledge_answer(epoch=2).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_partitions_stay_in_a_session_until_they_are_forgotten(stage: Stage) -> None:
    stage.publish("a", "b")
    ann = stage.member()
    assert runs(ann.fetch(count=1)) == [(0, 0, 1)]
    again = ann.fetch_answer(topics=[], count=1)
    assert runs(again.responses[0].partitions[0]) == [(1, 1, 1)]
    stage.publish("c")
    forgotten = [share_fetch.ForgottenTopic(stage.topic_id, [0])]
    assert ann.fetch_answer(topics=[], forgotten_topics_data=forgotten).responses == []
    assert ann.fetch_answer(topics=[]).responses == []


def test_a_closed_session_gives_back_what_it_had_as_never_delivered(stage: Stage) -> None:
    stage.publish("a", "b")
    ann, bob = stage.member(), stage.member()
    assert runs(ann.fetch()) == [(0, 1, 1)]
    assert ann.acknowledge((0, 0, [ACCEPT]), epoch=-1) is ErrorCode.NONE
    assert runs(eventually(bob)) == [(1, 1, 1)]


def test_a_lost_connection_gives_back_what_it_had_as_a_failed_attempt(stage: Stage) -> None:
    stage.publish("a", "b")
    ann, bob = stage.member(), stage.member()
    assert runs(ann.fetch()) == [(0, 1, 1)]
    ann.client.close()
    assert runs(eventually(bob)) == [(0, 1, 2)]


def test_requests_without_a_group_or_a_member_are_refused(stage: Stage) -> None:
    ann = stage.member()
    ann.id = ""
    assert ann.fetch_answer().error_code == ErrorCode.INVALID_REQUEST
    ann.id, ann.group = "m", ""
    assert ann.acknowledge_answer(epoch=1).error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_that_does_not_exist_is_an_error_of_its_partition(stage: Stage) -> None:
    ann = stage.member()
    ann.topic_id = bytes(range(16))
    assert ann.fetch(wait_ms=5_000).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert ann.acknowledge((0, 0, [ACCEPT])) is ErrorCode.UNKNOWN_TOPIC_ID


# --- waiting


def test_a_fetch_waits_for_a_message_and_no_longer(stage: Stage, broker: RunningBroker) -> None:
    ann = stage.member()
    ann.fetch(wait_ms=0)
    key, version = 78, 2

    started = time.monotonic()
    ann.client.send(key, version, encode(ann.fetch_request(wait_ms=10_000), version))
    wait_until(lambda: scrape(broker.operations_url)["martlet_parked_fetches"] > 0, "the fetch waits")
    stage.publish("a")
    _, body = ann.client.receive(key, version)
    answer = decode(share_fetch.ShareFetchResponse, version, body)
    assert values(answer.responses[0].partitions[0]) == [b"a"]
    assert time.monotonic() - started < 8


def test_a_waiting_fetch_hears_at_once_of_what_another_member_gives_back(stage: Stage) -> None:
    stage.publish("a")
    ann, bob = stage.member(), stage.member()
    ann.fetch()
    found: list[share_fetch.PartitionData] = []
    waiting = threading.Thread(target=lambda: found.append(bob.fetch(wait_ms=10_000)))
    started = time.monotonic()
    waiting.start()
    time.sleep(0.2)
    assert ann.acknowledge((0, 0, [RELEASE])) is ErrorCode.NONE
    waiting.join(9)
    assert [runs(data) for data in found] == [[(0, 0, 2)]]
    assert time.monotonic() - started < 5


def test_what_comes_is_shared_out_among_the_members_that_wait(stage: Stage, broker: RunningBroker) -> None:
    members = [stage.member() for _ in range(4)]
    for member in members:
        member.fetch(wait_ms=0)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(member.fetch, wait_ms=10_000) for member in members]
        wait_until(lambda: scrape(broker.operations_url)["martlet_parked_fetches"] >= 4, "all of them wait")
        stage.publish(*"abcdefgh")
        taken = [len(values(one.result())) for one in found]
    assert taken == [2, 2, 2, 2]


def test_a_member_that_has_left_may_still_close_its_session(stage: Stage) -> None:
    stage.publish("a", "b")
    ann, bob = stage.member(), stage.member()
    assert runs(ann.fetch()) == [(0, 1, 1)]
    assert ann.beat(-1).error_code == ErrorCode.NONE
    assert ann.acknowledge((0, 0, [ACCEPT]), epoch=-1) is ErrorCode.NONE
    assert runs(eventually(bob)) == [(1, 1, 1)]


def test_a_member_that_has_left_and_is_silent_gives_back_what_it_had(stage: Stage) -> None:
    stage.publish("a")
    ann, bob = stage.member(), stage.member()
    ann.fetch()
    ann.beat(-1)
    assert runs(bob.fetch(wait_ms=12_000)) == [(0, 0, 2)]


def test_an_empty_answer_comes_when_the_wait_is_over(stage: Stage) -> None:
    ann = stage.member()
    started = time.monotonic()
    assert runs(ann.fetch(wait_ms=300)) == []
    assert 0.25 < time.monotonic() - started < 5
