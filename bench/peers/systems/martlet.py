"""Martlet as a peer among peers: one broker by `martlet up`, or three `martlet broker` beside an etcd of their own."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from bench.peers.systems.system import Durability, Protocol, Running, System, running
from bench.processes import BrokerProcess
from martlet import __version__


class Martlet(System):
    name = "martlet"
    protocol = Protocol.KAFKA
    nodes = (1, 3)

    def obtain(self) -> str:
        return __version__

    def configuration(self, durability: Durability) -> str:
        policy = self.topic_config(durability)["martlet.flush"]
        when = "fdatasync before the acknowledgement" if policy == "commit" else "the kernel writes back when it likes"
        return f"`martlet up`, all settings as shipped; topics with `martlet.flush={policy}`: {when}"

    def topic_config(self, durability: Durability) -> dict[str, str]:
        return {"martlet.flush": "commit" if durability is Durability.FLUSHED else "never"}

    def client_python(self) -> str:
        return sys.executable

    @contextlib.contextmanager
    def start(self, directory: Path, durability: Durability, *, nodes: int = 1) -> Iterator[Running]:
        if nodes > 1:
            with self._cluster(directory, durability, nodes) as cluster:
                yield cluster
            return
        broker = BrokerProcess(directory)

        def make() -> Running:
            return Running(self, durability, [broker], f"127.0.0.1:{broker.port}", broker.data)

        with running([broker], make) as system:
            yield system

    @contextlib.contextmanager
    def _cluster(self, directory: Path, durability: Durability, nodes: int) -> Iterator[Running]:
        # Needs etcd, which only this figure does.
        from tests.cluster.running_cluster import RunningCluster

        settings: dict[str, Any] = {"lease_ms": 6_000, "replica_lag_time_max_ms": 30_000}
        with RunningCluster(nodes, direct=True, directory=directory, **settings) as cluster:
            brokers = list(cluster.brokers.values())
            stores = [child.pid for child in psutil.Process().children() if child.name() == "etcd"]
            servers = cluster.bootstrap_servers
            yield Running(self, durability, brokers, servers, directory, replication=nodes, companions=stores)
