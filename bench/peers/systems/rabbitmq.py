"""RabbitMQ quorum queues with publisher confirms, from Debian's package, with nothing of it outside our directory.

A confirm of a quorum queue means that the message is on the device (of a majority, which is one node here), so there is
no cached variant. Erlang's port mapper is started by us on a port of its own and ended with the server: one that
RabbitMQ starts by itself would stay behind.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.peers.systems.cache import Missing, clients_python, debian_program, run_tool
from bench.peers.systems.system import Durability, Protocol, Running, System, running, wait_answer
from bench.processes import ServerProcess, free_port

_PACKAGE: Final = "rabbitmq-server"
_SCRIPTS: Final = Path("/usr/lib/rabbitmq/bin")


class RabbitMq(System):
    name = "rabbitmq"
    protocol = Protocol.RABBITMQ
    durabilities = (Durability.FLUSHED,)

    def obtain(self) -> str:
        clients_python()
        debian_program("rabbitmq-server", _PACKAGE)
        if not (_SCRIPTS / "rabbitmq-server").exists() or not shutil.which("epmd"):
            raise Missing("rabbitmq-server is not laid out as Debian's package is")
        return run_tool(["dpkg-query", "-W", "-f", "${Version}", _PACKAGE]).strip()

    def configuration(self, durability: Durability) -> str:
        return "one server, a quorum queue, persistent messages, publisher confirms; client pika"

    @contextlib.contextmanager
    def start(self, directory: Path, durability: Durability, *, nodes: int = 1) -> Iterator[Running]:
        directory.mkdir(parents=True, exist_ok=True)
        port, mapper_port = free_port(), free_port()
        mapper = ServerProcess(
            ["epmd", "-port", str(mapper_port), "-address", "127.0.0.1"], mapper_port, directory / "epmd.log"
        )
        server = ServerProcess([str(_SCRIPTS / "rabbitmq-server")], port, directory / "rabbitmq.log")
        server.environment = _environment(directory, port, mapper_port)

        def make() -> Running:
            return Running(self, durability, [server], f"127.0.0.1:{port}", directory)

        def ready(system: Running) -> None:
            wait_answer(lambda: system.load({"role": "hello"}))

        mapper.start()
        try:
            mapper.wait_listening()
            with running([server], make, ready=ready) as system:
                yield system
        finally:
            mapper.kill()


def _environment(directory: Path, port: int, mapper_port: int) -> dict[str, str]:
    # Scheduling and limits stay as shipped; the distribution port only has to be free.
    config = directory / "rabbitmq.conf"
    config.write_text(f"listeners.tcp.local = 127.0.0.1:{port}\nlog.console = true\nlog.file = false\n", "utf-8")
    home = directory / "home"
    home.mkdir(exist_ok=True)
    return {
        "HOME": str(home),
        "ERL_EPMD_PORT": str(mapper_port),
        "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "logs"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
    }
