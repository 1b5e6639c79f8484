"""What real brokers say of the cluster's metadata in the form of Kafka's quorum: who leads, and how far each is."""

from collections.abc import Callable, Iterator

import pytest
from sim.simulated_broker import KAFKA_PORT

from martlet.base.addresses import Address
from martlet.base.errors import ErrorCode
from martlet.client.admin import Admin, NewTopic
from martlet.client.apis import Api
from martlet.client.connection import Connection
from martlet.client.options import ClientOptions
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from tests.sim.test_replication import Brokers, brokers

DESCRIBE_QUORUM = Api(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest, DescribeQuorumResponse, 0, 2)
OPTIONS = ClientOptions(connect_timeout_ms=1_000, request_timeout_ms=10_000)


@pytest.fixture
def three() -> Iterator[Brokers]:
    with brokers(3) as running:
        yield running


def describe(three: Brokers, asked: int) -> tuple[PartitionData, DescribeQuorumResponse]:
    """What this broker answers."""
    (response,) = follow(three, asked, lambda described: True)
    return response.topics[0].partitions[0], response


def follow(three: Brokers, asked: int, is_last: Callable[[PartitionData], bool]) -> list[DescribeQuorumResponse]:
    """What this broker answers, again and again over one connection, up to the answer that is the last."""

    async def ask() -> list[DescribeQuorumResponse]:
        connection = Connection(Address(three.hosts[asked].name, KAFKA_PORT), OPTIONS)
        await connection.start()
        try:
            request = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
            answers: list[DescribeQuorumResponse] = []
            while not answers or not is_last(answers[-1].topics[0].partitions[0]):
                answers.append(await connection.call(DESCRIBE_QUORUM, request))
            return answers
        finally:
            await connection.aclose()

    answers: list[DescribeQuorumResponse] = three.world.run_process(three.client, ask)
    return answers


def controller(three: Brokers) -> int:
    services = three.apps[1].services
    assert services is not None
    assert services.image.controller is not None
    return services.image.controller.holder.broker


def ends(described: PartitionData) -> dict[int, int]:
    return {voter.replica_id: voter.log_end_offset for voter in described.current_voters}


def test_every_broker_names_the_controller_and_how_far_all_of_them_are(three: Brokers) -> None:
    three.create(replicas=3)
    for asked in three.hosts:
        described, response = describe(three, asked)
        now_ms = three.hosts[asked].clock.now_ms()
        revision = described.high_watermark
        assert (described.error_code, described.leader_id) == (ErrorCode.NONE, controller(three))
        assert 0 < described.leader_epoch < revision
        assert ends(described) == dict.fromkeys(three.hosts, revision)
        for voter in described.current_voters:
            assert now_ms - 1_000 < voter.last_fetch_timestamp == voter.last_caught_up_timestamp <= now_ms
        where = {node.node_id: (node.listeners[0].host, node.listeners[0].port) for node in response.nodes}
        assert where == {number: (host.name, KAFKA_PORT) for number, host in three.hosts.items()}


def test_a_change_of_the_metadata_moves_the_high_watermark(three: Brokers) -> None:
    before, _ = describe(three, 1)
    three.call(
        lambda cluster: Admin(cluster).create_topic(NewTopic(name="another", partitions=1, replication_factor=1))
    )
    after, _ = describe(three, 1)
    assert after.high_watermark > before.high_watermark
    assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)


def test_of_a_living_broker_that_cannot_be_reached_nothing_is_claimed(three: Brokers) -> None:
    three.world.network.cut(three.hosts[1].name, three.hosts[3].name)
    described, _ = describe(three, 1)
    assert ends(described) == {1: described.high_watermark, 2: described.high_watermark, 3: -1}
    (third,) = [voter for voter in described.current_voters if voter.replica_id == 3]
    assert (third.last_fetch_timestamp, third.last_caught_up_timestamp) == (-1, -1)


def test_the_next_controller_has_a_higher_epoch_and_until_there_is_one_the_answer_says_so(three: Brokers) -> None:
    before, _ = describe(three, 1)
    three.hosts[before.leader_id].crash(power_loss=False)
    asked, other = (number for number in three.hosts if number != before.leader_id)
    for number in (asked, other):
        # Taking the role takes a while then, which is long enough to be asked meanwhile.
        quality = three.world.network.link(three.hosts[number].name, "store").quality
        quality.latency_ns_min = quality.latency_ns_max = 300_000_000
    answers = follow(three, asked, lambda described: described.leader_id not in (0, before.leader_id))
    codes = {answer.topics[0].partitions[0].error_code for answer in answers}
    after = answers[-1].topics[0].partitions[0]
    assert codes == {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE}, "first its lease goes on, then none has the role"
    assert after.leader_epoch > before.leader_epoch
    assert set(ends(after)) == set(three.hosts) - {before.leader_id}


def test_a_broker_cut_off_from_the_store_says_so_in_time(three: Brokers) -> None:
    three.world.network.cut(three.hosts[2].name, "store")
    described, response = describe(three, 2)
    assert described.error_code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE)
    assert described.error_message
    assert (described.current_voters, response.nodes) == ([], [])
