"""Settings of groups through the configuration APIs, and what a group does with them."""

import time
from collections.abc import Callable

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.alter_configs import AlterableConfig as NewConfig
from martlet.wire.messages.alter_configs import AlterConfigsRequest
from martlet.wire.messages.alter_configs import AlterConfigsResource as NewResource
from martlet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from martlet.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from martlet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from martlet.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.group_requests import unique_group
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE = 0, 1
FROM_DEFAULT, FROM_GROUP = 5, 8
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def change(client: RawClient, group: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> int:
    resource = AlterConfigsResource(GROUP, group, [AlterableConfig(*each) for each in changes])
    (result,) = client.call(IncrementalAlterConfigsRequest([resource], validate_only), 1).responses
    code: int = result.error_code
    return code


def described(client: RawClient, group: str, *names: str) -> dict[str, DescribeConfigsResourceResult]:
    asked = DescribeConfigsResource(GROUP, group, list(names) or None)
    (result,) = client.call(DescribeConfigsRequest([asked], include_synonyms=True), 4).results
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {entry.name: entry for entry in result.configs}


def listed(client: RawClient, *kinds: int) -> list[tuple[int, str]]:
    response = client.call(ListConfigResourcesRequest(list(kinds)), 1)
    assert response.error_code == ErrorCode.NONE
    return [(each.resource_type, each.resource_name) for each in response.config_resources]


def beat(client: RawClient, group: str, member: str, epoch: int, topic: str) -> ConsumerGroupHeartbeatResponse:
    joins = epoch == 0
    request = ConsumerGroupHeartbeatRequest(
        group,
        member,
        epoch,
        rebalance_timeout_ms=60_000 if joins else -1,
        subscribed_topic_names=[topic] if joins else None,
        topic_partitions=[] if joins else None,
    )
    response: ConsumerGroupHeartbeatResponse = client.call(request, 1)
    assert response.error_code == ErrorCode.NONE, response.error_message
    return response


def member_count(client: RawClient, group: str) -> int:
    (answer,) = client.call(ConsumerGroupDescribeRequest([group]), 1).groups
    return len(answer.members)


def test_a_groups_settings_are_set_shown_and_taken_back(client: RawClient) -> None:
    group = unique_group()
    default = described(client, group)[SESSION]
    assert (default.value, default.config_source) == ("45000", FROM_DEFAULT)
    assert [synonym.name for synonym in default.synonyms] == [f"group.{SESSION}"]
    assert change(client, group, (SESSION, SET, "50000"), validate_only=True) == ErrorCode.NONE
    assert (GROUP, group) not in listed(client, GROUP)
    assert change(client, group, (SESSION, SET, "50000")) == ErrorCode.NONE
    own = described(client, group, SESSION)[SESSION]
    assert (own.value, own.config_source) == ("50000", FROM_GROUP)
    assert [synonym.name for synonym in own.synonyms] == [SESSION, f"group.{SESSION}"]
    assert (GROUP, group) in listed(client, GROUP)
    assert change(client, group, (SESSION, DELETE, None), ("no.such", DELETE, None)) == ErrorCode.NONE
    assert described(client, group)[SESSION] == default
    assert (GROUP, group) not in listed(client, GROUP)


def test_a_groups_settings_are_replaced_as_a_whole(client: RawClient) -> None:
    group = unique_group()
    assert change(client, group, (SESSION, SET, "50000")) == ErrorCode.NONE
    resource = NewResource(GROUP, group, [NewConfig("share.auto.offset.reset", "earliest")])
    assert client.call(AlterConfigsRequest([resource]), 2).responses[0].error_code == ErrorCode.NONE
    own = {name for name, entry in described(client, group).items() if entry.config_source == FROM_GROUP}
    assert own == {"share.auto.offset.reset"}
    client.call(AlterConfigsRequest([NewResource(GROUP, group, [])]), 2)
    assert (GROUP, group) not in listed(client, GROUP)


@pytest.mark.parametrize(
    "wish",
    [(SESSION, SET, "44999"), (SESSION, SET, "60001"), ("share.isolation.level", SET, "x"), ("no.such", SET, "1")],
)
def test_what_a_group_may_not_set_is_refused(client: RawClient, wish: tuple[str, int, str]) -> None:
    group = unique_group()
    assert change(client, group, (HEARTBEAT, SET, "6000"), wish) == ErrorCode.INVALID_CONFIG
    assert described(client, group)[HEARTBEAT].config_source == FROM_DEFAULT


def test_a_group_needs_a_name(client: RawClient) -> None:
    for name in ("", "g" * 5_000):
        assert change(client, name, (SESSION, SET, "50000")) == ErrorCode.INVALID_REQUEST
        asked = DescribeConfigsResource(GROUP, name)
        assert client.call(DescribeConfigsRequest([asked]), 4).results[0].error_code == ErrorCode.INVALID_REQUEST


def test_everything_that_may_have_settings_is_listed_by_kind(client: RawClient) -> None:
    topic, group = create_topic(client), unique_group()
    change(client, group, (SESSION, SET, "50000"))
    everything = listed(client)
    assert {(TOPIC, topic), (BROKER, "1"), (GROUP, group)} <= set(everything)
    assert listed(client, BROKER) == [(BROKER, "1")]
    assert set(listed(client, TOPIC, GROUP, GROUP)) == {each for each in everything if each[0] != BROKER}
    assert listed(client, BROKER_LOGGER, CLIENT_METRICS) == []
    assert client.call(ListConfigResourcesRequest(), 0).config_resources == []
    unknown = client.call(ListConfigResourcesRequest([TOPIC, 77]), 1)
    assert (unknown.error_code, unknown.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_members_live_by_the_times_of_their_group(make_broker: Callable[..., RunningBroker]) -> None:
    running = make_broker(consumer_group_session_timeout_ms=1_500, consumer_group_heartbeat_interval_ms=400)
    with RawClient(running.bootstrap_servers) as client:
        topic, patient, plain = create_topic(client), unique_group(), unique_group()
        changes = [(SESSION, SET, "60000"), (HEARTBEAT, SET, "7000")]
        assert change(client, patient, *changes) == ErrorCode.NONE
        assert beat(client, patient, "a" * 22, 0, topic).heartbeat_interval_ms == 7_000
        assert beat(client, plain, "b" * 22, 0, topic).heartbeat_interval_ms == 400
        deadline = time.monotonic() + 20
        while member_count(client, plain):
            assert time.monotonic() < deadline, "the member of the plain group is never removed"
            time.sleep(0.05)
        assert member_count(client, patient) == 1
        # A changed time counts from the next heartbeat on.
        assert change(client, patient, (SESSION, SET, "1500"), (HEARTBEAT, SET, "400")) == ErrorCode.NONE
        assert beat(client, patient, "a" * 22, 1, topic).heartbeat_interval_ms == 400
        while member_count(client, patient):
            assert time.monotonic() < deadline, "the member of the group with settings is never removed"
            time.sleep(0.05)
