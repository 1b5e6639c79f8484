"""`martlet up --brokers N` and `martlet up --cluster N`: several brokers on this machine, each a process of its own.

With --brokers they share one data directory and the embedded metadata store, as one would to use all cores of a host:
the host is their rack, so that copies go to other hosts. With --cluster they play several hosts, with an etcd of
their own, a rack each, and as many copies of a topic as a real cluster would have.

Addresses are counted up from the ones given; port 0 means any free port for each. A broker that crashes is started
again, at the address it had.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NamedTuple

import click

from martlet.base.addresses import Address, parse_address
from martlet.cli.broker import check_data_directory
from martlet.cli.configuration import Configuration, SettingsError, load_configuration
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.first_steps import print_first_steps
from martlet.cli.output import format_count, is_terminal, print_facts, print_note, print_table
from martlet.cli.supervised import Child, ChildNotStarted

Flags = Mapping[str, tuple[str, str]]

_REPLICATION: Final = 3
_ETCD_READY_SECONDS: Final = 30.0
_ETCD_LOOK_SECONDS: Final = 0.1
_KAFKA: Final = re.compile(r"^ +Kafka +(\S+)$")
_OPERATIONS: Final = re.compile(r"^ +operations +http://(\S+)")
_LAST: Final = re.compile(r"^ +data ")


@dataclass(slots=True)
class BrokerPlan:
    """One broker to be: its number and its settings, of which the addresses become exact when it is up."""

    id: int
    settings: dict[str, str]
    config_file: str | None
    kafka: str = ""
    operations: str = ""

    def command(self) -> list[str]:
        """How it is started, now or again."""
        settings = self.settings | {
            key: value for key, value in (("kafka", self.kafka), ("operations", self.operations)) if value
        }
        flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        config = ["--config", self.config_file] if self.config_file else []
        return [sys.executable, "-m", "martlet.cli.main", "broker", *config, *flags]

    def announced(self, line: str) -> bool:
        """Take note of what the broker says about itself; True when it has said all."""
        if found := _KAFKA.match(line):
            self.kafka = found.group(1)
        if found := _OPERATIONS.match(line):
            self.operations = found.group(1)
        return bool(self.kafka and _LAST.match(line))


class Wish(NamedTuple):
    """How many brokers, and whether they play several hosts."""

    brokers: int
    is_cluster: bool


def plan_brokers(
    wish: Wish,
    configuration: Configuration,
    flags: Flags,
    config_file: str | None,
    *,
    host_name: str,
    metadata: str = "",
) -> list[BrokerPlan]:
    """What each broker is started with: what was asked for, and what must differ."""
    settings, origins = configuration.settings, configuration.origins
    if settings.advertised:
        raise SettingsError(
            f"{origins['advertised']}: one advertised address cannot be that of several brokers",
            "leave it out: clients are given the address of each broker",
        )
    if settings.listeners:
        raise SettingsError(
            f"{origins['listeners']}: the addresses of one broker cannot be those of several brokers",
            "give `kafka`, from which the ports are counted up, or start each broker with `martlet broker`",
        )
    if wish.is_cluster and settings.metadata:
        raise SettingsError(
            f"{origins['metadata']}: --cluster brings a metadata store of its own",
            "`--brokers` starts several brokers that use yours",
        )

    def is_left_open(key: str) -> bool:
        return origins[key].kind == "default"

    plans = []
    for place in range(wish.brokers):
        broker_id = settings.broker_id + place
        own = {key: text for key, (_, text) in flags.items()}
        own |= {
            "data": os.path.abspath(settings.data),
            "broker_id": str(broker_id),
            "kafka": _counted_up(settings.kafka, place),
            "operations": _counted_up(settings.operations, place),
        }
        if is_left_open("rack"):
            own["rack"] = f"rack-{broker_id}" if wish.is_cluster else host_name
        if wish.is_cluster:
            own["metadata"] = metadata
            if is_left_open("default_replication_factor"):
                own["default_replication_factor"] = str(min(_REPLICATION, wish.brokers))
        if settings.log_format == "auto":
            own["log_format"] = "text" if is_terminal(sys.stderr) else "json"
        plans.append(BrokerPlan(broker_id, own, config_file))
    return plans


def _counted_up(address: str, place: int) -> str:
    first = parse_address(address)
    port = first.port + place if first.port else 0
    if port > 65_535:
        raise SettingsError(f"{address} leaves too few ports for all brokers")
    return str(Address(first.host, port))


# --- etcd of a play cluster


@dataclass(slots=True)
class Etcd:
    """An etcd of one member, on this machine only."""

    program: str
    directory: str
    client_port: int = field(default_factory=lambda: _free_port())
    peer_port: int = field(default_factory=lambda: _free_port())

    @property
    def log_path(self) -> str:
        return os.path.join(self.directory, "etcd.log")

    @property
    def metadata(self) -> str:
        """The setting by which brokers find it."""
        return f"etcd://127.0.0.1:{self.client_port}/martlet"

    def command(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self.client_port}", f"http://127.0.0.1:{self.peer_port}"
        options = {
            "name": "martlet",
            "data-dir": os.path.join(self.directory, "data"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"martlet={peer}",
            "log-outputs": "stderr",
            "logger": "zap",
        }
        return [self.program, *(f"--{name}={value}" for name, value in options.items())]

    async def wait_ready(self) -> bool:
        """Whether it takes connections in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _ETCD_READY_SECONDS
        while loop.time() < deadline:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.client_port)
            except OSError:
                await asyncio.sleep(_ETCD_LOOK_SECONDS)
            else:
                writer.close()
                return True
        return False


def find_etcd(data: str) -> Etcd:
    """The etcd program of this machine; a clear refusal when there is none."""
    program = shutil.which("etcd")
    if program is None:
        raise CommandFailed(
            ExitCode.NOT_FOUND,
            "--cluster needs the program etcd, and there is none on the PATH",
            "install it (Debian, Ubuntu: apt install etcd-server), or use --brokers, which needs none",
        )
    directory = os.path.join(os.path.abspath(data), "etcd")
    os.makedirs(directory, exist_ok=True)
    return Etcd(program, directory)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- running them


def run_many(wish: Wish, flags: Flags, config_file: str | None) -> int:
    """Until a signal ends it; the exit code."""
    configuration = load_configuration(flags, environment=os.environ, file=config_file)
    for note in configuration.notes:
        print_note(f"note: {note}")
    check_data_directory(configuration.settings.data)
    etcd = find_etcd(configuration.settings.data) if wish.is_cluster else None
    metadata = etcd.metadata if etcd is not None else ""
    plans = plan_brokers(wish, configuration, flags, config_file, host_name=socket.gethostname(), metadata=metadata)
    with contextlib.ExitStack() as stack:
        etcd_log = stack.enter_context(open(etcd.log_path, "ab")) if etcd is not None else None
        return asyncio.run(_Supervisor(plans, etcd, etcd_log, configuration.settings.data).run())


class _Supervisor:
    """Everything that runs under one `martlet up`."""

    def __init__(self, plans: Sequence[BrokerPlan], etcd: Etcd | None, etcd_log: BinaryIO | None, data: str) -> None:
        self._plans = plans
        self._data = os.path.abspath(data)
        self._etcd = etcd
        width = max(len(f"broker {plan.id}") for plan in plans)
        self._brokers = [Child(f"broker {plan.id}", plan.command, plan.announced, width=width) for plan in plans]
        self._store: Child | None = None
        if etcd is not None:
            # Nothing is expected on its standard output.
            self._store = Child("etcd", etcd.command, lambda _: False, width=width, error_file=etcd_log)
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked_to_stop)
        store = asyncio.create_task(self._run_store())
        try:
            await self._wait_for_store(store)
            exit_codes = await self._run_brokers()
        except ChildNotStarted as failure:
            if self._stopping.is_set():
                return ExitCode.OK
            code = ExitCode(failure.exit_code) if failure.exit_code in set(ExitCode) else ExitCode.FAILURE
            where = f"{self._etcd.log_path} says why" if self._etcd and "etcd" in str(failure) else "see above"
            raise CommandFailed(code or ExitCode.FAILURE, str(failure), where) from failure
        finally:
            self._stop(*self._brokers)
            if self._store is not None:
                self._store.stop()
            await asyncio.gather(store, return_exceptions=True)
        if any(exit_codes):
            raise CommandFailed(ExitCode.FAILURE, "not all brokers stopped cleanly", "their words above say why")
        print_note("stopped cleanly")
        return ExitCode.OK

    async def _run_store(self) -> int:
        return await self._store.run() if self._store is not None else 0

    async def _wait_for_store(self, store: asyncio.Task[int]) -> None:
        if self._etcd is None or self._store is None:
            return
        ready = asyncio.create_task(self._etcd.wait_ready())
        await asyncio.wait((ready, store), return_when=asyncio.FIRST_COMPLETED)
        if store.done():
            ready.cancel()
            await store
        if not await ready:
            raise ChildNotStarted("etcd", ExitCode.TIMEOUT)
        self._store.up.set()

    async def _run_brokers(self) -> list[int]:
        running = [asyncio.create_task(child.run()) for child in self._brokers]
        announcing = asyncio.create_task(self._announce_when_up())
        try:
            # A broker that could not be started ends it all.
            return list(await asyncio.gather(*running))
        finally:
            announcing.cancel()
            self._stop(*self._brokers)
            await asyncio.gather(announcing, *running, return_exceptions=True)

    async def _announce_when_up(self) -> None:
        for child in self._brokers:
            await child.up.wait()
        self._announce()

    def _asked_to_stop(self) -> None:
        if self._stopping.is_set():
            print_note("ending at once")
            for child in self._brokers:
                child.kill()
            return
        self._stopping.set()
        print_note("stopping; Ctrl-C again ends at once")
        self._stop(*self._brokers)
        if self._store is not None and not self._store.up.is_set():
            self._store.stop()

    def _stop(self, *children: Child) -> None:
        for child in children:
            child.stop()

    def _announce(self) -> None:
        from martlet import __version__

        bootstrap = ",".join(plan.kafka for plan in self._plans)
        click.echo(f"Martlet {__version__} is up with {format_count(len(self._plans), 'broker')}.")
        facts: dict[str, str | int | None] = {
            "  Kafka": bootstrap,
            "  data": self._data,
        }
        if self._etcd is not None:
            facts["  metadata"] = f"{self._etcd.metadata}  (its log: {self._etcd.log_path})"
        print_facts(facts)
        click.echo()
        print_table(
            ["BROKER", "KAFKA", "OPERATIONS", "PROCESS"],
            [
                [plan.id, plan.kafka, f"http://{plan.operations}", child.process_id]
                for plan, child in zip(self._plans, self._brokers, strict=True)
            ],
        )
        click.echo()
        print_first_steps(
            self._plans[0].kafka,
            ("cluster status",),
            ("publish", "hello", '"my first message"', "--create"),
            ("consume", "hello"),
        )
        sys.stdout.flush()
