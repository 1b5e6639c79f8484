"""Redis streams, from Debian's package: the append-only file is the durable copy, memory holds everything."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench.peers.systems.cache import clients_python, debian_program, run_tool
from bench.peers.systems.system import Durability, Protocol, Running, System, running
from bench.processes import ServerProcess, free_port


class Redis(System):
    name = "redis"
    protocol = Protocol.REDIS

    def obtain(self) -> str:
        clients_python()
        words = run_tool([_program(), "--version"]).split()
        return next((word.removeprefix("v=") for word in words if word.startswith("v=")), "unknown")

    def configuration(self, durability: Durability) -> str:
        how = _appendfsync(durability)
        return (
            f"one server, streams (XADD, XREAD), `appendonly yes`, `appendfsync {how}`, no snapshots; client redis-py"
        )

    @contextlib.contextmanager
    def start(self, directory: Path, durability: Durability, *, nodes: int = 1) -> Iterator[Running]:
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        settings = {
            "bind": "127.0.0.1",
            "port": port,
            "dir": directory,
            "appendonly": "yes",
            "appendfsync": _appendfsync(durability),
            "save": '""',
        }
        path = directory / "redis.conf"
        path.write_text("".join(f"{name} {value}\n" for name, value in settings.items()), "utf-8")
        process = ServerProcess([_program(), str(path)], port, directory / "redis.log")
        with running([process], lambda: Running(self, durability, [process], f"127.0.0.1:{port}", directory)) as system:
            yield system


def _program() -> str:
    return debian_program("redis-server", "redis-server")


def _appendfsync(durability: Durability) -> str:
    return "always" if durability is Durability.FLUSHED else "everysec"
