"""Access rules in a running broker: every API without rights, rules managed over their APIs, how soon they count."""

from collections.abc import Iterator
from typing import Any

import pytest

from martlet.base.errors import ErrorCode
from martlet.security.gates.gate import REFUSALS
from martlet.security.rules import CLUSTER_NAME
from martlet.testing.running_broker import RunningBroker
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import FetchPartition, FetchRequest, FetchTopic
from martlet.wire.message_codec import decode, errors_in
from martlet.wire.messages import share_acknowledge, share_fetch
from martlet.wire.messages.create_acls import AclCreation, CreateAclsRequest
from martlet.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from martlet.wire.messages.describe_acls import DescribeAclsRequest
from martlet.wire.messages.metadata import MetadataRequest
from tests.broker.raw_client import ConnectionClosed, RawClient, api_of
from tests.broker.requests import batch_of, create_topic, describe
from tests.broker.sample_requests import sample_body, sample_message, served_versions
from tests.broker.sasl import LISTENERS, add_user, address_of, log_in

TOPIC = "payments"
GUARDED: dict[str, Any] = {**LISTENERS, "access_rules": True, "super_users": "User:ANONYMOUS;User:root"}
ANY_RULE = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
TOPICS, GROUPS, CLUSTER = 2, 3, 4
READ, WRITE, CREATE, DELETE, DESCRIBE = 3, 4, 5, 6, 8
DENY, ALLOW = 2, 3
OPEN = {
    *(ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
    *(ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER),
    *(ApiKey.PRODUCE, ApiKey.FETCH),
}
"""APIs that answer everybody, or have tests of their own here."""
NO_PLACE_FOR_ERRORS = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2), (ApiKey.ELECT_LEADERS, 0)}


def allow(operation: int, name: str = TOPIC, kind: int = TOPICS, user: str = "alice", permission: int = ALLOW) -> Any:
    return AclCreation(kind, name, 3, f"User:{user}", "*", operation, permission)


def create_rules(broker: RunningBroker, *rules: Any) -> list[int]:
    with RawClient(address_of(broker, "open")) as client:
        return [result.error_code for result in client.call(CreateAclsRequest(list(rules)), 3).results]


def delete_rules(broker: RunningBroker, user: str) -> int:
    """How many there were."""
    with RawClient(address_of(broker, "open")) as client:
        request = DeleteAclsRequest([DeleteAclsFilter(1, None, 1, f"User:{user}", None, 1, 1)])
        (result,) = client.call(request, 3).filter_results
        return len(result.matching_acls)


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningBroker]:
    with RunningBroker(**GUARDED) as running:
        with RawClient(address_of(running, "open")) as client:
            create_topic(client, name=TOPIC)
        for name in ("alice", "root"):
            add_user(running, name)
        yield running


@pytest.fixture
def alice(guarded: RunningBroker) -> Iterator[RawClient]:
    with RawClient(address_of(guarded, "clients")) as client:
        assert log_in(client).error_code == 0
        yield client
    delete_rules(guarded, "alice")


def produce_code(client: RawClient, topic: str = TOPIC) -> int:
    return int(client.produce([(topic, None, [(0, batch_of(b"x"))])]).topics[0].partitions[0].error_code)


def fetch_code(client: RawClient, topic: str = TOPIC, wait_ms: int = 0) -> int:
    asked = FetchTopic(topic, None, [FetchPartition(0)])
    return int(client.fetch(FetchRequest(max_wait_ms=wait_ms, topics=[asked])).topics[0].partitions[0].error_code)


@pytest.mark.parametrize("key", sorted(set(served_versions()) - OPEN))
def test_without_any_right_every_api_is_refused_in_every_version_and_changes_nothing(
    guarded: RunningBroker, alice: RawClient, key: ApiKey
) -> None:
    async def revision() -> int:
        services = guarded.app.services
        assert services is not None
        return services.image.revision

    before = guarded.run(revision())
    response = api_of(type(sample_message(key, TOPIC)))[1]
    for version in served_versions()[key]:
        sent = alice.send(key, version, sample_body(key, version, TOPIC))
        received, body = alice.receive(key, version)
        assert received == sent
        answer = decode(response, version, body)
        codes = set(errors_in(answer, version))
        assert codes <= set(REFUSALS.values()), f"v{version}: {answer}"
        # Versions without a place for an error answer with nothing.
        assert codes or (key, version) in NO_PLACE_FOR_ERRORS, f"v{version}: {answer}"
    assert guarded.run(revision()) == before


def test_publishing_and_reading_need_their_rights_for_each_topic(guarded: RunningBroker, alice: RawClient) -> None:
    assert produce_code(alice) == fetch_code(alice) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert create_rules(guarded, allow(WRITE)) == [0]
    assert (produce_code(alice), fetch_code(alice)) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert create_rules(guarded, allow(READ)) == [0]
    assert (produce_code(alice), fetch_code(alice)) == (0, 0)
    assert produce_code(alice, "another") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert create_rules(guarded, allow(WRITE, permission=DENY)) == [0]
    assert (produce_code(alice), fetch_code(alice)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)


def test_a_right_that_is_taken_away_is_gone_with_the_next_request(guarded: RunningBroker, alice: RawClient) -> None:
    create_rules(guarded, allow(WRITE), allow(READ))
    assert (produce_code(alice), fetch_code(alice)) == (0, 0)
    assert delete_rules(guarded, "alice") == 2
    assert produce_code(alice) == fetch_code(alice) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_fetch_that_waits_gives_nothing_once_the_right_is_gone(guarded: RunningBroker, alice: RawClient) -> None:
    create_rules(guarded, allow(READ, "waited-for"))
    with RawClient(address_of(guarded, "open")) as client:
        create_topic(client, name="waited-for")
        asked = FetchTopic("waited-for", None, [FetchPartition(0)])
        alice.send_fetch(FetchRequest(max_wait_ms=20_000, topics=[asked]), 12)
        assert delete_rules(guarded, "alice") == 1
        assert produce_code(client, "waited-for") == 0
    _, response = alice.receive_fetch(12)
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, bytes(partition.records or b"")) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


def test_share_fetches_need_to_read_the_group_and_each_topic(guarded: RunningBroker, alice: RawClient) -> None:
    with RawClient(address_of(guarded, "open")) as client:
        topic_id = describe(client, TOPIC).topic_id
    asked = share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0)])
    fetch = share_fetch.ShareFetchRequest("crew", "member", 0, max_bytes=1000, max_records=1, topics=[asked])
    assert alice.call(fetch, 1).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    create_rules(guarded, allow(READ, "crew", GROUPS))
    answer = alice.call(fetch, 1)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (
        0,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
    said = share_acknowledge.AcknowledgePartition(0, [share_acknowledge.AcknowledgementBatch(0, 0, [1])])
    topics = [share_acknowledge.AcknowledgeTopic(topic_id, [said])]
    acknowledged = alice.call(share_acknowledge.ShareAcknowledgeRequest("crew", "member", 1, topics=topics), 1)
    assert acknowledged.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_metadata_shows_what_may_be_described_and_a_refused_topic_is_not_made(
    guarded: RunningBroker, alice: RawClient
) -> None:
    assert alice.call(MetadataRequest(None), 12).topics == []
    assert describe(alice, TOPIC).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    create_rules(guarded, allow(DESCRIBE))
    assert [topic.name for topic in alice.call(MetadataRequest(None), 12).topics] == [TOPIC]
    assert describe(alice, TOPIC).error_code == 0
    assert describe(alice, "never-made").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with RawClient(address_of(guarded, "open")) as client:
        assert "never-made" not in {topic.name for topic in client.call(MetadataRequest(None), 12).topics}


def test_publishing_without_an_answer_and_without_the_right_ends_the_connection(alice: RawClient) -> None:
    alice.send_produce([(TOPIC, None, [(0, batch_of(b"x"))])], 9, acks=0)
    with pytest.raises(ConnectionClosed):
        alice.receive_frame()


def test_a_super_user_needs_no_rules(guarded: RunningBroker) -> None:
    with RawClient(address_of(guarded, "clients")) as client:
        assert log_in(client, "root").error_code == 0
        assert (produce_code(client), fetch_code(client)) == (0, 0)
        assert client.call(ANY_RULE, 3).error_code == 0


def test_rules_are_listed_by_resource_and_deleted_by_filter(guarded: RunningBroker, alice: RawClient) -> None:
    rules = [allow(READ), allow(WRITE), allow(READ, "team-", GROUPS)]
    rules[2].resource_pattern_type = 4
    assert create_rules(guarded, *rules, *rules) == [0] * 6
    with RawClient(address_of(guarded, "open")) as client:
        covering = DescribeAclsRequest(GROUPS, "team-one", 2, None, None, 1, 1)
        (resource,) = client.call(covering, 3).resources
        assert (resource.resource_name, resource.pattern_type, len(resource.acls)) == ("team-", 4, 1)
        (resource,) = client.call(DescribeAclsRequest(TOPICS, TOPIC, 3, "User:alice", None, 1, 1), 2).resources
        assert [rule.operation for rule in resource.acls] == [READ, WRITE]
    assert delete_rules(guarded, "alice") == 3
    assert delete_rules(guarded, "alice") == 0


def test_rules_that_cannot_be_are_refused_alone(guarded: RunningBroker, alice: RawClient) -> None:
    bad = [
        allow(READ, ""),
        allow(WRITE, "workers", GROUPS),
        allow(READ, "elsewhere", CLUSTER),
        allow(99),
        AclCreation(99, TOPIC, 3, "User:alice", "*", READ, ALLOW),
        AclCreation(TOPICS, TOPIC, 1, "User:alice", "*", READ, ALLOW),
        AclCreation(TOPICS, TOPIC, 3, "alice", "*", READ, ALLOW),
        AclCreation(TOPICS, TOPIC, 3, "User:alice", "", READ, ALLOW),
    ]
    assert create_rules(guarded, *bad, allow(READ)) == [ErrorCode.INVALID_REQUEST] * len(bad) + [0]
    assert delete_rules(guarded, "alice") == 1


def test_while_rules_are_off_they_can_be_neither_listed_nor_changed(broker: RunningBroker) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        assert client.call(ANY_RULE, 3).error_code == ErrorCode.SECURITY_DISABLED
        created = client.call(CreateAclsRequest([allow(READ)]), 3)
        deleted = client.call(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]), 3)
    assert created.results[0].error_code == deleted.filter_results[0].error_code == ErrorCode.SECURITY_DISABLED


def test_rules_survive_a_restart(tmp_path: Any) -> None:
    with RunningBroker(**GUARDED, data=str(tmp_path)) as first:
        add_user(first, "alice")
        with RawClient(address_of(first, "open")) as client:
            create_topic(client, name=TOPIC)
        assert create_rules(first, allow(WRITE), allow(CREATE, CLUSTER_NAME, CLUSTER)) == [0, 0]
    with RunningBroker(**GUARDED, data=str(tmp_path)) as second, RawClient(address_of(second, "clients")) as client:
        assert log_in(client).error_code == 0
        assert (produce_code(client), fetch_code(client)) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
