"""The cluster: reaching one broker, learning the others, leaders, staleness."""

import asyncio

import pytest

from martlet.base.addresses import Address
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster, Leader, Purpose
from martlet.client.errors import ConnectionFailed
from martlet.client.metadata import Metadata
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.unit.client.fake_broker import SILENCE, FakeBroker, FakeCluster, client_of, impatient


async def test_with_no_broker_reachable_the_failure_names_addresses_reason_and_next_step() -> None:
    async with FakeBroker() as one, FakeBroker() as two:
        pass
    with pytest.raises(ConnectionFailed) as caught:
        await client_of(one, two).start()
    assert str(caught.value) == (
        f"no broker reachable at {one.address}, {two.address}: connection refused; start one with `martlet up`"
    )


async def test_the_next_bootstrap_address_is_tried_when_the_first_is_dead() -> None:
    async with FakeBroker() as dead:
        pass
    async with FakeBroker() as alive, client_of(dead, alive) as cluster:
        assert cluster.metadata.cluster_id == "fake"


async def test_leaders_are_learnt_and_their_brokers_connected() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as one, FakeBroker(shared, 2) as two:
        shared.add_topic("t", [1, 2])
        async with client_of(one) as cluster:
            assert await cluster.leader(TopicPartition("t", 1)) == Leader(2, 1)
            connection = await cluster.connection(2)
            assert connection.address == two.address
            assert await cluster.connection(2) is connection
            assert await cluster.connection(2, Purpose.FETCH) is not connection


async def test_concurrent_users_share_one_connection_and_one_question() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        async with client_of(broker) as cluster:
            leaders = await asyncio.gather(*(cluster.leader(TopicPartition("t", 0)) for _ in range(20)))
            assert len(set(leaders)) == 1
            await asyncio.gather(*(cluster.connection(1, Purpose.PRODUCE) for _ in range(20)))
        assert broker.connection_count == 2
        assert len(broker.asked(ApiKey.METADATA)) == 2


async def test_an_unknown_topic_is_named() -> None:
    async with FakeBroker() as broker, client_of(broker) as cluster:
        with pytest.raises(ApiError, match="there is no topic 'nope'") as caught:
            await cluster.topic("nope")
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.asked(ApiKey.METADATA)[-1].allow_auto_topic_creation is False


async def test_all_who_wait_for_one_answer_hear_of_its_error() -> None:
    async with FakeBroker() as broker, client_of(broker) as cluster:
        errors = await asyncio.gather(*(cluster.refresh(["nope"]) for _ in range(3)), return_exceptions=True)
        assert [str(one) for one in errors] == [str(errors[0])] * 3
        assert "nope" in str(errors[0])


async def test_a_topic_being_created_is_waited_for() -> None:
    async with FakeBroker() as broker, client_of(broker, unknown_topic_wait_ms=1000) as cluster:

        def appear_at_the_third_time(request: object, version: int) -> None:
            if len(broker.asked(ApiKey.METADATA)) == 4:
                broker.cluster.add_topic("late", [1])

        broker.scripts[ApiKey.METADATA] = appear_at_the_third_time
        assert (await cluster.topic("late", create=True)).name == "late"
        assert broker.asked(ApiKey.METADATA)[-1].allow_auto_topic_creation is True


async def test_a_missing_partition_is_named_with_what_there_is() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1, 1])
        async with client_of(broker) as cluster:
            with pytest.raises(ApiError, match="topic 't' has no partition 7; it has 2, numbered from 0"):
                await cluster.leader(TopicPartition("t", 7))


async def test_what_is_known_is_not_asked_again_until_it_is_marked_stale() -> None:
    async with FakeBroker() as broker:
        topic = broker.cluster.add_topic("t", [1])
        async with client_of(broker) as cluster:
            await cluster.topic("t")
            await cluster.topic("t")
            assert len(broker.asked(ApiKey.METADATA)) == 2
            topic.epochs = [5]
            cluster.mark_stale("t")
            assert await cluster.leader(TopicPartition("t", 0)) == Leader(1, 5)


async def test_old_knowledge_is_asked_again() -> None:
    async with FakeBroker() as broker:
        broker.cluster.add_topic("t", [1])
        async with client_of(broker, metadata_max_age_ms=0) as cluster:
            for _ in range(3):
                assert (await cluster.topic("t")).name == "t"
            assert cluster.known_topic("t") is None
        assert len(broker.asked(ApiKey.METADATA)) == 4


async def test_a_connection_that_the_broker_closed_is_replaced() -> None:
    async with FakeBroker() as broker, client_of(broker) as cluster:
        broker.cluster.add_topic("t", [1])
        broker.drop_connections()
        assert (await cluster.topic("t")).name == "t"


async def test_a_broker_that_cannot_be_reached_where_it_announces_itself_is_named() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 2) as gone:
        pass
    async with FakeBroker(shared, 1) as broker, client_of(broker) as cluster:
        with pytest.raises(ConnectionFailed) as caught:
            await cluster.connection(2)
        assert str(caught.value) == f"broker 2 announces itself at {gone.address}, but there: connection refused"


async def test_a_closed_client_opens_nothing() -> None:
    async with FakeBroker() as broker:
        cluster = client_of(broker)
        await cluster.start()
        await cluster.aclose()
        with pytest.raises(ConnectionFailed, match="this client is closed"):
            await cluster.connection(1)


def _answer(epoch: int, leader: int, topic_id: bytes = b"i" * 16) -> MetadataResponse:
    partition = MetadataResponsePartition(leader_id=leader, leader_epoch=epoch)
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])])


def test_clt_14_an_answer_with_an_older_epoch_does_not_undo_a_newer_one() -> None:
    metadata = Metadata()
    metadata.update(_answer(5, 1))
    metadata.update(_answer(4, 2))
    assert (metadata.topics["t"].partitions[0].leader, metadata.topics["t"].partitions[0].leader_epoch) == (1, 5)
    metadata.update(_answer(6, 3))
    assert metadata.topics["t"].partitions[0].leader == 3


def test_a_recreated_topic_starts_with_its_own_epochs() -> None:
    metadata = Metadata()
    metadata.update(_answer(5, 1))
    metadata.update(_answer(0, 2, topic_id=b"j" * 16))
    assert metadata.topics["t"].partitions[0].leader_epoch == 0
    assert metadata.name_of(b"j" * 16) == "t"


async def test_a_cluster_needs_no_broker_to_be_made() -> None:
    cluster = Cluster([Address("127.0.0.1", 1)], impatient())
    await cluster.aclose()


async def test_a_broker_that_hangs_is_given_up_and_the_next_one_describes_the_cluster() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as hung, FakeBroker(shared, 2) as alive:
        async with client_of(hung, alive, metadata_timeout_ms=50) as cluster:
            shared.add_topic("t", [2])
            hung.scripts[ApiKey.METADATA] = lambda request, version: SILENCE
            assert await cluster.leader(TopicPartition("t", 0)) == Leader(2, 1)
            asked = len(hung.asked(ApiKey.METADATA))
            await cluster.refresh(["t"])
        assert len(hung.asked(ApiKey.METADATA)) == asked
