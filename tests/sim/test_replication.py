"""Real brokers copying from one another over the simulated network: their logs become equal, whatever happened."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sim.host import SimHost
from sim.simulated_broker import KAFKA_PORT, broker_settings, log_directory, simulated_ports
from sim.world import SimWorld

from martlet.base.addresses import Address
from martlet.base.errors import ApiError
from martlet.base.ids import TopicPartition
from martlet.broker.app import BrokerApp
from martlet.broker.following.connection import ReplicaFetchOptions
from martlet.broker.partitions.partition import Partition
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError
from martlet.client.options import ClientOptions
from martlet.client.producer import Producer, ProducerOptions
from martlet.log.partition_log import PartitionLog
from tests.unit.broker.following.replica_bench import content

ORDERS = TopicPartition("orders", 0)
OPTIONS = ClientOptions(connect_timeout_ms=1_000, request_timeout_ms=2_000, retry_timeout_ms=30_000)
ONE_REPLICA = ProducerOptions(acks=1, idempotent=False)


class Brokers:
    """A few brokers and a machine for their clients."""

    def __init__(self, world: SimWorld, count: int, **settings: Any) -> None:
        self.world = world
        self.hosts = {number: world.add_host(f"broker{number}") for number in range(1, count + 1)}
        self.apps: dict[int, BrokerApp] = {}
        self.client = world.add_host("client")
        self._settings = {"lease_ms": 2_000, "replica_lag_time_max_ms": 2_500, "auto_create_topics": False} | settings
        for number in self.hosts:
            self.start(number)
        world.run_until(lambda: len(self.apps) == count and all(app.readiness()[0] for app in self.apps.values()))

    def start(self, number: int) -> None:
        self.hosts[number].start(partial(self._run, number))

    async def _run(self, number: int) -> None:
        host = self.hosts[number]
        settings = broker_settings(host, broker_id=number, **self._settings)
        app = self.apps[number] = BrokerApp(settings, simulated_ports(host))
        await app.start()
        await app.wait_failed()
        await app.stop()

    # --- clients

    def call(self, work: Callable[[Cluster], Any]) -> Any:
        """Run a client's work on its machine and return what it returned."""

        async def main() -> Any:
            addresses = [Address(host.name, KAFKA_PORT) for host in self.hosts.values()]
            async with aclosing(Cluster(addresses, OPTIONS, self.client.randomness)) as cluster:
                return await work(cluster)

        return self.world.run_process(self.client, main)

    def create(self, partitions: int = 1, replicas: int = 2, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        topic = NewTopic(name="orders", partitions=partitions, replication_factor=replicas, configs=named)
        self.call(lambda cluster: Admin(cluster).create_topic(topic))

    def publish(self, *values: bytes, options: ProducerOptions | None = None, partition: int = 0) -> None:
        async def work(cluster: Cluster) -> None:
            async with Producer(cluster, options or ProducerOptions(), self.client.clock) as producer:
                for value in values:
                    await (await producer.send("orders", value=value, partition=partition))

        self.call(work)

    # --- looking inside

    def replica(self, number: int, partition: TopicPartition = ORDERS) -> Partition | None:
        app = self.apps[number]
        return None if app.services is None else app.services.partitions.hosted(*partition)

    def log(self, number: int, partition: TopicPartition = ORDERS) -> PartitionLog:
        replica = self.replica(number, partition)
        assert replica is not None
        return replica.log

    def high_watermark(self, number: int) -> int:
        replica = self.replica(number)
        return -1 if replica is None else replica.high_watermark

    @property
    def leader(self) -> int:
        """The broker that leads, as the newest of them see it."""
        epochs = {}
        for number, host in self.hosts.items():
            replica = self.replica(number) if host.is_running else None
            if replica is not None and replica.leader is not None:
                epochs[replica.leader_epoch] = number
        return epochs[max(epochs)] if epochs else 0

    @property
    def follower(self) -> int:
        return next(number for number in self.hosts if number != self.leader)

    def in_sync(self, *partitions: TopicPartition) -> bool:
        """Whether all replicas run, are in sync, and have everything."""
        for partition in partitions or (ORDERS,):
            replicas = [self.replica(number, partition) for number in self.hosts]
            if any(replica is None for replica in replicas):
                return False
            leaders = [replica for replica in replicas if replica is not None and replica.leader is not None]
            if len(leaders) != 1 or leaders[0].leader is None:
                return False
            ends = {replica.log.end_offset for replica in replicas if replica is not None}
            watermarks = {replica.high_watermark for replica in replicas if replica is not None}
            if len(leaders[0].leader.in_sync.committed) != len(self.hosts) or len(ends | watermarks) != 1:
                return False
        return True

    def wait_in_sync(self, *partitions: TopicPartition, timeout_ms: int = 60_000) -> None:
        self.world.run_until(lambda: self.in_sync(*partitions), timeout_ms)

    def check_equal(self, partition: TopicPartition = ORDERS) -> None:
        """All replicas hold the same bytes and the same epochs from the same offset on."""
        logs = [self.log(number, partition) for number in self.hosts]
        assert len({log.log_start_offset for log in logs}) == 1
        assert len({content(log) for log in logs}) == 1


@contextmanager
def brokers(count: int = 2, seed: int = 1, **settings: Any) -> Iterator[Brokers]:
    with SimWorld(seed) as world:
        yield Brokers(world, count, **settings)
        assert not world.unhandled()


def test_followers_hold_what_was_published_byte_for_byte() -> None:
    with brokers(3) as cluster:
        cluster.create(partitions=3, replicas=3)
        for partition in range(3):
            cluster.publish(*[b"%d" % number * 50 for number in range(60)], partition=partition)
        names = [TopicPartition("orders", partition) for partition in range(3)]
        cluster.wait_in_sync(*names)
        for name in names:
            cluster.check_equal(name)
            assert cluster.log(1, name).end_offset == 60


def test_a_publish_to_all_replicas_of_a_new_topic_takes_no_poll_to_pass() -> None:
    with brokers(2) as cluster:
        cluster.create(min_insync_replicas="2")
        cluster.wait_in_sync()
        cluster.world.run_for(200)
        began = cluster.world.now_ms
        cluster.publish(*[b"%d" % number for number in range(10)])
        assert cluster.world.now_ms - began < 300


def test_under_commit_an_acknowledged_message_is_on_the_devices_of_all_in_sync() -> None:
    with brokers(2) as cluster:
        cluster.create(min_insync_replicas="2", martlet_flush="commit")
        cluster.wait_in_sync()
        flushed: list[int] = []

        async def work(client: Cluster) -> None:
            async with Producer(client, ProducerOptions(), cluster.client.clock) as producer:
                for number in range(30):
                    delivery = await (await producer.send("orders", value=b"%d" % number, partition=0))
                    logs = [cluster.log(broker) for broker in cluster.hosts]
                    flushed.extend(log.durability.flushed_offset - delivery.offset - 1 for log in logs)

        cluster.call(work)
        assert len(flushed) == 60
        assert min(flushed) >= 0


def test_what_only_the_old_leader_had_is_cut_away_when_it_comes_back() -> None:
    with brokers(2) as cluster:
        cluster.create()
        cluster.publish(b"both have this")
        cluster.wait_in_sync()
        old, new = cluster.leader, cluster.follower
        network, names = cluster.world.network, {n: host.name for n, host in cluster.hosts.items()}
        network.cut(names[old], names[new])
        replica = cluster.replica(old)
        assert replica is not None
        cluster.publish(b"lost", b"lost too", options=ONE_REPLICA)
        assert cluster.log(old).end_offset == 3
        cluster.hosts[old].pause(for_ms=8_000)
        cluster.world.run_until(lambda: cluster.leader == new, timeout_ms=8_000)
        cluster.publish(b"instead", options=ONE_REPLICA)
        network.heal_all()
        cluster.wait_in_sync()
        cluster.check_equal()
        assert b"instead" in content(cluster.log(old))
        assert b"lost" not in content(cluster.log(old))


def test_a_follower_that_was_away_too_long_starts_over_at_the_leaders_log_start() -> None:
    with brokers(2) as cluster:
        cluster.create()
        cluster.publish(*[b"%d" % number for number in range(10)])
        cluster.wait_in_sync()
        leader, follower = cluster.leader, cluster.follower
        cluster.hosts[follower].crash(power_loss=False)
        cluster.publish(*[b"%d" % number for number in range(10, 40)], options=ONE_REPLICA)
        cluster.world.run_until(lambda: cluster.high_watermark(leader) == 40)
        cluster.call(lambda client: Admin(client).delete_records({ORDERS: 35}))
        cluster.start(follower)
        cluster.wait_in_sync()
        cluster.check_equal()
        assert cluster.log(follower).log_start_offset == 35


def test_copying_goes_on_from_the_leader_that_is_elected_in_the_middle_of_it() -> None:
    with brokers(3) as cluster:
        cluster.create(replicas=3, min_insync_replicas="2")
        cluster.wait_in_sync()
        first = cluster.leader
        cluster.world.at_ms(cluster.world.now_ms + 300, lambda: cluster.hosts[first].crash(power_loss=True))
        cluster.publish(*[b"%d" % number * 100 for number in range(200)])
        assert cluster.leader not in (first, 0)
        cluster.start(first)
        cluster.wait_in_sync()
        cluster.check_equal()
        assert cluster.log(1).end_offset == 200


def test_clients_learn_of_a_new_leader_before_they_learn_that_the_old_ones_broker_is_gone() -> None:
    with brokers(3) as cluster:
        cluster.create(replicas=3)
        cluster.publish(b"before")
        cluster.wait_in_sync()
        old = cluster.leader
        cluster.hosts[old].crash(power_loss=False)

        async def heard_in_order(client: Cluster) -> list[tuple[bool, bool]]:
            """Each new thing heard: whether another one leads, and whether the old one's broker is listed."""
            heard: list[tuple[bool, bool]] = []
            while not heard or heard[-1][1]:
                await client.refresh_all()
                metadata = client.metadata
                leader = metadata.topics["orders"].partitions[0].leader
                answer = (leader not in (old, -1), old in metadata.brokers)
                heard += [answer] if not heard or heard[-1] != answer else []
                await asyncio.sleep(0.1)
            return heard

        assert cluster.call(heard_in_order) == [(False, True), (True, True), (True, False)]


def test_a_leader_that_restarts_is_copied_from_again_in_its_new_epoch() -> None:
    with brokers(2) as cluster:
        cluster.create()
        cluster.publish(b"before")
        cluster.wait_in_sync()
        leader, follower = cluster.leader, cluster.follower
        cluster.hosts[follower].crash(power_loss=False)
        cluster.hosts[leader].crash(power_loss=False)
        cluster.world.run_for(100)
        cluster.start(leader)
        cluster.start(follower)
        cluster.world.run_until(lambda: cluster.leader > 0, timeout_ms=30_000)
        cluster.publish(b"after")
        cluster.wait_in_sync()
        cluster.check_equal()
        assert cluster.log(follower).end_offset == 2


def test_a_batch_damaged_on_the_leaders_disk_is_never_copied() -> None:
    with brokers(2) as cluster:
        cluster.create()
        cluster.publish(b"sound")
        cluster.wait_in_sync()
        leader, follower = cluster.leader, cluster.follower
        cluster.hosts[follower].crash(power_loss=False)
        cluster.publish(b"to be damaged" * 10, options=ONE_REPLICA)
        path = f"{log_directory(leader, ORDERS)}/{0:020d}.log"
        cluster.hosts[leader].disk.flip_bit(path, 8 * (cluster.log(leader).segments.size_bytes() - 20))
        cluster.start(follower)
        cluster.world.run_for(10_000)
        assert cluster.log(follower).end_offset == 1
        app = cluster.apps[follower]
        assert app.services is not None
        assert app.services.metrics.replica_fetch_errors > 3


def test_a_follower_cut_off_from_its_leader_catches_up_when_the_network_heals() -> None:
    with brokers(3) as cluster:
        cluster.create(replicas=3, min_insync_replicas="2")
        cluster.wait_in_sync()
        leader, follower = cluster.leader, cluster.follower
        names = {number: host.name for number, host in cluster.hosts.items()}
        cluster.world.network.cut_one_way(names[leader], names[follower])
        cluster.publish(*[b"%d" % number for number in range(50)])
        assert cluster.log(follower).end_offset < 50
        cluster.world.network.heal_all()
        cluster.wait_in_sync()
        cluster.check_equal()


@pytest.mark.parametrize("seed", range(5))
def test_replicas_become_equal_whatever_happens_to_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        # As if there were many partitions: those that are written to are copied over a connection of their own.
        monkeypatch.setattr(
            "martlet.broker.app.ReplicaFetchOptions", partial(ReplicaFetchOptions, busy_connection_from=1)
        )
    with brokers(3, seed=seed) as cluster:
        world, draw = cluster.world, cluster.world.workload
        cluster.create(partitions=2, replicas=3, min_insync_replicas="1", segment_bytes="2000")

        async def publish_on(client: Cluster) -> None:
            options = replace(ONE_REPLICA, delivery_timeout_ms=3_000)
            async with Producer(client, options, cluster.client.clock) as producer:
                for number in range(150):
                    try:
                        await (await producer.send("orders", value=b"%d" % number, partition=number % 2))
                    except (ApiError, ClientError):
                        continue
                    await asyncio.sleep(draw.below(80) / 1000)

        def strike() -> None:
            number = 1 + draw.below(3)
            host = cluster.hosts[number]
            other = cluster.hosts[1 + number % 3]
            match draw.below(5):
                case 0:
                    _restart(cluster, host, number, power_loss=bool(draw.below(2)))
                case 1:
                    world.network.cut(host.name, other.name)
                case 2:
                    world.network.reset(host.name, other.name)
                case 3:
                    host.pause(draw.below(4_000))
                case _:
                    world.network.heal_all()

        faults_end_ms = world.now_ms + 12_000
        for _ in range(12):
            world.at_ms(faults_end_ms - draw.below(12_000), strike)
        cluster.call(publish_on)
        # The last restart comes a second after the last fault, and a pause may last four.
        world.run_until(lambda: world.now_ms > faults_end_ms + 5_000)
        world.network.heal_all()
        names = [TopicPartition("orders", partition) for partition in range(2)]
        cluster.wait_in_sync(*names, timeout_ms=120_000)
        for name in names:
            cluster.check_equal(name)


def _restart(cluster: Brokers, host: SimHost, number: int, *, power_loss: bool) -> None:
    def start() -> None:
        if not host.is_running:
            cluster.start(number)

    host.crash(power_loss=power_loss)
    cluster.world.at_ms(cluster.world.now_ms + 1_000, start)
