"""Whole brokers on simulated machines with one metadata store, for the tests of what makes them a cluster.

Everything but the outside world is the real broker. Time is virtual: a lease's time costs nothing to wait for.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sim.host import SimHost
from sim.simulated_broker import StopRequest, broker_settings, simulated_ports
from sim.world import SimWorld

from martlet.base.ids import BrokerId
from martlet.broker.app import BrokerApp
from martlet.broker.services import BrokerServices
from martlet.cluster.records import BrokerRecord, PartitionRecord
from martlet.cluster.topic_decisions import TopicWish
from martlet.wire.batch import read_batch_header
from tests.unit.log.log_builders import batch_of

LEASE_MS: Final = 3_000
LOG_DIRECTORY: Final = "/data/broker-{}"


class SimMember:
    """One broker on a machine of its own; a process of it may be started again and again."""

    def __init__(self, world: SimWorld, number: int, host: SimHost | None = None, **settings: Any) -> None:
        self.world = world
        self.number = number
        self.host = host or world.add_host(f"broker{number}")
        self.request = StopRequest(self.host)
        self.app: BrokerApp | None = None
        self.stopped_cleanly = False
        self._settings = {
            "broker_id": number,
            "lease_ms": LEASE_MS,
            "replica_lag_time_max_ms": 4_000,
            "offsets_topic_partitions": 1,
            "shutdown_timeout_ms": 5_000,
            **settings,
        }

    @property
    def services(self) -> BrokerServices:
        assert self.app is not None
        assert self.app.services is not None
        return self.app.services

    @property
    def record(self) -> BrokerRecord:
        """Its registration, as its own image has it."""
        record = self.services.image.broker(BrokerId(self.number))
        assert record is not None
        return record

    @property
    def is_serving(self) -> bool:
        return self.host.is_running and self.app is not None and self.app.readiness()[0]

    def may_act(self) -> bool:
        return self.app is not None and self.app.may_act()

    def begin(self, **changes: Any) -> None:
        """Start a process, and do not wait for it."""
        self._settings |= changes
        self.app = None
        self.host.start(self._main)

    def start(self, **changes: Any) -> None:
        """Start a process and wait until it serves."""
        self.begin(**changes)
        self.world.run_until(lambda: self.is_serving, 60_000)
        self.world.run_for(20)  # until its main function listens to requests

    def stop(self) -> None:
        """Stop it cleanly and wait for its end."""
        self.request.send()
        self.world.run_until(lambda: not self.host.is_running, 30_000)

    def kill(self, *, power_loss: bool = False) -> None:
        self.host.crash(power_loss=power_loss)

    def call(self, work: Callable[[BrokerServices], Awaitable[Any]]) -> Any:
        """Do something inside of the process and wait for what comes of it."""
        assert self.host.loop is not None
        outcome: list[Any] = []

        async def run() -> None:
            try:
                outcome.append(await work(self.services))
            except Exception as error:  # noqa: BLE001 - raised again outside
                outcome.append(error)

        self.host.loop.create_task(run())
        self.world.run_until(lambda: bool(outcome), 60_000)
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return outcome[0]

    def create_topic(self, name: str, *replicas: int, **configs: str) -> None:
        """One partition on these brokers, the first being preferred."""
        wish = TopicWish(name=name, assignments={0: replicas}, configs=configs)
        self.call(lambda services: services.topic_admin.create_topic(wish))
        self.world.run_for(100)  # until the others know of it

    def append(self, name: str) -> None:
        """One message more in a log led here."""

        async def append(services: BrokerServices) -> None:
            batch = memoryview(batch_of(b"v"))
            services.partitions.get(name, 0).append(batch, read_batch_header(batch), now_ms=self.host.clock.now_ms())

        self.call(append)

    def partition(self, name: str) -> PartitionRecord:
        record = self.services.image.partition(name, 0)
        assert record is not None
        return record

    async def _main(self) -> None:
        self.stopped_cleanly = False
        self.app = app = BrokerApp(broker_settings(self.host, **self._settings), simulated_ports(self.host))
        await app.start()
        failed = asyncio.create_task(app.wait_failed())
        asked = asyncio.create_task(self.request.wait())
        await asyncio.wait((failed, asked), return_when=asyncio.FIRST_COMPLETED)
        await app.stop()
        if failed.done():
            raise failed.result()
        self.stopped_cleanly = True


def start_members(world: SimWorld, count: int, **settings: Any) -> list[SimMember]:
    """This number of brokers, all of them serving and knowing of each other."""
    members = [SimMember(world, number, **settings) for number in range(1, count + 1)]
    for member in members:
        member.begin()
    world.run_until(lambda: all(member.is_serving for member in members), 60_000)
    world.run_until(lambda: all(len(member.services.image.brokers()) == count for member in members), 10_000)
    return members


def in_sync_of(member: SimMember, topic: str) -> set[int]:
    """Who is in sync, by the word of this broker's image: only entries of processes that run now count."""
    image = member.services.image
    return {
        entry.broker
        for entry in member.partition(topic).isr
        if (live := image.live(entry.broker)) is not None and live.incarnation == entry.incarnation
    }
