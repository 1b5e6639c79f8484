"""Groups as the admin clients of confluent-kafka, kafka-python and aiokafka list, describe, reset and delete them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka import TopicPartition as AiokafkaPartition  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from confluent_kafka import ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient  # type: ignore[import-untyped]
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import OffsetSpec  # type: ignore[import-untyped]

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from tests.clients.group_behaviour import PATIENCE_SECONDS, Group, groups_broker, leaks_collected, publish
from tests.clients.group_members import ConfluentMember, Member, NewConfluentMember
from tests.clients.with_aiokafka import running
from tests.clients.with_confluent import TIMEOUT_SECONDS

names: Any = confluent_kafka
"""The package re-exports these classes without saying so to type checkers."""


@pytest.fixture(scope="module")
def quick_broker() -> Iterator[RunningBroker]:
    with groups_broker() as running_broker:
        yield running_broker


@pytest.fixture
def no_leaks() -> Iterator[None]:
    with leaks_collected():
        yield


@pytest.fixture
def admin(quick_broker: RunningBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": quick_broker.bootstrap_servers})


@pytest.fixture(params=[ConfluentMember, NewConfluentMember], ids=["classic", "consumer"])
def group(request: pytest.FixtureRequest, quick_broker: RunningBroker) -> Iterator[Group]:
    """One member that has read and committed ten messages of each of two partitions."""
    group = Group(quick_broker.bootstrap_servers, request.param, partitions=2)
    publish(group.servers, group.topic, 2, 10)
    group.start("reader")
    group.ledger.wait_read([10, 10], PATIENCE_SECONDS)
    yield group
    group.close()


def kind_name(kind: type[Member]) -> str:
    return "CONSUMER" if kind is NewConfluentMember else "CLASSIC"


def listed(admin: AdminClient, **filters: Any) -> dict[str, Any]:
    result = admin.list_consumer_groups(**filters).result(TIMEOUT_SECONDS)
    assert result.errors == []
    return {one.group_id: one for one in result.valid}


def committed(admin: AdminClient, group: Group) -> dict[int, int]:
    asked = [names.ConsumerGroupTopicPartitions(group.id)]
    (answer,) = admin.list_consumer_group_offsets(asked).values()
    return {one.partition: one.offset for one in answer.result(TIMEOUT_SECONDS).topic_partitions}


def reset(admin: AdminClient, group: Group, offset: int) -> list[str]:
    """Set the offsets of both partitions; the names of the errors."""
    wanted = [TopicPartition(group.topic, partition, offset) for partition in range(2)]
    asked = [names.ConsumerGroupTopicPartitions(group.id, wanted)]
    (answer,) = admin.alter_consumer_group_offsets(asked).values()
    changed = answer.result(TIMEOUT_SECONDS).topic_partitions
    return [one.error.name() if one.error else "" for one in changed]


def test_groups_are_listed_by_state_and_type(admin: AdminClient, group: Group) -> None:
    stable, empty = ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY
    kinds = names.ConsumerGroupType
    own = kinds[kind_name(group.kind)]
    (other,) = {kinds.CLASSIC, kinds.CONSUMER} - {own}
    assert listed(admin)[group.id].state == stable
    assert listed(admin)[group.id].type == own
    assert group.id in listed(admin, states={stable}, types={own})
    assert group.id not in listed(admin, states={empty})
    assert group.id not in listed(admin, types={other})
    group.close()
    assert group.id in listed(admin, states={empty}, types={own})


def test_a_group_is_described_with_its_members(admin: AdminClient, group: Group) -> None:
    (answer,) = admin.describe_consumer_groups([group.id]).values()
    described = answer.result(TIMEOUT_SECONDS)
    assert described.state == ConsumerGroupState.STABLE
    assert described.type == names.ConsumerGroupType[kind_name(group.kind)]
    (member,) = described.members
    assert member.client_id == "reader"
    assert member.host == "/127.0.0.1"
    owned = {(one.topic, one.partition) for one in member.assignment.topic_partitions}
    assert owned == {(group.topic, 0), (group.topic, 1)}


def test_the_offsets_of_an_empty_group_are_reset(admin: AdminClient, group: Group) -> None:
    assert reset(admin, group, 0) == ["UNKNOWN_MEMBER_ID"] * 2
    group.close()
    assert committed(admin, group) == {0: 10, 1: 10}
    assert reset(admin, group, 4) == ["", ""]
    assert committed(admin, group) == {0: 4, 1: 4}
    before = group.ledger.count
    group.start("reader")
    group.ledger.wait_for(lambda: group.ledger.count == before + 12, PATIENCE_SECONDS, "twelve messages again")
    group.ledger.check()


def test_only_an_empty_group_is_deleted(admin: AdminClient, group: Group) -> None:
    (answer,) = admin.delete_consumer_groups([group.id]).values()
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        answer.result(TIMEOUT_SECONDS)
    group.close()
    (answer,) = admin.delete_consumer_groups([group.id]).values()
    answer.result(TIMEOUT_SECONDS)
    assert group.id not in listed(admin)
    (answer,) = admin.delete_consumer_groups([group.id]).values()
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        answer.result(TIMEOUT_SECONDS)


def test_a_group_that_does_not_exist_is_dead(admin: AdminClient) -> None:
    (answer,) = admin.describe_consumer_groups(["nobody"]).values()
    assert answer.result(TIMEOUT_SECONDS).state == ConsumerGroupState.DEAD


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("no_leaks")
def test_kafka_python_shows_resets_and_deletes_the_same_groups(group: Group) -> None:
    partitions = [KafkaPythonPartition(group.topic, partition) for partition in range(2)]
    with KafkaAdminClient(bootstrap_servers=group.servers) as admin:
        kind = kind_name(group.kind).lower()
        found = {one["group_id"]: one for one in admin.list_groups(states_filter=["Stable"], types_filter=[kind])}
        assert found[group.id]["protocol_type"] == "consumer"
        refused = admin.delete_group_offsets(group.id, partitions)
        assert {error.errno for error in refused.values()} == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        group.close()
        offsets = admin.list_group_offsets({group.id: None})[group.id]
        assert {one: place.offset for one, place in offsets.items()} == dict.fromkeys(partitions, 10)
        admin.reset_group_offsets(group.id, dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        offsets = admin.list_group_offsets({group.id: partitions})[group.id]
        assert {place.offset for place in offsets.values()} == {0}
        deleted = admin.delete_group_offsets(group.id, partitions[:1])
        assert {error.errno for error in deleted.values()} == {0}
        assert set(admin.list_group_offsets({group.id: None})[group.id]) == {partitions[1]}
        admin.delete_groups([group.id])
        assert group.id not in {one["group_id"] for one in admin.list_groups()}


def test_aiokafka_shows_the_same_groups(group: Group) -> None:
    async def look() -> tuple[list[Any], dict[Any, Any]]:
        async with running(AIOKafkaAdminClient(bootstrap_servers=group.servers)) as admin:
            groups = await admin.list_consumer_groups()
            return groups, await admin.list_consumer_group_offsets(group.id)

    group.close()
    groups, offsets = asyncio.run(look())
    assert (group.id, "consumer") in [tuple(one[:2]) for one in groups]
    assert {one: place.offset for one, place in offsets.items()} == {
        AiokafkaPartition(group.topic, partition): 10 for partition in range(2)
    }
