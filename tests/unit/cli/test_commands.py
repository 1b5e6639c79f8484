"""Whole command lines against a fake broker: what they print, where, and how they end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.wire import message_codec
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import build_batch
from martlet.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from martlet.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from martlet.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from martlet.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from martlet.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from martlet.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from martlet.wire.records.record import read_records
from tests.unit.cli.command_line import broker_in_thread, lines, martlet
from tests.unit.client.fake_broker import SILENCE, FakeBroker

T0 = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> FakeBroker:
    made = FakeBroker()
    made.cluster.add_topic("orders", [1, 1])
    made.cluster.add_topic("audit", [1])
    return made


@pytest.fixture
def bootstrap(broker: FakeBroker) -> Iterator[str]:
    with broker_in_thread(broker) as address:
        yield address


def create_script(request: CreateTopicsRequest, version: int) -> bytes:
    [topic] = request.topics
    if topic.name == "orders":
        result = CreatableTopicResult(
            name=topic.name, error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="Topic 'orders' exists."
        )
    else:
        result = CreatableTopicResult(
            name=topic.name, topic_id=b"i" * 16, num_partitions=max(topic.num_partitions, 1), replication_factor=1
        )
    return message_codec.encode(CreateTopicsResponse(topics=[result]), version)


def delete_script(request: DeleteTopicsRequest, version: int) -> bytes:
    [topic] = request.topics
    code = 0 if topic.name == "orders" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    result = DeletableTopicResult(name=topic.name, error_code=code)
    return message_codec.encode(DeleteTopicsResponse(responses=[result]), version)


def test_topics_are_created_with_what_the_broker_made_of_them(broker: FakeBroker, bootstrap: str) -> None:
    broker.scripts[ApiKey.CREATE_TOPICS] = create_script
    ran = martlet("topic", "create", "new", "--partitions", "3", "--set", "retention.ms=5", "--bootstrap", bootstrap)
    assert ran == (0, "", "created new: 3 partitions, 1 replica\n")


def test_creating_what_exists_is_a_conflict_that_names_the_next_step(broker: FakeBroker, bootstrap: str) -> None:
    broker.scripts[ApiKey.CREATE_TOPICS] = create_script
    ran = martlet("topic", "create", "orders", "--bootstrap", bootstrap)
    assert ran == (
        5,
        "",
        lines(
            "error: Topic 'orders' exists.",
            " hint: `martlet topic describe NAME` shows it; with --if-not-exists this is no error",
        ),
    )
    ran = martlet("topic", "create", "orders", "--if-not-exists", "--json", "--bootstrap", bootstrap)
    assert (ran.exit_code, json.loads(ran.stdout)) == (0, [{"name": "orders", "created": False}])


def test_topics_are_listed_in_a_table_or_as_json(broker: FakeBroker, bootstrap: str) -> None:
    broker.append(T0, build_batch([(0, None, b"x", ())] * 12))
    assert martlet("topic", "list", "--bootstrap", bootstrap) == (
        0,
        lines("TOPIC   PARTITIONS  REPLICAS", "audit            1         1", "orders           2         1"),
        "",
    )
    ran = martlet("topic", "list", "--counts", "--json", "--bootstrap", bootstrap)
    assert [(topic["name"], topic["messages"]) for topic in json.loads(ran.stdout)] == [("audit", 0), ("orders", 12)]


def test_an_empty_cluster_says_what_to_do(broker: FakeBroker, bootstrap: str) -> None:
    broker.cluster.topics.clear()
    ran = martlet("topic", "list", "--bootstrap", bootstrap)
    assert ran == (0, "", "there are no topics; `martlet topic create NAME` makes one\n")


def describe_scripts(broker: FakeBroker) -> None:
    configs = [
        DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=1, documentation="How long."),
        DescribeConfigsResourceResult(name="segment.ms", value="7", config_source=5, documentation="How often."),
    ]
    described = DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=2, configs=configs)])
    partitions = [DescribeLogDirsPartition(partition_index=index, partition_size=1536 * index) for index in (0, 1)]
    topics = [DescribeLogDirsTopic(name="orders", partitions=partitions)]
    dirs = DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=topics)])
    broker.scripts[ApiKey.DESCRIBE_CONFIGS] = lambda request, version: message_codec.encode(described, version)
    broker.scripts[ApiKey.DESCRIBE_LOG_DIRS] = lambda request, version: message_codec.encode(dirs, version)


def test_a_topic_is_described_with_partitions_and_settings(broker: FakeBroker, bootstrap: str) -> None:
    describe_scripts(broker)
    broker.append(T0, build_batch([(0, None, b"x", ())] * 12))
    ran = martlet("topic", "describe", "orders", "--bootstrap", bootstrap)
    assert ran.stderr == ""
    assert ran.stdout == lines(
        "topic       orders",
        "id          AQEBAQEBAQEBAQEBAQEBAQ",
        "partitions  2",
        "replicas    1",
        "settings    retention.ms=5",
        "",
        "PARTITION  LEADER  EPOCH  REPLICAS  IN SYNC  FIRST  END  MESSAGES  SIZE",
        "        0       1      1  1         1            0   12        12  0 B",
        "        1       1      1  1         1            0    0         0  1.5 KiB",
    )


def test_the_metadata_store_has_a_flag_of_its_own() -> None:
    store = "etcd://one:2379,two:2379/martlet"
    shown = json.loads(martlet("config", "show", "--json", "--metadata", store).stdout)["metadata"]
    assert (shown["value"], shown["origin"], shown["from"]) == (store, "flag", "--metadata")
    refused = martlet("config", "show", "--metadata", "zookeeper://one:2181")
    assert refused.exit_code == 2
    assert (
        "flag --metadata: metadata: 'zookeeper://one:2181' is no etcd address; "
        "an etcd address looks like etcd://host:2379,host:2379/prefix"
    ) in refused.stderr


def test_a_topics_settings_are_shown_with_their_origin(broker: FakeBroker, bootstrap: str) -> None:
    describe_scripts(broker)
    ran = martlet("config", "show", "--topic", "orders", "--bootstrap", bootstrap)
    assert ran.stdout == lines(
        "SETTING       VALUE  ORIGIN   MEANING",
        "retention.ms  5      topic    How long.",
        "segment.ms    7      default  How often.",
    )


@pytest.mark.parametrize("command", [["topic", "describe", "nope"], ["consume", "nope"]])
def test_a_topic_that_is_not_there_is_not_found(bootstrap: str, command: list[str]) -> None:
    assert martlet(*command, "--bootstrap", bootstrap) == (
        3,
        "",
        lines(
            "error: there is no topic 'nope'",
            " hint: `martlet topic list` shows the topics, `martlet topic create` makes one",
        ),
    )


def test_altering_needs_something_to_change_and_no_contradiction() -> None:
    ran = martlet("topic", "alter", "orders")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: nothing to change; give --partitions, --set or --unset\n")
    ran = martlet("topic", "alter", "orders", "--set", "a=1", "--unset", "a")
    assert ran.stderr.startswith("error: --set and --unset both name a\n")


def test_deleting_asks_first(broker: FakeBroker, bootstrap: str) -> None:
    broker.scripts[ApiKey.DELETE_TOPICS] = delete_script
    ran = martlet("topic", "delete", "orders", "--bootstrap", bootstrap, stdin=b"n\n")
    assert (ran.exit_code, ran.stderr.splitlines()[-1]) == (1, "error: nothing was deleted")
    assert not broker.asked(ApiKey.DELETE_TOPICS)
    ran = martlet("topic", "delete", "orders", "--bootstrap", bootstrap, stdin=b"y\n")
    assert (ran.exit_code, ran.stderr.splitlines()[-1]) == (0, "deleted orders")


def test_deleting_without_a_terminal_names_the_flag(bootstrap: str) -> None:
    ran = martlet("topic", "delete", "orders", "--bootstrap", bootstrap)
    assert ran.exit_code == 2
    assert ran.stderr.endswith("\nerror: not a terminal: use --yes, which deletes without asking\n")


def test_deleting_what_is_not_there_is_an_error_unless_allowed(broker: FakeBroker, bootstrap: str) -> None:
    broker.scripts[ApiKey.DELETE_TOPICS] = delete_script
    assert martlet("topic", "delete", "nope", "--yes", "--bootstrap", bootstrap).exit_code == 3
    ran = martlet("topic", "delete", "nope", "orders", "--yes", "--if-exists", "--bootstrap", bootstrap)
    assert ran == (0, "", "nope does not exist\ndeleted orders\n")


def stored(broker: FakeBroker, partition: TopicPartition = T0) -> list[tuple[Any, Any, Any]]:
    log = bytes(broker.cluster.logs[partition])
    return [(record.key, record.value, record.headers) for record in read_records(log, 1 << 20)]


def test_one_message_is_published_and_its_place_shown(broker: FakeBroker, bootstrap: str) -> None:
    ran = martlet("publish", "audit", "hello", "--key", "k", "--header", "h=v", "--bootstrap", bootstrap)
    assert ran == (0, "", "published to audit, partition 0, offset 0\n")
    assert stored(broker, TopicPartition("audit", 0)) == [(b"k", b"hello", [("h", b"v")])]


def test_lines_of_standard_input_are_published_in_order(broker: FakeBroker, bootstrap: str) -> None:
    ran = martlet("publish", "orders", "--partition", "0", "--bootstrap", bootstrap, stdin=b"a\n\nb\nlast")
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr.startswith("published 4 messages to orders in ")
    assert [value for _, value, _ in stored(broker)] == [b"a", b"", b"b", b"last"]


def test_lines_of_a_file_are_published_with_keys(broker: FakeBroker, bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"k1\tv1\nno separator\nk2\tv\t2\n")
    arguments = ["publish", "orders", "--partition", "0", "--file", str(tmp_path / "input"), "--key-separator", r"\t"]
    ran = martlet(*arguments, "--json", "--compression", "zstd", "--acks", "1", "--bootstrap", bootstrap)
    assert json.loads(ran.stdout)["messages"] == 3
    assert [(key, value) for key, value, _ in stored(broker)] == [
        (b"k1", b"v1"),
        (None, b"no separator"),
        (b"k2", b"v\t2"),
    ]


def test_json_lines_are_published_with_all_they_say(broker: FakeBroker, bootstrap: str) -> None:
    line = b'{"key": "k", "value": {"a": 1}, "headers": {"h": "v"}, "partition": 0, "timestamp_ms": 5}\n'
    assert martlet("publish", "orders", "--jsonl", "--bootstrap", bootstrap, stdin=line).exit_code == 0
    assert stored(broker) == [(b"k", b'{"a":1}', [("h", b"v")])]


def test_a_bad_json_line_is_named_and_what_came_before_is_published(broker: FakeBroker, bootstrap: str) -> None:
    lines_in = b'{"value": "good", "partition": 0}\nbad\n'
    ran = martlet("publish", "orders", "--jsonl", "--bootstrap", bootstrap, stdin=lines_in)
    assert ran.exit_code == 2
    assert ran.stderr == lines(
        "published 1 message before this:",
        "error: line 2 of standard input: not JSON: Expecting value: line 1 column 1 (char 0)",
    )
    assert len(stored(broker)) == 1


def test_a_broker_that_goes_silent_is_a_timeout(broker: FakeBroker, bootstrap: str) -> None:
    broker.scripts[ApiKey.PRODUCE] = lambda request, version: SILENCE
    ran = martlet("publish", "orders", "x", "--timeout", "0.2", "--bootstrap", bootstrap)
    assert ran.exit_code == 7
    assert ran.stderr.startswith("error: 0 messages of 1 published, then: not delivered within 200 ms: ")
    assert ran.stderr.endswith(" hint: --timeout SECONDS waits longer\n")


def test_publishing_in_two_ways_at_once_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    ran = martlet("publish", "t", "message", "--file", str(tmp_path / "f"))
    assert ran.stderr.startswith("error: give messages as arguments or --file, not both\n")
    ran = martlet("publish", "t", "--key", "k", "--key-separator", ":")
    assert ran.stderr.startswith("error: give --key or --key-separator, not both\n")
    ran = martlet("publish", "t", "--jsonl", "--key", "k")
    assert "with --jsonl the key stands in each line" in ran.stderr


def test_messages_are_printed_up_to_the_end(broker: FakeBroker, bootstrap: str) -> None:
    broker.append(T0, build_batch([(7, b"k%d" % n, b"v%d" % n, [("h", b"x")]) for n in range(3)]))
    broker.append(TopicPartition("orders", 1), build_batch([(8, None, b"other", ())]))
    ran = martlet("consume", "orders", "--bootstrap", bootstrap)
    assert (ran.exit_code, sorted(ran.stdout.splitlines()), ran.stderr) == (0, ["other", "v0", "v1", "v2"], "")
    ran = martlet("consume", "orders", "--partition", "0", "--from", "-2", "--count", "1", "--bootstrap", bootstrap)
    assert ran.stdout == "v1\n"
    ran = martlet("consume", "orders", "--partition", "0", "--format", r"%p/%o %T %k=%s %h\n", "--bootstrap", bootstrap)
    assert ran.stdout == lines("0/0 7 k0=v0 h=x", "0/1 7 k1=v1 h=x", "0/2 7 k2=v2 h=x")
    ran = martlet("consume", "orders", "--partition", "0", "--from", "2", "--json", "--bootstrap", bootstrap)
    assert json.loads(ran.stdout)["offset"] == 2


def test_following_ends_with_the_count(broker: FakeBroker, bootstrap: str) -> None:
    broker.append(T0, build_batch([(0, None, b"v%d" % n, ()) for n in range(5)]))
    ran = martlet("consume", "orders", "--follow", "--count", "3", "--bootstrap", bootstrap)
    assert ran.stdout == "v0\nv1\nv2\n"


@pytest.mark.parametrize(
    ("arguments", "ending"),
    [
        (
            ["--from", "soon"],
            "'soon' is not a valid start; allowed are earliest, latest, -N (the last N of each partition), "
            "@TIME, or an offset\n",
        ),
        (["--format", "%z"], "%z means nothing; use %t %p %o %T %k %s %K %S %h %%\n"),
        (["--format", "%s", "--json"], "give --format or --json, not both\n"),
    ],
)
def test_a_wrong_consume_is_refused_with_what_is_allowed(arguments: list[str], ending: str) -> None:
    ran = martlet("consume", "orders", *arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert f"{ending} hint: " in ran.stderr


def test_a_mistyped_topic_is_answered_with_the_nearest_name(bootstrap: str) -> None:
    for command in (["topic", "describe", "order"], ["consume", "order"]):
        assert martlet(*command, "--bootstrap", bootstrap) == (
            3,
            "",
            "error: there is no topic 'order'\n hint: did you mean 'orders'? `martlet topic list` shows the topics\n",
        )
    ran = martlet("consume", "something-else", "--bootstrap", bootstrap)
    assert "hint: `martlet topic list` shows the topics, `martlet topic create` makes one\n" in ran.stderr


def describe_cluster(broker: FakeBroker) -> None:
    """Have the broker answer what `status` asks besides metadata."""

    def cluster(_: Any, version: int) -> bytes:
        member = DescribeClusterBroker(broker_id=1, host=broker.address.host, port=broker.address.port)
        return message_codec.encode(
            DescribeClusterResponse(cluster_id="c-1", controller_id=1, brokers=[member]), version
        )

    def configs(request: DescribeConfigsRequest, version: int) -> bytes:
        results = [
            DescribeConfigsResult(resource_type=one.resource_type, resource_name=one.resource_name)
            for one in request.resources
        ]
        return message_codec.encode(DescribeConfigsResponse(results=results), version)

    broker.versions |= {ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0)}
    broker.scripts |= {
        ApiKey.DESCRIBE_CLUSTER: cluster,
        ApiKey.DESCRIBE_CONFIGS: configs,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda _, version: message_codec.encode(
            ListPartitionReassignmentsResponse(), version
        ),
    }


def test_the_status_shows_cluster_and_brokers(broker: FakeBroker, bootstrap: str) -> None:
    describe_cluster(broker)
    ran = martlet("status", "--bootstrap", bootstrap)
    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[:5] == [
        "cluster           c-1",
        "topics            2",
        "partitions        3",
        "without leader    0",
        "under-replicated  0",
    ]
    assert ran.stdout.splitlines()[-1].split() == ["1", bootstrap, "-", "running", "3", "yes"]
    report = json.loads(martlet("status", "--json", "--bootstrap", bootstrap).stdout)
    assert (report["reachable"], report["apis"]["FETCH"]) == (True, [4, 18])


def test_a_check_of_the_status_fails_when_a_partition_has_no_leader(broker: FakeBroker, bootstrap: str) -> None:
    describe_cluster(broker)
    broker.cluster.topics["audit"].leaders = [-1]
    assert martlet("status", "--bootstrap", bootstrap).exit_code == 0
    assert martlet("status", "--check", "--bootstrap", bootstrap).exit_code == 8


def test_with_no_broker_every_verb_says_where_why_and_what_to_do(bootstrap: str) -> None:
    with broker_in_thread(FakeBroker()) as gone:
        pass
    for command in (["status"], ["topic", "list"], ["publish", "t", "x"], ["consume", "t"]):
        assert martlet(*command, "--bootstrap", gone) == (
            6,
            "",
            f"error: no broker reachable at {gone}: connection refused; start one with `martlet up`\n",
        )


def test_the_environment_names_the_broker_too(broker: FakeBroker, bootstrap: str) -> None:
    assert martlet("topic", "list", environment={"MARTLET_BOOTSTRAP": bootstrap}).exit_code == 0
    ran = martlet("topic", "list", environment={"MARTLET_BOOTSTRAP": "a:b:c"})
    assert ran.exit_code == 2
    assert "'a:b:c' is not HOST:PORT; write an IPv6 address in brackets" in ran.stderr


def test_topic_names_are_completed_from_the_broker_and_failure_is_silent(bootstrap: str) -> None:
    environment = {
        "_MARTLET_COMPLETE": "bash_complete",
        "COMP_WORDS": "martlet topic describe or",
        "COMP_CWORD": "3",
        "MARTLET_BOOTSTRAP": bootstrap,
    }
    assert martlet(environment=environment) == (0, "plain,orders\n", "")
    assert martlet(environment=environment | {"MARTLET_BOOTSTRAP": "127.0.0.1:1"}) == (0, "\n", "")
