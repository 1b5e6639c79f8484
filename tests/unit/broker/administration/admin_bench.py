"""A broker's metadata side, started and stopped as a broker does, over any store."""

from pathlib import Path

from sim.clock import SimClock
from sim.randomness import SimRandomness
from sim.store import SimStore, SimStoreState

from martlet.base.ids import BrokerId
from martlet.base.randomness import IdSource
from martlet.broker.administration.config_admin import ConfigAdmin
from martlet.broker.administration.topic_admin import TopicAdmin
from martlet.broker.membership.broker_registration import elect_own_partitions, register_broker
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.broker.membership.metadata_feed import MetadataFeed
from martlet.cluster.broker_decisions import Registration
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.store import MetaStore
from martlet.stores.sqlite import SqliteStore


class AdminBench:
    """Feed and admin of one broker process; `deltas` is what its listeners heard."""

    def __init__(self, store: MetaStore, clock: SimClock, randomness: SimRandomness) -> None:
        self.store = store
        self.image = MetadataImage()
        self.failures: list[BaseException] = []
        self.deltas: list[ImageDelta] = []
        self.feed = MetadataFeed(store, self.image, on_failure=self.failures.append)
        self.feed.add_listener(self.deltas.append)
        self.changes = MetadataChanges(store, self.feed)
        self.configs = ConfigAdmin(self.changes)
        self._clock = clock
        self._ids = IdSource(randomness)

    async def start(self, broker: int = 1) -> None:
        await self.feed.start()
        registration = Registration(id=BrokerId(broker))
        self.me = await register_broker(self.changes, registration, self._ids, self._clock)
        await elect_own_partitions(self.changes, self.me)
        self.admin = TopicAdmin(self.changes, self.me, self._ids, self._clock)
        await self.admin.remove_abandoned()

    async def stop(self) -> None:
        await self.feed.aclose()
        await self.store.close()


class Site:
    """One lasting store on which brokers are started and stopped; `kind` is sim or sqlite."""

    def __init__(self, kind: str, path: Path) -> None:
        self.clock = SimClock()
        self.state = SimStoreState()
        self.randomness = SimRandomness(7)
        self._kind = kind
        self._path = str(path / "metadata.db")
        self._made: list[AdminBench] = []

    async def start(self, broker: int = 1, *, store: MetaStore | None = None) -> AdminBench:
        """Start a broker on the store given, or on a connection of its own."""
        if store is None:
            store = SimStore(self.clock, self.state) if self._kind == "sim" else await self._open_file()
        bench = AdminBench(store, self.clock, self.randomness)
        self._made.append(bench)
        await bench.start(broker)
        return bench

    async def stop_all(self) -> None:
        for bench in self._made:
            await bench.stop()

    async def _open_file(self) -> MetaStore:
        return await SqliteStore.open(self._path, clock=self.clock, shared=True, poll_interval_ms=5)


def leader_epochs(bench: AdminBench) -> dict[tuple[str, int], int]:
    """The leader epoch of every partition of every topic."""
    return {
        (topic.name, record.partition): record.leader_epoch
        for topic in bench.image.topics()
        for record in bench.image.partitions(topic.name)
    }
