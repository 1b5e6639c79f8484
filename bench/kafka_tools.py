"""`./dev bench kafka_tools`: Kafka's own command-line tools against three Martlet brokers, one line for each check.

    python -m bench.kafka_tools [--only NAME]... [--against kafka] [--list] [--work-dir DIR]

The tools are those of Kafka's distribution, run from Maven Central's jars, which are fetched once into the cache of
`bench.peers`; Java and Maven must be there. Each check uses topics and groups of its own and is judged by exit codes
and by what is printed. The exit status is 1 when a check fails, 2 when the jars cannot be had. With `--against kafka`
the same checks run against three nodes of Kafka itself: a check that fails there expects something wrong.
"""

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.cluster.running_cluster import RunningCluster

from bench.peers.systems.cache import Missing
from bench.peers.systems.kafka import Kafka, java
from bench.peers.systems.system import Durability
from bench.processes import end_with_children
from bench.report import say

_BROKERS: Final = (1, 2, 3)
_JVM: Final = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_TOOL_SECONDS_MAX: Final = 180.0
_PATIENCE_SECONDS: Final = 60.0
_GROUPS: Final = 60
_SLOW_BYTES_PER_SECOND: Final = 100_000
_MEGABYTE: Final = 1_000_000

_TOOLS: Final = {
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}
"""The script of Kafka's distribution without `kafka-`, and the program it starts."""


class CheckFailed(Exception):
    """What was expected and what came instead."""


@dataclass(frozen=True)
class Lab:
    """The cluster under the tools, and a place for files."""

    servers: str
    directory: Path

    def run(self, tool: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """What the tool prints; CheckFailed when it ends with another exit code."""
        to_servers = ("--bootstrap-server", self.servers)
        # One of them wants it after its verb, others before theirs.
        words = (*arguments, *to_servers) if tool == "cluster" else (*to_servers, *arguments)
        command = java(_TOOLS[tool], *words, jvm=_JVM)
        try:
            done = subprocess.run(
                command,
                input=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_TOOL_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired as error:
            output = error.stdout.decode("utf-8", "replace") if isinstance(error.stdout, bytes) else ""
            raise CheckFailed(f"kafka-{tool} has not ended after {_TOOL_SECONDS_MAX:.0f} s: {_brief(output)}") from None
        if done.returncode != code:
            raise CheckFailed(f"kafka-{tool} {' '.join(arguments)} ended with {done.returncode}: {_brief(done.stdout)}")
        return done.stdout

    def file(self, name: str, content: object) -> str:
        """The path of a file with this content as JSON."""
        path = self.directory / name
        path.write_text(json.dumps(content), "utf-8")
        return str(path)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def topic(self, name: str, *, partitions: int = 3, replicas: Sequence[int] = ()) -> str:
        """A new topic; `replicas` are those of its one partition."""
        wanted = 1 if replicas else partitions
        topic = NewTopic(name, wanted, len(_BROKERS))
        if replicas:
            topic = NewTopic(name, wanted, replica_assignment=[list(replicas)])
        admin = self.admin()
        admin.create_topics([topic], operation_timeout=30)[name].result(30)

        def is_there() -> bool:
            known = admin.list_topics(timeout=10).topics.get(name)
            return (
                known is not None
                and len(known.partitions) == wanted
                and all(set(one.isrs) == set(one.replicas) and one.leader > 0 for one in known.partitions.values())
            )

        wait_until(is_there, f"topic {name} with all its replicas")
        return name

    def publish(self, topic: str, count: int, size: int = 10) -> None:
        """This many messages, over all partitions."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for number in range(count):
            while True:
                try:
                    producer.produce(topic, b"%d " % number + bytes(max(0, size - 10)), key=b"%d" % number)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(_PATIENCE_SECONDS):
            raise CheckFailed(f"publishing to {topic} does not end")


def _brief(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    return " | ".join(lines[-6:])[-700:] or "nothing was printed"


def expect(text: str, *patterns: str) -> None:
    """Every pattern is found in what was printed."""
    for pattern in patterns:
        if not re.search(pattern, text, re.MULTILINE):
            raise CheckFailed(f"no {pattern!r} in: {_brief(text)}")


def refuse(text: str, *patterns: str) -> None:
    """No pattern is found in what was printed."""
    for pattern in patterns:
        if found := re.search(pattern, text, re.MULTILINE):
            raise CheckFailed(f"{found.group(0)!r} in: {_brief(text)}")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Ask until it is so; an error of the client means not yet."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with contextlib.suppress(KafkaException):
            if condition():
                return
        if time.monotonic() > deadline:
            raise CheckFailed(f"waited {_PATIENCE_SECONDS:.0f} s for {what}")
        time.sleep(0.2)


# --- the checks


def topics(lab: Lab) -> None:
    """kafka-topics: create, list, describe, alter, delete."""
    made = lab.run(
        "topics", "--create", "--topic", "tools", "--partitions", "2", "--replication-factor", "3",
        "--config", "retention.ms=3600000",
    )  # fmt: skip
    expect(made, r"^Created topic tools\.$")
    expect(lab.run("topics", "--create", "--topic", "tools", code=1), r"TopicExistsException")
    expect(lab.run("topics", "--list"), r"^tools$")
    described = lab.run("topics", "--describe", "--topic", "tools")
    expect(described, r"PartitionCount: 2\s+ReplicationFactor: 3\s+Configs: .*retention\.ms=3600000", r"Partition: 1\s")
    lab.run("topics", "--alter", "--topic", "tools", "--partitions", "4")
    expect(lab.run("topics", "--describe", "--topic", "tools"), r"PartitionCount: 4", r"Partition: 3\s")
    for flag in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        refuse(lab.run("topics", "--describe", "--topic", "tools", flag), r"Partition: ")
    lab.run("topics", "--delete", "--topic", "tools")
    refuse(lab.run("topics", "--list"), r"^tools$")


def topic_configs(lab: Lab) -> None:
    """kafka-configs of a topic; one that does not exist is refused by its name."""
    lab.topic("configs")
    of_topic = ("--entity-type", "topics", "--entity-name", "configs")
    changes = "retention.ms=7200000,compression.type=zstd,segment.jitter.ms=0,preallocate=false"
    expect(lab.run("configs", "--alter", *of_topic, "--add-config", changes), r"Completed updating config for topic")
    expect(lab.run("configs", "--describe", *of_topic), r"retention\.ms=7200000", r"compression\.type=zstd")
    lab.run("configs", "--alter", *of_topic, "--delete-config", "retention.ms")
    refuse(lab.run("configs", "--describe", *of_topic), r"^\s*retention\.ms=7200000")
    unknown = lab.run("configs", "--alter", *of_topic, "--add-config", "no.such.setting=1", code=1)
    expect(unknown, r"no\.such\.setting")


def broker_configs(lab: Lab) -> None:
    """kafka-configs of a broker and of the cluster's defaults."""
    of_broker = ("--entity-type", "brokers", "--entity-name", "1")
    rates = "leader.replication.throttled.rate=1000000,follower.replication.throttled.rate=1000000"
    lab.run("configs", "--alter", *of_broker, "--add-config", rates)
    expect(lab.run("configs", "--describe", *of_broker), r"leader\.replication\.throttled\.rate=1000000")
    deleted = "leader.replication.throttled.rate,follower.replication.throttled.rate"
    lab.run("configs", "--alter", *of_broker, "--delete-config", deleted)
    refuse(lab.run("configs", "--describe", *of_broker), r"throttled\.rate=1000000")
    expect(lab.run("configs", "--describe", *of_broker, "--all"), r"log\.retention\.ms=", r"advertised\.listeners=")
    every = ("--entity-type", "brokers", "--entity-default")
    lab.run("configs", "--alter", *every, "--add-config", "log.cleaner.backoff.ms=20000")
    expect(lab.run("configs", "--describe", *every), r"log\.cleaner\.backoff\.ms=20000")
    lab.run("configs", "--alter", *every, "--delete-config", "log.cleaner.backoff.ms")


def group_configs(lab: Lab) -> None:
    """kafka-configs of a group."""
    of_group = ("--entity-type", "groups", "--entity-name", "configs-group")
    lab.run("configs", "--alter", *of_group, "--add-config", "consumer.session.timeout.ms=50000")
    expect(lab.run("configs", "--describe", *of_group), r"consumer\.session\.timeout\.ms=50000")


def console(lab: Lab) -> None:
    """kafka-console-producer and kafka-console-consumer, with keys, from the beginning, in both group protocols."""
    lab.topic("console", partitions=1)
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    lab.run("console-producer", "--topic", "console", *properties, stdin="a:one\nb:two\na:three\n")
    for protocol in ("classic", "consumer"):
        read = lab.run(
            "console-consumer", "--topic", "console", "--from-beginning", "--max-messages", "3",
            "--timeout-ms", "60000", "--group", f"console-{protocol}",
            "--command-property", f"group.protocol={protocol}",
            "--formatter-property", "print.key=true", "--formatter-property", "key.separator=:",
        )  # fmt: skip
        expect(read, r"^a:one$", r"^b:two$", r"^a:three$", r"Processed a total of 3 messages")
    expect(
        lab.run(
            "console-consumer", "--topic", "console", "--partition", "0", "--offset", "2", "--max-messages", "1",
            "--timeout-ms", "60000",
        ),
        r"^three$",
    )  # fmt: skip


def get_offsets(lab: Lab) -> None:
    """kafka-get-offsets: latest, earliest, by time, the largest time."""
    lab.topic("offsets", partitions=1)
    before_ms = time.time_ns() // 1_000_000 - 10_000
    lab.publish("offsets", 10)
    for asked, offset in (("-1", 10), ("-2", 0), ("earliest", 0), ("max-timestamp", r"\d"), (str(before_ms), 0)):
        found = lab.run("get-offsets", "--topic", "offsets", "--time", asked)
        expect(found, rf"^offsets:0:{offset}$")


def groups_after_all_offsets(lab: Lab) -> None:
    """kafka-get-offsets without --topic, a console consumer on __consumer_offsets; then 60 groups work."""
    lab.topic("positions")
    lab.publish("positions", 300)
    # With one group most partitions of __consumer_offsets are there and were never written.
    commit_all(lab, ["positions-first"], 1)
    expect(lab.run("get-offsets"), r"^positions:0:\d+$", r"^__consumer_offsets:0:\d+$")
    lab.run(
        "console-consumer", "--topic", "__consumer_offsets", "--from-beginning", "--max-messages", "1000000",
        "--timeout-ms", "5000",
    )  # fmt: skip
    names = [f"positions-{number}" for number in range(_GROUPS)]
    commit_all(lab, names, 2)
    listed = lab.run("consumer-groups", "--list")
    expect(listed, *(rf"^{name}$" for name in names))
    described = lab.run("consumer-groups", "--describe", "--all-groups")
    expect(described, *(rf"^{name}\s+positions\s+0\s+2\s" for name in names))


def commit_all(lab: Lab, names: Sequence[str], offset: int) -> None:
    """A position of each group for partition 0 of `positions`, committed and read back."""
    admin = lab.admin()
    for name in names:
        wanted = ConsumerGroupTopicPartitions(name, [TopicPartition("positions", 0, offset)])

        def commit(wanted: ConsumerGroupTopicPartitions = wanted) -> bool:
            (done,) = admin.alter_consumer_group_offsets([wanted], request_timeout=10).values()
            return all(one.error is None for one in done.result(15).topic_partitions)

        wait_until(commit, f"group {name} to commit")
        consumer = Consumer({"bootstrap.servers": lab.servers, "group.id": name, "log_level": 0})
        (found,) = consumer.committed([TopicPartition("positions", 0)], 30)
        consumer.close()
        if found.offset != offset:
            raise CheckFailed(f"group {name} is at {found.offset} after a commit of {offset}")


def consumer_groups(lab: Lab) -> None:
    """kafka-consumer-groups and kafka-groups: list, describe, reset offsets, delete offsets, delete."""
    lab.topic("grouped", partitions=1)
    lab.publish("grouped", 20)
    consumer = Consumer(
        {"bootstrap.servers": lab.servers, "group.id": "grouped", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe(["grouped"])
    read = consumer.consume(5, _PATIENCE_SECONDS)
    if len(read) != 5:
        raise CheckFailed(f"the member has read {len(read)} of 5 messages")
    consumer.commit(offsets=[TopicPartition("grouped", 0, 5)], asynchronous=False)
    expect(lab.run("consumer-groups", "--list", "--state"), r"^grouped\s+Stable")
    expect(lab.run("groups", "--list"), r"^grouped\s+\w+\s+consumer")
    expect(lab.run("consumer-groups", "--describe", "--group", "grouped"), r"^grouped\s+grouped\s+0\s+\d+\s+20\s+\d+\s")
    members = lab.run("consumer-groups", "--describe", "--group", "grouped", "--members", "--verbose")
    expect(members, r"^grouped\s+\S+\s+\S+\s+\S+\s+1\s")
    expect(lab.run("consumer-groups", "--describe", "--group", "grouped", "--state"), r"range\s+Stable")
    consumer.close()
    to_offset = ("--reset-offsets", "--group", "grouped", "--topic", "grouped")
    expect(lab.run("consumer-groups", *to_offset, "--to-offset", "7", "--dry-run"), r"^grouped\s+grouped\s+0\s+7\b")
    lab.run("consumer-groups", *to_offset, "--to-offset", "7", "--execute")
    expect(lab.run("consumer-groups", "--describe", "--group", "grouped"), r"^grouped\s+grouped\s+0\s+7\s+20\s+13\b")
    lab.run("consumer-groups", *to_offset, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    expect(lab.run("consumer-groups", "--describe", "--group", "grouped"), r"^grouped\s+grouped\s+0\s+0\s+20\s+20\b")
    lab.run("consumer-groups", "--delete-offsets", "--group", "grouped", "--topic", "grouped")
    lab.run("consumer-groups", "--delete", "--group", "grouped")
    refuse(lab.run("consumer-groups", "--list"), r"^grouped$")


def share_groups(lab: Lab) -> None:
    """kafka-console-share-consumer, which is Java's KafkaShareConsumer, and kafka-share-groups: show, move, delete."""
    lab.topic("shared", partitions=3)
    lab.publish("shared", 30)
    of_group = ("--entity-type", "groups", "--entity-name", "shared")
    lab.run("configs", "--alter", *of_group, "--add-config", "share.auto.offset.reset=earliest")
    read = ("--topic", "shared", "--group", "shared", "--max-messages", "30", "--timeout-ms", "30000")
    expect(lab.run("console-share-consumer", *read), r"Processed a total of 30 messages")
    expect(lab.run("share-groups", "--list", "--state"), r"^shared\s+Empty")
    expect(lab.run("groups", "--list"), r"^shared\s+Share\s+share")
    described = lab.run("share-groups", "--describe", "--group", "shared")
    expect(described, *(rf"^shared\s+shared\s+{index}\s+[1-9]\d*\s+0\b" for index in range(3)))
    to_start = ("--reset-offsets", "--group", "shared", "--topic", "shared", "--to-earliest")
    expect(
        lab.run("share-groups", *to_start, "--dry-run"), *(rf"^shared\s+shared\s+{index}\s+0\b" for index in range(3))
    )
    lab.run("share-groups", *to_start, "--execute")
    described = lab.run("share-groups", "--describe", "--group", "shared")
    expect(described, *(rf"^shared\s+shared\s+{index}\s+0\s+[1-9]\d*\b" for index in range(3)))
    expect(lab.run("console-share-consumer", *read), r"Processed a total of 30 messages")
    lab.run("share-groups", "--delete-offsets", "--group", "shared", "--topic", "shared")
    expect(lab.run("share-groups", "--describe", "--group", "shared"), r"has no offset information")
    lab.run("share-groups", "--delete", "--group", "shared")
    refuse(lab.run("share-groups", "--list"), r"^shared$")


def cluster(lab: Lab) -> None:
    """kafka-cluster and kafka-broker-api-versions."""
    expect(lab.run("cluster", "cluster-id"), r"Cluster ID: \S+")
    expect(lab.run("cluster", "list-endpoints"), *(rf"^{broker}\s+127\.0\.0\.1\s" for broker in _BROKERS))
    versions = lab.run("broker-api-versions")
    expect(versions, *(rf"\(id: {broker} rack: " for broker in _BROKERS), r"Produce\(0\): 0 to 1\d")


def quorum(lab: Lab) -> None:
    """kafka-metadata-quorum."""
    status = lab.run("metadata-quorum", "describe", "--status")
    expect(status, r"^ClusterId:\s+\S", r"^LeaderId:\s+\d", r"^LeaderEpoch:\s+\d", r"^CurrentVoters:\s")
    expect(lab.run("metadata-quorum", "describe", "--replication"), r"^NodeId\s", r"Leader\s*$")


def features(lab: Lab) -> None:
    """kafka-features: describe, and a change that is refused with a sentence."""
    expect(lab.run("features", "describe"), r"Feature: metadata\.version\s.*FinalizedVersionLevel: \S+")
    expect(lab.run("features", "upgrade", "--feature", "no.such.feature=3", code=1), r"no\.such\.feature")


def log_dirs(lab: Lab) -> None:
    """kafka-log-dirs: of a topic that is used and of one that never was."""
    lab.topic("used")
    lab.topic("unused")
    lab.publish("used", 1_000, 100)
    for topic, size in (("used", r"[1-9]\d*"), ("unused", "0")):
        text = lab.run("log-dirs", "--describe", "--topic-list", topic)
        for partition in range(3):
            expect(text, rf'"partition":"{topic}-{partition}","size":{size},"offsetLag":0,"isFuture":false')
    expect(lab.run("log-dirs", "--describe", "--broker-list", "2"), r'"broker":2', r'"error":null')


def delete_records(lab: Lab) -> None:
    """kafka-delete-records."""
    lab.topic("shortened", partitions=1)
    lab.publish("shortened", 20)
    wanted = {"version": 1, "partitions": [{"topic": "shortened", "partition": 0, "offset": 8}]}
    text = lab.run("delete-records", "--offset-json-file", lab.file("delete-records.json", wanted))
    expect(text, r"partition: shortened-0\s+low_watermark: 8")
    expect(lab.run("get-offsets", "--topic", "shortened", "--time", "earliest"), r"^shortened:0:8$")


def leader_election(lab: Lab) -> None:
    """kafka-leader-election: preferred where it is so already, and for a partition that does not exist."""
    lab.topic("elected", replicas=(3, 1, 2))
    of_one = ("--election-type", "preferred", "--topic", "elected", "--partition")
    text = lab.run("leader-election", *of_one, "0")
    expect(text, r"[Ss]uccessfully completed leader election|Valid replica already elected")
    expect(lab.run("topics", "--describe", "--topic", "elected"), r"Leader: 3\s")
    lab.run("leader-election", *of_one, "9", code=1)
    lab.run("leader-election", "--election-type", "preferred", "--all-topic-partitions")


def transactions(lab: Lab) -> None:
    """kafka-transactions list; describe-producers of a partition."""
    lab.topic("produced", partitions=1)
    lab.publish("produced", 5)
    expect(lab.run("transactions", "list"), r"^TransactionalId\s+Coordinator\s+ProducerId\s+TransactionState")
    text = lab.run("transactions", "describe-producers", "--topic", "produced", "--partition", "0")
    expect(text, r"^ProducerId\s+ProducerEpoch\s")


def reassign(lab: Lab) -> None:
    """kafka-reassign-partitions: generate, execute with a throttle, verify, cancel; nothing of the throttle stays."""
    lab.topic("moved", replicas=(1, 2))
    lab.publish("moved", 20_000, 1_000)
    wanted = {"topics": [{"topic": "moved"}], "version": 1}
    generated = lab.run(
        "reassign-partitions", "--generate", "--broker-list", "2,3",
        "--topics-to-move-json-file", lab.file("topics.json", wanted),
    )  # fmt: skip
    expect(generated, r"Proposed partition reassignment configuration", r'"topic":"moved"')
    plan = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [3, 2]}]}
    of_plan = ("--reassignment-json-file", lab.file("plan.json", plan))
    text = lab.run("reassign-partitions", *of_plan, "--execute", "--throttle", str(_SLOW_BYTES_PER_SECOND))
    expect(text, r"The inter-broker throttle limit was set to 100000 B/s", r"Successfully started partition reassign")
    expect(throttles(lab, "moved"), r"replication\.throttled\.replicas", r"replication\.throttled\.rate=100000")
    expect(lab.run("reassign-partitions", *of_plan, "--verify"), r"moved-0 is still in progress")
    expect(lab.run("reassign-partitions", "--list"), r"moved-0: replicas: \S+ adding: 3\. removing: 1\.")
    text = lab.run("reassign-partitions", *of_plan, "--cancel")
    expect(text, r"Successfully cancelled partition reassignments? for: moved-0", r"Clearing broker-level throttles")
    refuse(throttles(lab, "moved"), r"throttled")
    expect(lab.run("topics", "--describe", "--topic", "moved"), r"Replicas: (1,2|2,1)\s")

    lab.run("reassign-partitions", *of_plan, "--execute", "--throttle", str(_SLOW_BYTES_PER_SECOND))
    faster = ("--execute", "--additional", "--throttle", str(100 * _MEGABYTE))
    expect(lab.run("reassign-partitions", *of_plan, *faster), r"throttle limit was set to 100000000 B/s")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while "is completed" not in (text := lab.run("reassign-partitions", *of_plan, "--verify")):
        if time.monotonic() > deadline:
            raise CheckFailed(f"the move does not end: {_brief(text)}")
        time.sleep(1)
    expect(text, r"Clearing broker-level throttles", r"Clearing topic-level throttles")
    refuse(throttles(lab, "moved"), r"throttled")
    expect(lab.run("topics", "--describe", "--topic", "moved"), r"Replicas: 3,2\s")


def throttles(lab: Lab, topic: str) -> str:
    """What kafka-configs says of the topic and of every broker."""
    texts = [lab.run("configs", "--describe", "--entity-type", "topics", "--entity-name", topic)]
    texts += [
        lab.run("configs", "--describe", "--entity-type", "brokers", "--entity-name", str(broker))
        for broker in _BROKERS
    ]
    return "\n".join(texts)


CHECKS: Final[dict[str, Callable[[Lab], None]]] = {
    "topics": topics,
    "topic-configs": topic_configs,
    "broker-configs": broker_configs,
    "group-configs": group_configs,
    "console": console,
    "get-offsets": get_offsets,
    "groups-after-all-offsets": groups_after_all_offsets,
    "consumer-groups": consumer_groups,
    "share-groups": share_groups,
    "cluster": cluster,
    "metadata-quorum": quorum,
    "features": features,
    "log-dirs": log_dirs,
    "delete-records": delete_records,
    "leader-election": leader_election,
    "transactions": transactions,
    "reassign": reassign,
}


# --- the command


@contextlib.contextmanager
def martlet_cluster(directory: Path) -> Iterator[str]:
    """Three brokers and an etcd; where clients connect."""
    # With one copy a partition of __consumer_offsets has a log from its first use on, and not before.
    settings: dict[str, Any] = {"offsets_topic_partitions": 50, "offsets_topic_replication_factor": 1}
    with RunningCluster(len(_BROKERS), directory=directory, direct=True, **settings) as running:
        yield running.bootstrap_servers


@contextlib.contextmanager
def kafka_cluster(directory: Path) -> Iterator[str]:
    """Three nodes of Kafka."""
    with Kafka().start(directory, Durability.CACHED, nodes=len(_BROKERS)) as running:
        yield running.servers


CLUSTERS: Final = {"martlet": martlet_cluster, "kafka": kafka_cluster}


def main() -> int:
    arguments = _arguments()
    if arguments.list:
        for name, check in CHECKS.items():
            print(f"{name:26}{check.__doc__}")
        return 0
    end_with_children()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="martlet-tools-", dir=arguments.work_dir) as work:
        try:
            java("")
            with CLUSTERS[arguments.against](Path(work) / "cluster") as servers:
                lab = Lab(servers, Path(work))
                for name in arguments.only or CHECKS:
                    failed += not _passes(name, lab)
        except Missing as missing:
            say(f"Kafka's tools cannot be had: {missing}")
            return 2
    print(f"{failed} of {len(arguments.only or CHECKS)} checks failed")
    return 1 if failed else 0


def _passes(name: str, lab: Lab) -> bool:
    started = time.monotonic()
    try:
        CHECKS[name](lab)
    except (CheckFailed, KafkaException) as error:
        print(f"failed  {name:26}{time.monotonic() - started:5.0f} s  {error}", flush=True)
        return False
    print(f"ok      {name:26}{time.monotonic() - started:5.0f} s", flush=True)
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench kafka_tools", description="Kafka's own tools against a cluster")
    parser.add_argument("--only", action="append", choices=list(CHECKS), help="make this check; may be repeated")
    parser.add_argument("--against", choices=list(CLUSTERS), default="martlet", help="the cluster under the tools")
    parser.add_argument("--list", action="store_true", help="say what each check does, and make none")
    parser.add_argument("--work-dir", type=Path, help="where the data goes (the directory for temporary files)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
