"""Settings of topics and brokers through DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, every version."""

from typing import Any

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.messages import alter_configs, incremental_alter_configs
from martlet.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from martlet.wire.messages.metadata import MetadataRequest
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch_of, create_topic, publish

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
FROM_TOPIC, FROM_DEFAULT = 1, 5


def _describe(
    client: RawClient, name: str, *keys: str, kind: int = TOPIC, version: int = 4, documentation: bool = False
) -> DescribeConfigsResult:
    asked = DescribeConfigsResource(kind, name, list(keys) or None)
    request = DescribeConfigsRequest([asked], include_synonyms=True, include_documentation=documentation)
    (result,) = client.call(request, version).results
    assert isinstance(result, DescribeConfigsResult)
    return result


def _entries(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {entry.name: entry for entry in result.configs}


def _change(client: RawClient, topic: str, *changes: tuple[str, int, str | None], version: int = 1, **more: Any) -> int:
    configs = [incremental_alter_configs.AlterableConfig(*change) for change in changes]
    resource = incremental_alter_configs.AlterConfigsResource(more.pop("kind", TOPIC), topic, configs)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource], **more)
    (result,) = client.call(request, version).responses
    assert (result.error_code == ErrorCode.NONE) == (not result.error_message)
    code: int = result.error_code
    return code


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_settings_tell_their_origin(client: RawClient, version: int) -> None:
    topic = create_topic(client, retention_ms="123456")
    entries = _entries(_describe(client, topic, version=version, documentation=True))
    own, default = entries["retention.ms"], entries["segment.bytes"]
    assert (own.value, own.config_source) == ("123456", FROM_TOPIC)
    assert default.config_source != FROM_TOPIC
    assert [synonym.value for synonym in own.synonyms] == ["123456"]
    assert [synonym.name for synonym in default.synonyms] == ["log.segment.bytes"]
    assert {"cleanup.policy", "max.message.bytes", "min.insync.replicas", "martlet.flush"} <= set(entries)
    if version >= 3:
        assert own.config_type > 0
        assert own.documentation


def test_only_the_settings_asked_for_are_described(client: RawClient) -> None:
    topic = create_topic(client)
    assert set(_entries(_describe(client, topic, "retention.ms", "no.such"))) == {"retention.ms"}
    assert len(_entries(_describe(client, topic))) > 15


def test_the_brokers_settings_are_described(client: RawClient) -> None:
    (node,) = client.call(MetadataRequest(topics=[]), 12).brokers
    for version in range(1, 5):
        entries = _entries(_describe(client, str(node.node_id), kind=BROKER, version=version))
        assert entries["num.partitions"].value == "1"
        assert entries["auto.create.topics.enable"].value == "true"
    assert _describe(client, str(node.node_id + 1), kind=BROKER).error_code == ErrorCode.INVALID_REQUEST
    assert _describe(client, "", kind=BROKER).error_code == ErrorCode.NONE


def test_unknown_resources_are_refused_one_by_one(client: RawClient) -> None:
    topic = create_topic(client)
    asked = [
        DescribeConfigsResource(TOPIC, topic),
        DescribeConfigsResource(TOPIC, "never-created"),
        DescribeConfigsResource(77, "x"),
        DescribeConfigsResource(BROKER, "not a number"),
    ]
    codes = [result.error_code for result in client.call(DescribeConfigsRequest(asked), 4).results]
    assert codes[:2] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert ErrorCode.NONE not in codes[2:]


@pytest.mark.parametrize("version", [0, 1])
def test_single_settings_are_changed_and_taken_back(client: RawClient, version: int) -> None:
    topic = create_topic(client, retention_ms="111", segment_bytes="1048576")
    assert _change(client, topic, ("retention.ms", SET, "222"), version=version, validate_only=True) == ErrorCode.NONE
    assert _entries(_describe(client, topic))["retention.ms"].value == "111"
    assert _change(client, topic, ("retention.ms", SET, "222"), version=version) == ErrorCode.NONE
    entries = _entries(_describe(client, topic))
    assert (entries["retention.ms"].value, entries["segment.bytes"].value) == ("222", "1048576")
    assert _change(client, topic, ("retention.ms", DELETE, None), version=version) == ErrorCode.NONE
    assert _entries(_describe(client, topic))["retention.ms"].config_source != FROM_TOPIC


def test_lists_are_appended_to_and_subtracted_from(client: RawClient) -> None:
    topic = create_topic(client, cleanup_policy="delete")
    assert _change(client, topic, ("cleanup.policy", APPEND, "compact")) == ErrorCode.NONE
    assert set(str(_entries(_describe(client, topic))["cleanup.policy"].value).split(",")) == {"delete", "compact"}
    assert _change(client, topic, ("cleanup.policy", SUBTRACT, "delete")) == ErrorCode.NONE
    assert _entries(_describe(client, topic))["cleanup.policy"].value == "compact"


@pytest.mark.parametrize(
    "change",
    [
        ("no.such.setting", SET, "1"),
        ("retention.ms", SET, "soon"),
        ("retention.ms", SET, None),
        ("retention.ms", APPEND, "5"),
        ("retention.ms", 9, "5"),
        ("max.message.bytes", SET, "-1"),
    ],
)
def test_a_change_that_cannot_be_changes_nothing(client: RawClient, change: tuple[str, int, str | None]) -> None:
    topic = create_topic(client)
    before = _entries(_describe(client, topic))
    assert _change(client, topic, ("segment.bytes", SET, "2000000"), change) in (
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
    )
    assert _entries(_describe(client, topic)) == before
    assert _change(client, "never-created", change) != ErrorCode.NONE


def test_what_kafkas_reassignment_tool_takes_back_when_it_is_done_is_taken_back(client: RawClient) -> None:
    (node,) = client.call(MetadataRequest(topics=[]), 12).brokers
    topic, broker = create_topic(client), str(node.node_id)
    rates = ["leader.replication.throttled.rate", "follower.replication.throttled.rate"]
    rates.append("replica.alter.log.dirs.io.max.bytes.per.second")
    for name in rates:
        assert _change(client, broker, (name, SET, "1000000"), kind=BROKER) == ErrorCode.NONE
    for _ in range(2):  # the second time nothing is set any more
        assert _change(client, broker, *((name, DELETE, "") for name in rates), kind=BROKER) == ErrorCode.NONE
        sources = {entry.config_source for entry in _describe(client, broker, *rates, kind=BROKER).configs}
        assert sources == {FROM_DEFAULT}
        replicas = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
        assert _change(client, topic, *((name, DELETE, "") for name in replicas)) == ErrorCode.NONE


def test_every_topic_setting_of_kafka_can_be_set_to_kafkas_default(client: RawClient) -> None:
    topic = create_topic(client)
    entries = _entries(_describe(client, topic))
    values = {name: entry.value for name, entry in entries.items()}
    values |= {"flush.ms": str(2**63 - 1), "flush.messages": str(2**63 - 1), "message.downconversion.enable": "true"}
    assert len(values) > 33
    assert _change(client, topic, *((name, SET, value) for name, value in values.items())) == ErrorCode.NONE
    assert publish(client, topic, batch_of(b"a")).error_code == ErrorCode.NONE
    stored = {name: entry.value for name, entry in _entries(_describe(client, topic)).items()}
    assert stored == values
    assert _change(client, topic, *((name, DELETE, None) for name in values)) == ErrorCode.NONE
    assert _entries(_describe(client, topic)) == entries


def test_a_topics_retention_has_the_synonyms_that_kafka_names(client: RawClient) -> None:
    entries = _entries(_describe(client, create_topic(client), "retention.ms", "segment.bytes"))
    assert entries["retention.ms"].synonyms == []
    assert [synonym.name for synonym in entries["segment.bytes"].synonyms] == ["log.segment.bytes"]


def test_a_broker_keeps_unknown_settings_as_kafka_does_and_topics_refuse_them(client: RawClient) -> None:
    (node,) = client.call(MetadataRequest(topics=[]), 12).brokers
    broker = str(node.node_id)
    assert _change(client, broker, ("plugin.key", SET, "secret"), kind=BROKER) == ErrorCode.NONE
    (entry,) = _describe(client, broker, "plugin.key", kind=BROKER).configs
    assert (entry.value, entry.is_sensitive, entry.config_type) == (None, True, 0)
    assert [synonym.value for synonym in entry.synonyms] == [None]
    assert _change(client, broker, ("plugin.key", DELETE, None), kind=BROKER) == ErrorCode.NONE
    assert _describe(client, broker, "plugin.key", kind=BROKER).configs == []
    assert _change(client, broker, ("num.partitions", SET, "2"), kind=BROKER) == ErrorCode.INVALID_REQUEST
    assert _change(client, broker, ("ssl.keystore.location", SET, "x"), kind=BROKER) == ErrorCode.INVALID_CONFIG
    topic = create_topic(client)
    assert _change(client, topic, ("plugin.key", SET, "secret")) == ErrorCode.INVALID_CONFIG
    assert _change(client, topic, ("plugin.key", DELETE, None)) == ErrorCode.NONE


@pytest.mark.parametrize("version", range(3))
def test_the_old_way_replaces_all_settings(client: RawClient, version: int) -> None:
    topic = create_topic(client, retention_ms="111", segment_bytes="1048576")
    wanted = [alter_configs.AlterableConfig("retention.bytes", "5000000")]
    resource = alter_configs.AlterConfigsResource(TOPIC, topic, wanted)
    for validate_only in (True, False):
        request = alter_configs.AlterConfigsRequest([resource], validate_only)
        assert client.call(request, version).responses[0].error_code == ErrorCode.NONE
        changed = {name for name, e in _entries(_describe(client, topic)).items() if e.config_source == FROM_TOPIC}
        assert changed == ({"retention.ms", "segment.bytes"} if validate_only else {"retention.bytes"})
    bad = alter_configs.AlterConfigsResource(TOPIC, topic, [alter_configs.AlterableConfig("retention.ms", "x")])
    assert client.call(alter_configs.AlterConfigsRequest([bad]), version).responses[0].error_code == (
        ErrorCode.INVALID_CONFIG
    )


def test_a_changed_setting_takes_effect_at_once(client: RawClient) -> None:
    topic = create_topic(client)
    assert publish(client, topic, batch_of(bytes(2000))).error_code == ErrorCode.NONE
    assert _change(client, topic, ("max.message.bytes", SET, "1000")) == ErrorCode.NONE
    assert publish(client, topic, batch_of(bytes(2000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert _change(client, topic, ("max.message.bytes", SET, "5000")) == ErrorCode.NONE
    assert publish(client, topic, batch_of(bytes(2000))).error_code == ErrorCode.NONE


def test_a_clusters_default_reaches_topics_without_a_value_of_their_own(client: RawClient) -> None:
    plain, own = create_topic(client), create_topic(client, retention_ms="777")
    (node,) = client.call(MetadataRequest(topics=[]), 12).brokers
    assert _change(client, "", ("log.retention.ms", SET, "888"), kind=BROKER) == ErrorCode.NONE
    try:
        assert _entries(_describe(client, plain))["retention.ms"].value == "888"
        assert _entries(_describe(client, own))["retention.ms"].value == "777"
        assert _entries(_describe(client, str(node.node_id), kind=BROKER))["log.retention.ms"].value == "888"
    finally:
        assert _change(client, "", ("log.retention.ms", DELETE, None), kind=BROKER) == ErrorCode.NONE
    assert _entries(_describe(client, plain))["retention.ms"].config_source == FROM_DEFAULT
