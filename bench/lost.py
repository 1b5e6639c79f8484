"""`./dev bench lost`: how soon clients of each library go elsewhere when their broker has lost its cluster.

    python -m bench.lost [--quick] [--only LIBRARY] [--rounds N] [--json FILE] [--markdown FILE] [--work-dir DIR]

Three brokers and a real etcd. The one that leads the topic, and coordinates the groups, is cut off from etcd, and from
nothing else: clients reach it as before. Two processes that only burn processor time slow everything down. The time is
from the moment at which both others name another leader, for topic and groups, to the next success of

- a producer and a member of a group that were at work all the time, and were given all three brokers;
- a producer and a member of another group that begin just then, and were given the two good ones.

None may take more than two seconds. The environment variable MARTLET_BENCH_CLIENT may hold the command line of a client
in another language; see `bench.lost_client`. It is measured as the library `other`.
"""

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from tests.cluster.links import STORE, Cut
from tests.cluster.running_cluster import RunningCluster

from bench.command import Suites, run_command
from bench.lost_client import WORKS
from bench.processes import HelperProcess, ProcessFailed
from bench.report import Figure, say, value_at_most
from bench.rounds import Context
from martlet.broker.coordinators.internal_topic import partition_of_key
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC

SECONDS_MAX: Final = 2.0
PATIENCE_SECONDS: Final = 30.0
_SHARDS: Final = 8
TOPIC: Final = "lost"
_OTHER: Final = "other"
_OTHER_COMMAND: Final = os.environ.get("MARTLET_BENCH_CLIENT", "")
_BURNERS: Final = 2


class Client:
    """One client process, from its start to the end of the block."""

    def __init__(self, library: str, work: str, servers: str, topic: str, group: str) -> None:
        specification = {"library": library, "work": work, "servers": servers, "topic": topic, "group": group}
        self.process = HelperProcess("bench.lost_client", specification)
        self._done_at: list[float] = []

    def wait_ready(self) -> None:
        """Until it has loaded its library."""
        assert self.process.answer() == {"ready": True}

    def begin(self) -> None:
        """Let it work."""
        self.process.tell("go")
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_at_work(self) -> None:
        """Until it has had a success."""
        if self.seconds_after(time.monotonic()) == PATIENCE_SECONDS:
            raise ProcessFailed("a client did not get to work while nothing was wrong")

    def seconds_after(self, since: float) -> float:
        """How long after this moment its next success was; without one it is as long as was waited for it."""
        while not (later := [moment for moment in self._done_at if moment > since]):
            if time.monotonic() > since + PATIENCE_SECONDS:
                return PATIENCE_SECONDS
            time.sleep(0.02)
        return later[0] - since

    def _listen(self) -> None:
        with contextlib.suppress(ProcessFailed, ValueError):  # it has ended, or the block has
            while True:
                self._done_at.append(float(self.process.answer()["done_at"]))


def measure(cluster: RunningCluster, library: str, topic: str, group: str) -> dict[str, float]:
    """Cut the topic's leader off from the store once; the seconds that each client needed."""
    old = cluster.leader_of(topic)
    good = [number for number in cluster.brokers if number != old]
    groups = {kind: _group_led_by(cluster, old, f"{group}-{kind}") for kind in ("at work", "new")}
    shards = {(CONSUMER_OFFSETS_TOPIC, partition_of_key(name, _SHARDS)) for name in groups.values()}
    with ExitStack() as stack:
        clients = {
            f"{work}, {kind}": Client(library, work, cluster.servers_of(*numbers), topic, groups[kind])
            for kind, numbers in (("at work", cluster.brokers), ("new", good))
            for work in ("publish", "commit")
        }
        for client in clients.values():
            stack.enter_context(client.process)
        for client in clients.values():
            client.wait_ready()
        for name, client in clients.items():
            if name.endswith("at work"):
                client.begin()
                client.wait_at_work()
        cluster.links.cut(old, STORE, Cut.SILENT)
        cluster.wait_until(
            lambda: all(_is_led_by_another(cluster, old, *place) for place in {(topic, 0), *shards}), "other leaders"
        )
        replaced_at = time.monotonic()
        for name, client in clients.items():
            if name.endswith("new"):
                client.begin()
        seconds = {name: client.seconds_after(replaced_at) for name, client in clients.items()}
    cluster.heal()
    cluster.wait_in_sync(topic, CONSUMER_OFFSETS_TOPIC)
    return seconds


def _group_led_by(cluster: RunningCluster, broker: int, prefix: str) -> str:
    """The name of a group that this broker coordinates."""
    partitions = cluster.metadata(CONSUMER_OFFSETS_TOPIC).topics[CONSUMER_OFFSETS_TOPIC].partitions
    names = (f"{prefix}-{number}" for number in itertools.count())
    return next(name for name in names if partitions[partition_of_key(name, _SHARDS)].leader == broker)


def _is_led_by_another(cluster: RunningCluster, old: int, topic: str, partition: int) -> bool:
    good = [number for number in cluster.brokers if number != old]
    named = {cluster.metadata(topic, from_broker=number).topics[topic].partitions[partition].leader for number in good}
    return len(named) == 1 and not named & {old, -1}


@contextmanager
def _load(count: int) -> Iterator[None]:
    """This many processes that only burn processor time."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def make_topics(cluster: RunningCluster) -> None:
    """The one that is published to, and that of the groups, which a first group has made."""
    cluster.create_topic(TOPIC, partitions=1, replication=3, config={"min.insync.replicas": "2"})
    client = Client("confluent-kafka", "commit", cluster.bootstrap_servers, TOPIC, "first")
    with client.process:
        client.wait_ready()
        client.begin()
        client.wait_at_work()
    cluster.wait_in_sync(CONSUMER_OFFSETS_TOPIC)


@contextmanager
def _cluster(context: Context) -> Iterator[RunningCluster]:
    with context.directory("cluster") as place, RunningCluster(3, directory=place, direct_to_brokers=True) as cluster:
        make_topics(cluster)
        yield cluster


def lost(library: str, context: Context) -> list[Figure]:
    """Every round with a new cut, in one cluster."""
    say(f"{library} ...")
    target = value_at_most(SECONDS_MAX, "s")
    figures: dict[str, Figure] = {}
    command = _OTHER_COMMAND if library == _OTHER else library
    with _cluster(context) as cluster, _load(0 if context.quick else _BURNERS):
        for number in range(context.rounds):
            seconds = measure(cluster, command, TOPIC, f"group-{number}")
            for name, value in seconds.items():
                figures.setdefault(name, Figure(f"{library}: {name}", "s", target=target)).add(value)
            say(f"  {number + 1} of {context.rounds}: " + ", ".join(f"{n} {v:.2f} s" for n, v in seconds.items()))
    for figure in figures.values():
        figure.note = f"median {statistics.median(figure.values):.2f} s, most {max(figure.values):.2f} s"
    return list(figures.values())


_SUITES: Final[Suites] = {name: partial(lost, name) for name in (*WORKS, *([_OTHER] if _OTHER_COMMAND else []))}


if __name__ == "__main__":
    sys.exit(run_command("lost", "How soon clients go elsewhere.", _SUITES, rounds=20, quick_rounds=1))
