"""Apache Kafka 4.x from Maven Central's jars: KRaft in combined mode, one node or three, two ways to set up the JVM.

The jars are fetched once by Maven, with a project file made here, into the cache; so are Kafka's own measuring tools,
which `bench.peers.workloads.tools` runs. `kafka` has the JVM options that Kafka's own start script gives (a heap of
1 GB, G1); `kafka-tuned` has a heap of 2 GB and the collector that gives the most throughput on few processors. Java
itself must be there. Logging goes to a file from warnings on, which costs less than what Kafka's distribution writes.
"""

import base64
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

from confluent_kafka.admin import AdminClient

from bench.peers.report import TUNED
from bench.peers.systems.cache import maven_jars, run_tool
from bench.peers.systems.system import Durability, Protocol, Running, System, running, wait_answer
from bench.processes import ServerProcess, free_port

VERSION: Final = "4.3.1"
_LOG4J_VERSION: Final = "2.25.4"
_HOST: Final = "127.0.0.1"
_LOG4J: Final = """<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="%d %p %c: %m%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""
# As in Kafka's own kafka-run-class.sh and kafka-server-start.sh.
_DEFAULT_JVM: Final = (
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
)  # fmt: skip
_TUNED_JVM: Final = ("-Xmx2G", "-Xms2G", "-server", "-XX:+UseParallelGC", "-Djava.awt.headless=true")


def jars() -> Path:
    """The directory with Kafka's jars; raises Missing."""
    wanted = [
        ("org.apache.kafka", "kafka_2.13", VERSION),
        ("org.apache.kafka", "kafka-tools", VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
    ]
    libs = maven_jars(f"kafka-{VERSION}", wanted)
    (libs.parent / "log4j2.xml").write_text(_LOG4J, "utf-8")
    return libs


def java(main: str, *arguments: str, jvm: Sequence[str] = ()) -> list[str]:
    """A command that runs one of Kafka's programs."""
    libs = jars()
    logging = f"-Dlog4j2.configurationFile={libs.parent / 'log4j2.xml'}"
    return ["java", *jvm, logging, "-cp", str(libs / "*"), main, *arguments]


class KafkaNode(ServerProcess):
    """One node, broker and controller in one; it is formatted when its directory is new."""

    def __init__(self, directory: Path, properties: dict[str, object], jvm: Sequence[str], cluster_id: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "server.properties"
        properties = properties | {"log.dirs": directory / "data"}
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), "utf-8")
        port = int(str(properties["advertised.listeners"]).rpartition(":")[2])
        super().__init__(java("kafka.Kafka", str(path), jvm=jvm), port, directory / "kafka.log")
        if not (directory / "data" / "meta.properties").exists():
            run_tool(java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(path)))


class Kafka(System):
    name = "kafka"
    protocol = Protocol.KAFKA
    nodes = (1, 3)
    jvm: ClassVar[tuple[str, ...]] = _DEFAULT_JVM
    jvm_text: ClassVar[str] = "JVM options of Kafka's start script (heap 1 GB, G1)"

    def obtain(self) -> str:
        jars()
        return VERSION

    def client_python(self) -> str:
        return sys.executable

    def configuration(self, durability: Durability) -> str:
        if durability is Durability.FLUSHED:
            flush = "topics with `flush.messages=1`: fsync of every batch before its acknowledgement"
        else:
            flush = "flush settings as shipped: the kernel writes back when it likes"
        return f"KRaft, combined mode, {self.jvm_text}; {flush}"

    def topic_config(self, durability: Durability) -> dict[str, str]:
        return {"flush.messages": "1"} if durability is Durability.FLUSHED else {}

    @contextlib.contextmanager
    def start(self, directory: Path, durability: Durability, *, nodes: int = 1) -> Iterator[Running]:
        members = make_nodes(directory, nodes, self.jvm)
        servers = ",".join(f"{_HOST}:{node.port}" for node in members)

        def make() -> Running:
            return Running(self, durability, members, servers, directory, replication=nodes)

        with running(members, make, ready=lambda system: wait_for_nodes(system.servers, nodes)) as system:
            yield system


class TunedKafka(Kafka):
    name = TUNED
    jvm = _TUNED_JVM
    jvm_text = "heap 2 GB, parallel collector"


def make_nodes(directory: Path, count: int, jvm: Sequence[str]) -> list[KafkaNode]:
    """Nodes that know of each other, formatted and not started."""
    ports = [(free_port(), free_port()) for _ in range(count)]
    voters = ",".join(f"{number + 1}@{_HOST}:{ports[number][1]}" for number in range(count))
    cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "A")
    internal = {
        f"{topic}.{name}": value
        for topic in ("transaction.state.log", "share.coordinator.state.topic")
        for name, value in (("replication.factor", count), ("min.isr", min(2, count)))
    }
    shared: dict[str, object] = {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "offsets.topic.replication.factor": count,
        "min.insync.replicas": min(2, count),
        # As Martlet is shipped; Kafka's own 3 s would only make its groups start later.
        "group.initial.rebalance.delay.ms": 500,
        **internal,
    }
    nodes = []
    for number, (port, controller_port) in enumerate(ports, 1):
        own = {
            "node.id": number,
            "listeners": f"PLAINTEXT://{_HOST}:{port},CONTROLLER://{_HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{_HOST}:{port}",
        }
        nodes.append(KafkaNode(directory / f"node-{number}", shared | own, jvm, cluster_id))
    return nodes


def wait_for_nodes(servers: str, count: int) -> None:
    """Until clients hear of all nodes."""

    def ask() -> None:
        found = AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=5).brokers
        if len(found) < count:
            raise RuntimeError(f"{len(found)} of {count} nodes are known")

    wait_answer(ask)
