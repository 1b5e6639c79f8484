"""Topic names that try to leave the data directory, break the log or fool a reader: refused everywhere."""

from pathlib import Path

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.fetch import FetchPartition
from martlet.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from martlet.wire.messages.delete_topics import DeleteTopicsRequest
from martlet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from martlet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.raw_client import RawClient
from tests.broker.requests import (
    batch_of,
    create_topic,
    describe,
    fetch_request,
    list_offset,
    publish,
    unique_topic,
)

HOSTILE = [
    "",
    ".",
    "..",
    "../../escape",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "nul\x00inside",
    "new\nline",
    "trailing-newline\n",
    "escape\x1b[2J",
    "white space",
    "ＦＵＬＬ-width",
    "cyrillic-а",
    "rtl-\u202etxt",
    "x" * 250,
    "y" * 32_000,
    "%s%n{0}",
    "semi;colon",
]
NO_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


def _tree(broker: RunningBroker) -> set[str]:
    root = Path(broker.settings.data)
    siblings = {path.name for path in root.parent.iterdir() if "escape" in path.name}
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()} | siblings


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_refused_and_leaves_no_trace(broker: RunningBroker, client: RawClient, name: str) -> None:
    before = _tree(broker)
    (created,) = client.call(CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)]), 7).topics
    assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert created.name == name
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    (described,) = client.call(request, 9).topics
    assert described.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert publish(client, name, batch_of(b"x")).error_code in NO_TOPIC
    fetched = client.fetch(fetch_request(name, FetchPartition(0))).topics[0].partitions[0]
    assert fetched.error_code in NO_TOPIC
    assert list_offset(client, name, -1).error_code in NO_TOPIC
    (deleted,) = client.call(DeleteTopicsRequest(topic_names=[name]), 5).responses
    assert deleted.error_code in NO_TOPIC
    (settings,) = client.call(DescribeConfigsRequest([DescribeConfigsResource(2, name)]), 4).results
    assert settings.error_code in NO_TOPIC
    assert _tree(broker) == before


@pytest.mark.parametrize("name", ["a", "A-1", "x" * 249, "with.dot", "under_score", "...", "-", "0"])
def test_a_name_of_allowed_characters_is_taken(client: RawClient, name: str) -> None:
    create_topic(client, name=name)
    assert describe(client, name).name == name
    assert publish(client, name, batch_of(b"x")).error_code == ErrorCode.NONE
    client.call(DeleteTopicsRequest(topic_names=[name]), 5)


def test_names_that_differ_only_in_dot_and_underscore_do_not_both_exist(client: RawClient) -> None:
    base = unique_topic()
    create_topic(client, name=f"{base}.x")
    (created,) = client.call(CreateTopicsRequest(topics=[CreatableTopic(f"{base}_x", 1, 1)]), 7).topics
    assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("partitions", [0, -2, -(2**31), 2**31 - 1, 10_000_000])
def test_an_absurd_number_of_partitions_is_refused_at_once(client: RawClient, partitions: int) -> None:
    (created,) = client.call(CreateTopicsRequest(topics=[CreatableTopic(unique_topic(), partitions, 1)]), 7).topics
    assert created.error_code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("replicas", [0, -2, 2, 32767])
def test_an_impossible_replication_factor_is_refused(client: RawClient, replicas: int) -> None:
    (created,) = client.call(CreateTopicsRequest(topics=[CreatableTopic(unique_topic(), 1, replicas)]), 7).topics
    assert created.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-5"),
        ("retention.ms", None),
        ("segment.bytes", "99999999999999999999"),
        ("cleanup.policy", "delete,explode"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("martlet.flush", "whenever"),
        ("retention.ms\n", "1"),
        ("", ""),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_nothing_created(
    client: RawClient, name: str, value: str | None
) -> None:
    topic = unique_topic()
    asked = CreatableTopic(topic, 1, 1, [], [CreatableTopicConfig(name, value)])
    (created,) = client.call(CreateTopicsRequest(topics=[asked]), 7).topics
    assert created.error_code == ErrorCode.INVALID_CONFIG
    assert created.error_message
    assert describe(client, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
