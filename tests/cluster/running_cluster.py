"""A cluster as its users run it: a real etcd and a `martlet broker` process for each broker, with a breakable network.

    with RunningCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=6, replication=3, config={"min.insync.replicas": "2"})
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(1)                                   # kill -9
        cluster.links.cut(2, 3, Cut.ANSWERS)              # broker 2 does not hear broker 3's answers any more
        cluster.links.cut(3, STORE, Cut.SILENT)           # broker 3 hears nothing of etcd
        cluster.start(1)

Every connection to a broker, a client's too, and every broker's way to etcd goes through a relay (`links`). With
`direct=True` there are none, for those who measure; with `direct_to_brokers=True` only those to etcd. Settings are
given as keywords, as in martlet.toml; leases are shorter than a server's so that tests need not wait. When the block is
left by an exception the end of every broker's log is printed. Every process is ended with the block, whatever happens
in it.
"""

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata
from confluent_kafka.cimpl import NewTopic

from tests.cluster.broker_process import ClusterBroker
from tests.cluster.links import STORE, Cut, Links
from tests.stores.etcd_process import EtcdProcess, free_port

LEASE_MS: Final = 3_000
READY_SECONDS_MAX: Final = 60.0
_HOST: Final = "127.0.0.1"
_DEFAULTS: Final[dict[str, object]] = {
    "lease_ms": LEASE_MS,
    "replica_lag_time_max_ms": 6_000,
    "default_replication_factor": 3,
    "offsets_topic_partitions": 8,
    "auto_create_topics": False,
    "group_initial_rebalance_delay_ms": 0,
}


class NotReached(AssertionError):
    """What a test waited for did not come; the text ends with the brokers' logs."""


class RunningCluster:
    """Brokers are numbered from 1. Methods return when what they say has happened, unless they say otherwise."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        directory: Path | None = None,
        direct: bool = False,
        direct_to_brokers: bool = False,
        own_settings: Mapping[int, Mapping[str, object]] | None = None,
        **settings: Any,
    ) -> None:
        """`own_settings` are those of single brokers, by number. A given directory stays, with all logs in it."""
        self.count = brokers
        self.brokers: dict[int, ClusterBroker] = {}
        self.directory = directory or Path(tempfile.mkdtemp(prefix="martlet-cluster-"))
        self.etcd = EtcdProcess(self.directory / "etcd")
        self.links = Links(self._process_ids)
        self._keeps_directory = directory is not None
        self._direct = direct
        self._direct_to_brokers = direct or direct_to_brokers
        self._settings = _DEFAULTS | settings
        self._own_settings = own_settings or {}
        self._ports: dict[int, int] = {}
        self._stack = ExitStack()

    @property
    def lease_seconds(self) -> float:
        return int(str(self._settings["lease_ms"])) / 1000

    @property
    def bootstrap_servers(self) -> str:
        """Of all brokers, running or not."""
        return ",".join(f"{_HOST}:{port}" for port in self._ports.values())

    def servers_of(self, *numbers: int) -> str:
        return ",".join(f"{_HOST}:{self._ports[number]}" for number in numbers)

    def __enter__(self) -> Self:
        with self._stack:
            if not self._keeps_directory:
                self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            self.directory.mkdir(parents=True, exist_ok=True)
            self._stack.enter_context(self.etcd)
            self._stack.callback(self._end_brokers)
            self._stack.enter_context(self.links)
            try:
                for _ in range(self.count):
                    self.add_broker()
                self.wait_until_all_serve()
            except BaseException:
                self.print_tails()
                raise
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.print_tails()
        self._stack.close()

    def add_broker(self) -> int:
        """Prepare and start one more; its number."""
        number = max(self.brokers, default=0) + 1
        far_port, store_port = free_port(), self.etcd.port
        port = self._ports[number] = far_port if self._direct_to_brokers else free_port()
        if not self._direct_to_brokers:
            self.links.add_broker(number, port=port, far_port=far_port)
        if not self._direct:
            store_port = free_port()
            self.links.add_way_to_store(number, port=store_port, far_port=self.etcd.port)
        settings: dict[str, object] = {
            "kafka": f"{_HOST}:{far_port}",
            "advertised": f"{_HOST}:{port}",
            "operations": f"{_HOST}:{free_port()}",
            "metadata": f"etcd://{_HOST}:{store_port}/cluster",
        }
        settings |= {**self._settings, **self._own_settings.get(number, {})}
        self.brokers[number] = ClusterBroker(number, self.directory / f"broker-{number}", settings)
        self.start(number, wait=False)
        return number

    def start(self, number: int, *, wait: bool = True) -> None:
        """Start it, and wait until it takes connections unless told otherwise."""
        if not self._direct_to_brokers:
            self.links.listen(self._ports[number])
        self.brokers[number].start()
        if wait:
            self.brokers[number].wait_listening()

    def kill(self, number: int) -> None:
        """kill -9"""
        self._down(number, self.brokers[number].kill)

    def stop(self, number: int) -> float:
        """A clean stop, as by a service manager; the seconds it took."""
        started = time.monotonic()
        self._down(number, self.brokers[number].stop)
        return time.monotonic() - started

    def restart(self, number: int) -> None:
        """A clean stop and a start."""
        self.stop(number)
        self.start(number)

    def pause(self, number: int) -> None:
        self.brokers[number].pause()

    def resume(self, number: int) -> None:
        self.brokers[number].resume()

    def wipe(self, number: int) -> None:
        """kill -9, and its disk is gone; it is not started."""
        self.kill(number)
        self.brokers[number].wipe()

    def forget(self, number: int) -> None:
        """It has left the cluster for good: what waits for all brokers no longer waits for it."""
        assert not self.brokers[number].is_running
        del self.brokers[number], self._ports[number]

    def cut_one_way(self, source: int, target: int) -> None:
        """No byte gets from one broker to the other, as when packets are lost one way; the other way is open."""
        self.links.cut(source, target, Cut.REQUESTS)
        self.links.cut(target, source, Cut.ANSWERS)

    def isolate(self, number: int, how: Cut = Cut.SILENT, *, store: bool = True) -> None:
        """Cut it off from the other brokers, and from the store unless told otherwise. Clients still reach it."""
        for other in self.brokers:
            if other != number:
                self.links.cut(number, other, how)
                self.links.cut(other, number, how)
        if store:
            self.links.cut(number, STORE, how)

    def heal(self, *, deliver: bool = True) -> None:
        """Every link works again."""
        self.links.heal_all(deliver=deliver)

    def admin(self, *numbers: int) -> AdminClient:
        """An admin client that starts from these brokers, or from all."""
        servers = self.servers_of(*numbers) if numbers else self.bootstrap_servers
        return AdminClient({"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 200})

    def create_topic(
        self, name: str, *, partitions: int = 1, replication: int = 3, config: Mapping[str, str] | None = None
    ) -> None:
        """Create it and wait until all its partitions have leaders and all replicas are in sync."""
        self.ask_for_topic(name, partitions=partitions, replication=replication, config=config)
        self.wait_in_sync(name)

    def ask_for_topic(
        self, name: str, *, partitions: int = 1, replication: int = 3, config: Mapping[str, str] | None = None
    ) -> None:
        """Create it, and do not wait for its replicas."""
        topic = NewTopic(name, partitions, replication, config=dict(config or {}))
        admin = self.admin()  # it must outlive its answers
        for future in admin.create_topics([topic], operation_timeout=30).values():
            future.result(30)

    def metadata(self, topic: str | None = None, *, from_broker: int | None = None) -> ClusterMetadata:
        """What a broker tells clients now."""
        admin = self.admin() if from_broker is None else self.admin(from_broker)
        return admin.list_topics(topic, timeout=5) if topic else admin.list_topics(timeout=5)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads it; waits until there is one."""

        def leader() -> int:
            return int(self._topic(topic).partitions[partition].leader)

        self.wait_until(lambda: leader() > 0, f"a leader of {topic}-{partition}")
        return leader()

    def wait_in_sync(self, *topics: str, seconds: float = READY_SECONDS_MAX) -> None:
        """Until every replica of every partition of these topics is in sync, and every partition has a leader."""
        what = f"all replicas of {', '.join(topics)} in sync"
        self.wait_until(lambda: self.is_in_sync(*topics), what, seconds=seconds)

    def is_in_sync(self, *topics: str) -> bool:
        """Whether every broker that runs says so; one that cannot be asked does not."""
        try:
            return all(
                _is_in_sync(self.metadata(topic, from_broker=number).topics[topic])
                for topic in topics
                for number, broker in self.brokers.items()
                if broker.is_running
            )
        except KafkaException:
            return False

    def wait_until_all_serve(self, seconds: float = READY_SECONDS_MAX) -> None:
        """Until every broker that should run does, and every one of them knows of all."""
        for broker in self.brokers.values():
            broker.wait_listening()

        def all_known() -> bool:
            known = [set(self.metadata(from_broker=number).brokers) for number in self.brokers]
            return all(brokers == set(self.brokers) for brokers in known)

        self.wait_until(all_known, "every broker to know of all brokers", seconds=seconds)

    def wait_until(
        self, condition: Callable[[], bool], what: str, *, seconds: float = READY_SECONDS_MAX, every: float = 0.1
    ) -> None:
        """Ask until it is so; a client's error means not yet. A broker that ended by itself ends the waiting."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(KafkaException):
                if condition():
                    return
            if time.monotonic() > deadline:
                raise NotReached(f"waited {seconds:.0f} s for {what}\n{self.tails()}")
            time.sleep(every)

    def tails(self, lines: int = 25) -> str:
        """The end of every broker's log."""
        return "\n".join(self._tails(lines))

    def print_tails(self) -> None:
        print(self.tails(), file=sys.stderr)

    def _tails(self, lines: int) -> Iterator[str]:
        for number, broker in self.brokers.items():
            state = "runs" if broker.is_running else "does not run"
            yield f"--- broker {number} {state}; the end of its log ---"
            yield broker.tail(lines)

    def _topic(self, name: str) -> TopicMetadata:
        return self.metadata(name).topics[name]

    def _down(self, number: int, end: Callable[[], object]) -> None:
        end()
        if not self._direct_to_brokers:
            self.links.refuse(self._ports[number])

    def _process_ids(self) -> dict[int, int]:
        known = {number: broker.process_id for number, broker in tuple(self.brokers.items())}
        return {process_id: number for number, process_id in known.items() if process_id is not None}

    def _end_brokers(self) -> None:
        for broker in self.brokers.values():
            broker.kill()


def _is_in_sync(topic: TopicMetadata) -> bool:
    partitions = topic.partitions.values()
    return bool(partitions) and all(
        partition.leader > 0 and partition.error is None and set(partition.isrs) == set(partition.replicas)
        for partition in partitions
    )
