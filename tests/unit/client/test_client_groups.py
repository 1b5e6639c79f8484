"""Groups through the client: the coordinator is found, asked, and looked up again when it has moved."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.groups import CommittedOffset, Groups
from martlet.wire import message_codec
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from martlet.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from martlet.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from martlet.wire.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tests.unit.client.fake_broker import HANG_UP, FakeBroker, FakeCluster, Reply, client_of
from tests.unit.client.fake_groups import FakeGroup, FakeGroups, FakeMember

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as started:
        yield started


@pytest.fixture
def groups(broker: FakeBroker) -> FakeGroups:
    return FakeGroups(broker)


def first_then_usual(broker: FakeBroker, key: ApiKey, *first: Any) -> None:
    """Give these answers before the ones that are scripted now."""
    waiting, usual = list(first), broker.scripts[key]

    def script(request: object, version: int) -> Any:
        if not waiting:
            return usual(request, version)
        response = waiting.pop(0)
        reply: Reply = HANG_UP if response is HANG_UP else message_codec.encode(response, version)
        return reply

    broker.scripts[key] = script


async def test_groups_of_every_broker_are_listed_once_and_sorted() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as one, FakeBroker(shared, 2) as two, client_of(one) as cluster:
        at_one, at_two = FakeGroups(one), FakeGroups(two)
        at_one.groups = {"b": FakeGroup(state="Stable"), "c": FakeGroup(type="consumer")}
        at_two.groups = {"a": FakeGroup(), "b": FakeGroup(state="Stable")}
        listings = await Groups(cluster).listings()
    assert [(listing.group_id, listing.coordinator) for listing in listings] == [("a", 2), ("b", 2), ("c", 1)]
    assert (listings[2].type, listings[2].state, listings[2].protocol_type) == ("consumer", "Empty", "consumer")


async def test_filters_hold_even_where_the_broker_ignores_them(broker: FakeBroker, groups: FakeGroups) -> None:
    everything = [ListedGroup("a", "", "Stable", "classic"), ListedGroup("b", "", "Empty", "consumer")]
    broker.scripts[ApiKey.LIST_GROUPS] = lambda _request, version: message_codec.encode(
        ListGroupsResponse(groups=everything), version
    )
    async with client_of(broker) as cluster:
        stable = await Groups(cluster).listings(states=["stable"])
        consumer = await Groups(cluster).listings(types=["consumer"])
    assert [listing.group_id for listing in stable] == ["a"]
    assert [listing.group_id for listing in consumer] == ["b"]
    assert broker.asked(ApiKey.LIST_GROUPS)[0].states_filter == ["stable"]
    assert broker.asked(ApiKey.LIST_GROUPS)[1].types_filter == ["consumer"]


async def test_a_list_that_is_not_ready_is_asked_for_again(broker: FakeBroker, groups: FakeGroups) -> None:
    groups.groups["a"] = FakeGroup()
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    first_then_usual(broker, ApiKey.LIST_GROUPS, loading, loading)
    async with client_of(broker) as cluster:
        assert [listing.group_id for listing in await Groups(cluster).listings()] == ["a"]


async def test_a_consumer_group_is_described(broker: FakeBroker, groups: FakeGroups) -> None:
    member = FakeMember("m", "client", {"t": (1, 0)}, instance_id="i")
    groups.groups["g"] = FakeGroup("consumer", "Stable", [member])
    async with client_of(broker) as cluster:
        found = await Groups(cluster).describe("g")
    assert (found.type, found.state, found.assignor, found.coordinator) == ("consumer", "Stable", "uniform", 1)
    assert (found.epoch, found.assignment_epoch) == (7, 6)
    [only] = found.members
    assert (only.member_id, only.instance_id, only.client_id, only.client_host) == ("m", "i", "client", "10.0.0.1")
    assert (only.epoch, only.topics, only.assigned, only.target) == (5, ("t",), (T0, T1), (T0, T1))
    assert found.owners() == {T0: only, T1: only}


@pytest.mark.parametrize("offers_consumer_groups", [True, False])
async def test_a_classic_group_is_described(
    broker: FakeBroker, groups: FakeGroups, offers_consumer_groups: bool
) -> None:
    groups.groups["g"] = FakeGroup("classic", "Stable", [FakeMember("m", "client", {"t": (0, 1)})])
    if not offers_consumer_groups:
        del broker.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
    async with client_of(broker) as cluster:
        found = await Groups(cluster).describe("g")
    assert (found.type, found.state, found.assignor, found.epoch) == ("classic", "Stable", "range", None)
    [only] = found.members
    assert (only.topics, only.assigned, only.target, only.epoch) == (("t",), (T0, T1), None, None)


async def test_the_group_without_a_name_is_described_though_no_consumer_group_can_be_called_so(
    broker: FakeBroker, groups: FakeGroups
) -> None:
    groups.groups[""] = FakeGroup()
    async with client_of(broker) as cluster:
        assert (await Groups(cluster).describe("")).state == "Empty"


@pytest.mark.parametrize("newest_version", [5, 6])
async def test_a_group_that_does_not_exist_is_said_to_be_missing(
    broker: FakeBroker, groups: FakeGroups, newest_version: int
) -> None:
    broker.versions[ApiKey.DESCRIBE_GROUPS] = (0, newest_version)
    async with client_of(broker) as cluster:
        with pytest.raises(ApiError, match="there is no group 'g'") as caught:
            await Groups(cluster).describe("g")
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("newest_version", [2, 7, 8, 10])
async def test_committed_offsets_are_read_in_old_and_new_versions(
    broker: FakeBroker, groups: FakeGroups, newest_version: int
) -> None:
    broker.versions[ApiKey.OFFSET_FETCH] = (1, newest_version)
    groups.groups["g"] = FakeGroup(offsets={T1: 7, TopicPartition("s", 3): 4})
    async with client_of(broker) as cluster:
        everything = await Groups(cluster).committed("g")
        some = await Groups(cluster).committed("g", [T0, T1])
        nothing = await Groups(cluster).committed("other")
    assert list(everything.items()) == [(TopicPartition("s", 3), CommittedOffset(4)), (T1, CommittedOffset(7))]
    assert some == {T1: CommittedOffset(7)}
    assert nothing == {}


async def test_offsets_are_committed_from_outside_the_group(broker: FakeBroker, groups: FakeGroups) -> None:
    async with client_of(broker) as cluster:
        await Groups(cluster).commit("g", {T0: 5, T1: 6})
    assert groups.groups["g"].offsets == {T0: 5, T1: 6}
    [request] = broker.asked(ApiKey.OFFSET_COMMIT)
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")


async def test_a_refused_commit_names_the_group_and_the_partition(broker: FakeBroker, groups: FakeGroups) -> None:
    groups.groups["g"] = FakeGroup(members=[FakeMember("m", "client")])
    async with client_of(broker) as cluster:
        with pytest.raises(ApiError, match="group 'g': t-0 was not committed") as caught:
            await Groups(cluster).commit("g", {T0: 5})
    assert caught.value.code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_commit_that_is_not_answered_for_is_not_taken_for_done(broker: FakeBroker, groups: FakeGroups) -> None:
    broker.scripts[ApiKey.OFFSET_COMMIT] = lambda _request, version: message_codec.encode(
        OffsetCommitResponse(), version
    )
    async with client_of(broker) as cluster:
        with pytest.raises(ApiError, match="does not say whether t-0, t-1 was committed"):
            await Groups(cluster).commit("g", {T0: 5, T1: 6})


@pytest.mark.parametrize(
    "code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR]
)
async def test_a_coordinator_that_is_not_ready_or_not_the_right_one_is_looked_up_again(
    broker: FakeBroker, groups: FakeGroups, code: ErrorCode
) -> None:
    groups.groups["g"] = FakeGroup(offsets={T0: 5})
    refusal = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", error_code=code)])
    first_then_usual(broker, ApiKey.OFFSET_FETCH, refusal, HANG_UP)
    commit_refusal = OffsetCommitResponse(
        topics=[OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition(0, code)])]
    )
    first_then_usual(broker, ApiKey.OFFSET_COMMIT, commit_refusal)
    async with client_of(broker) as cluster:
        asking = Groups(cluster)
        assert await asking.committed("g") == {T0: CommittedOffset(5)}
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 3
        await asking.commit("g", {T0: 6})
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 4
        assert await asking.committed("g") == {T0: CommittedOffset(6)}
        assert len(broker.asked(ApiKey.FIND_COORDINATOR)) == 4


async def test_the_group_is_followed_to_another_broker() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as one, FakeBroker(shared, 2) as two, client_of(one) as cluster:
        groups = FakeGroups(two)
        groups.groups["g"] = FakeGroup(offsets={T0: 5})
        groups.serve_at(one)
        assert await Groups(cluster).committed("g") == {T0: CommittedOffset(5)}
        assert not one.asked(ApiKey.OFFSET_FETCH)
        assert len(two.asked(ApiKey.OFFSET_FETCH)) == 1


async def test_a_missing_coordinator_is_waited_for_and_then_reported(broker: FakeBroker, groups: FakeGroups) -> None:
    nobody = FindCoordinatorResponse(
        coordinators=[Coordinator(key="g", node_id=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    )
    broker.scripts[ApiKey.FIND_COORDINATOR] = lambda _request, version: message_codec.encode(nobody, version)
    async with client_of(broker, retry_timeout_ms=50) as cluster:
        with pytest.raises(ApiError, match="the coordinator of group 'g' was not found: There is no coordinator"):
            await Groups(cluster).committed("g")
    assert len(broker.asked(ApiKey.FIND_COORDINATOR)) > 1


async def test_old_brokers_are_asked_for_one_coordinator(broker: FakeBroker, groups: FakeGroups) -> None:
    broker.versions[ApiKey.FIND_COORDINATOR] = (0, 3)
    groups.groups["g"] = FakeGroup(offsets={T0: 5})
    async with client_of(broker) as cluster:
        assert await Groups(cluster).committed("g") == {T0: CommittedOffset(5)}
    assert broker.asked(ApiKey.FIND_COORDINATOR)[0].key == "g"


async def test_a_group_is_deleted_or_the_reason_reported(broker: FakeBroker, groups: FakeGroups) -> None:
    groups.groups = {"gone": FakeGroup(), "busy": FakeGroup(members=[FakeMember("m", "client")])}
    async with client_of(broker) as cluster:
        await Groups(cluster).delete("gone")
        with pytest.raises(ApiError, match="there is no group 'gone'"):
            await Groups(cluster).delete("gone")
        with pytest.raises(ApiError, match="group 'busy' was not deleted: The group still has members"):
            await Groups(cluster).delete("busy")
    assert list(groups.groups) == ["busy"]


async def test_offsets_are_deleted_or_the_reason_reported(broker: FakeBroker, groups: FakeGroups) -> None:
    reader = FakeMember("m", "client", {"read": (0,)})
    groups.groups["g"] = FakeGroup(members=[reader], offsets={T0: 5, T1: 6, TopicPartition("read", 0): 7})
    async with client_of(broker) as cluster:
        await Groups(cluster).delete_offsets("g", [T0])
        with pytest.raises(ApiError, match="in read-0 was not deleted: The group is subscribed"):
            await Groups(cluster).delete_offsets("g", [TopicPartition("read", 0)])
        with pytest.raises(ApiError, match="there is no group 'other'"):
            await Groups(cluster).delete_offsets("other", [T0])
    assert groups.groups["g"].offsets == {T1: 6, TopicPartition("read", 0): 7}
