"""One seed's run of three brokers under faults, and the judgement of it.

Three real brokers with a simulated store, network and disks; a topic with three replicas and a minimum of two in sync;
publishers with acks=all and idempotence, a reader that follows, a group that commits. Faults strike for some time while
the invariants REP-1 to REP-15 are checked (`ghost.py`). Then all heals, and within a bounded virtual time must hold:
SIM-1 every partition has a leader; SIM-2 every in-sync set is full again and no copy is damaged; SIM-3 a fresh reader
   finds everything acknowledged, and the history is judged (`history_checker.py`); SIM-4 every publish has its outcome;
   SIM-5 no task and no connection is left over.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from martlet.base.ids import BrokerId
from martlet.broker.app import BrokerApp
from martlet.broker.ground.settings import BrokerSettings
from martlet.client.admin import NewTopic
from sim.cluster_workload import TOPIC, Clients
from sim.faults.plan import Faults
from sim.ghost import Ghost
from sim.host import SimHost
from sim.link import LinkQuality
from sim.randomness import SimRandomness
from sim.rot import Rot
from sim.scheduler import NS_PER_MS, SimDeadlock, SimOverrun
from sim.simulated_broker import StopRequest, broker_settings, simulated_ports
from sim.world import SimTimeout, SimWorld

BROKERS: Final = 3
MIN_IN_SYNC: Final = 2
LEASE_MS: Final = 2_000
LAG_MS: Final = 2_500
BALANCE_MS: Final = 3_000
STORE_ANSWER_MS: Final = 1_500
FETCH_WAIT_MS: Final = 1_000
SNAPSHOT_MIN_BYTES: Final = 300
MANY_PARTITIONS: Final = 50
FAULTS_BEGIN_MS: Final = 2_000
FAULTS_END_MS: Final = 16_000
HEAL_WITHIN_MS: Final = 60_000
ACKNOWLEDGED_MIN: Final = 10
"""A run in which fewer messages are acknowledged proves nothing; publishers go on until there are this many."""

_RESTART_MS: Final = 300
_SUPERVISE_MS: Final = 50
_TASKS_PER_BROKER_MAX: Final = 30
_CONNECTIONS_PER_BROKER_MAX: Final = 20


@dataclass(frozen=True)
class Outcome:
    """What one seed came to."""

    seed: int
    violations: list[str]
    trace_hash: str
    acknowledged: int
    sent: int
    starts: int
    checks: int
    steps: int
    virtual_ms: int
    faults: list[str]


class ClusterRun:
    """Builds the world of one seed and lets it run."""

    def __init__(self, world: SimWorld, quality: LinkQuality) -> None:
        self.world = world
        self.quality = quality
        self.lease_ms = LEASE_MS
        self.is_over = False
        draw = world.workload.below
        self.brokers: dict[BrokerId, SimHost] = {
            BrokerId(number): world.add_host(f"broker{number}", drift_ppm=draw(400) - 200)
            for number in range(1, BROKERS + 1)
        }
        self.publishers = [world.add_host(f"publisher{number}") for number in (1, 2)]
        self.reader = world.add_host("reader")
        self.client_hosts = [*self.publishers, self.reader]
        world.store_server.answer_wait_ms = STORE_ANSWER_MS
        self.armed: list[BrokerId] = []
        """Brokers that may lose power at one of their next disk changes."""
        self.stop_requests = {broker: StopRequest(host) for broker, host in self.brokers.items()}
        # With many of them a follower fetches over two connections.
        self.partitions = MANY_PARTITIONS if not draw(40) else 1 + draw(2)
        self.flush = ("auto", "auto", "auto", "commit")[draw(4)]
        self.segment_bytes = (2_000, 20_000, 1 << 30)[draw(3)]
        self.has_group = not draw(3)
        # With little at a time a replica that catches up passes through every state in between.
        self.fetch_bytes = (10 << 20, 600)[draw(2)]
        # One publisher then has several batches of a partition under way, as librdkafka does.
        self.pipelines = draw(3) > 0
        self.ghost = Ghost(world, self.brokers, min_in_sync=MIN_IN_SYNC, durable=self.flush == "commit")
        names = [host.name for host in self.brokers.values()]
        self.clients = Clients(world, self.ghost, names, self.partitions)
        self.clients.reader_rack = ("", "rack1", "rack2")[draw(3)]
        self.faults = Faults(self)
        self.rot = Rot(self)
        self._down_until_ms = dict.fromkeys(self.brokers, 0)
        self._stopped_cleanly = dict.fromkeys(self.brokers, False)
        self._published = [False, False]
        for broker, host in self.brokers.items():
            host.on_crashed = partial(self._crashed, broker)

    # --- brokers

    def settings(self, broker: BrokerId) -> BrokerSettings:
        host = self.brokers[broker]
        return broker_settings(
            host,
            broker_id=int(broker),
            lease_ms=LEASE_MS,
            replica_lag_time_max_ms=LAG_MS,
            default_replication_factor=BROKERS,
            default_partitions=self.partitions,
            rack=f"rack{broker}",
            leader_balance_interval_ms=BALANCE_MS,
            replica_fetch_bytes_max=self.fetch_bytes,
            replica_fetch_wait_ms=FETCH_WAIT_MS,
            checkpoint_interval_ms=1_000,
            offsets_topic_partitions=1,
            coordinator_snapshot_min_bytes=SNAPSHOT_MIN_BYTES,
            auto_create_topics=False,
            shutdown_timeout_ms=2_000,
        )

    async def _run_broker(self, broker: BrokerId) -> None:
        """The main function of a broker's process."""
        host, request = self.brokers[broker], self.stop_requests[broker]
        self._stopped_cleanly[broker] = False
        app = BrokerApp(self.settings(broker), simulated_ports(host))
        self.ghost.started(broker, app)
        await app.start()
        failed = asyncio.create_task(app.wait_failed())
        asked = asyncio.create_task(request.wait())
        await asyncio.wait([failed, asked], return_when=asyncio.FIRST_COMPLETED)
        await app.stop()
        self._stopped_cleanly[broker] = not failed.done()

    def _supervise(self) -> None:
        """Start every broker that is down when its time has come."""
        if self.is_over:
            return
        for broker, host in self.brokers.items():
            if not host.is_running and self.world.now_ms >= self._down_until_ms[broker]:
                self._down_until_ms[broker] = self.world.now_ms + _RESTART_MS
                host.start(partial(self._run_broker, broker))
        self.world.at_ms(self.world.now_ms + _SUPERVISE_MS, self._supervise)

    def stay_down(self, broker: BrokerId, until_ms: int) -> None:
        """Should it end now, it is not started again before that time."""
        self._down_until_ms[broker] = until_ms

    def has_stopped_cleanly(self, broker: BrokerId) -> bool:
        """Whether its last process ended by itself, with everything on the device."""
        return self._stopped_cleanly[broker]

    def may_lose(self, broker: BrokerId) -> bool:
        """Whether the promise covers it when this one loses a part of its disk."""
        return self.ghost.may_lose(broker) and not any(other != broker for other in self.armed)

    def wipe(self, broker: BrokerId) -> None:
        self._stopped_cleanly[broker] = False
        self.brokers[broker].wipe_disk()
        self.ghost.lost_disk(broker)

    def _crashed(self, broker: BrokerId, power_loss: bool) -> None:
        if broker in self.armed:
            self.armed.remove(broker)
        if not power_loss:
            return
        if self._stopped_cleanly[broker]:
            self.ghost.check_untouched(broker)
        else:
            self.ghost.lost_disk(broker)

    # --- clients

    def _start_clients(self) -> None:
        topic = NewTopic(
            name=TOPIC,
            partitions=self.partitions,
            replication_factor=BROKERS,
            configs={
                "min.insync.replicas": str(MIN_IN_SYNC),
                "segment.bytes": str(self.segment_bytes),
                "index.interval.bytes": "1000",
                "martlet.flush": self.flush,
                "retention.ms": "-1",
            },
        )
        self.clients.sending_until_ms = FAULTS_END_MS
        self.clients.acknowledged_min = ACKNOWLEDGED_MIN
        for number, host in enumerate(self.publishers):
            host.start(partial(self._publish, number, topic if number == 0 else None))
        self.reader.start(self._follow)

    async def _publish(self, number: int, topic: NewTopic | None) -> None:
        host = self.publishers[number]
        if topic is not None:
            await self.clients.create_topic(host, topic)
        pipelines = number == 1 and self.pipelines
        await (self.clients.publish_pipelined if pipelines else self.clients.publish)(host)
        self._published[number] = True

    async def _follow(self) -> None:
        if self.has_group:
            draws = self.world.randomness.stream("group")
            asyncio.create_task(self.clients.commit_positions(self.reader, draws))  # noqa: RUF006 - ends with the process
        while not self.clients.topic_exists:
            await asyncio.sleep(0.1)
        await self.clients.follow(self.reader)

    def restart_publisher(self, number: int) -> None:
        """The publisher's process dies, with messages under way, and another one takes its place."""
        number %= len(self.publishers)
        host = self.publishers[number]
        if self.clients.topic_exists and host.is_running:
            host.crash(power_loss=False)
            self.clients.publisher_died(host.name)
            host.start(partial(self._publish, number, None))

    # --- the run

    def run(self) -> Outcome:
        world, violations = self.world, self.ghost.violations
        self._supervise()
        self._start_clients()
        self.faults.plan(FAULTS_BEGIN_MS, FAULTS_END_MS, 5 + world.workload.below(11))
        self.rot.plan(FAULTS_BEGIN_MS, FAULTS_END_MS)
        try:
            self._wait(lambda: world.now_ms >= FAULTS_END_MS, FAULTS_END_MS + 1_000, "")
            self._heal()
            if not violations:
                self._check_liveness()
        except (SimDeadlock, SimOverrun) as error:
            violations.append(f"stuck: {error}")
        self.is_over = True
        if not violations:
            violations += self._judge()
        return self._outcome()

    def _judge(self) -> list[str]:
        """What is wrong with what clients were answered and given."""
        return [str(violation) for violation in self.clients.history.judge()]

    def _wait(self, condition: Callable[[], bool], within_ms: int, failure: str) -> bool:
        violations = self.ghost.violations
        try:
            self.world.run_until(lambda: bool(violations) or condition(), within_ms)
        except SimTimeout as error:
            if failure:
                violations.append(f"{failure}: {error}")
        return not violations

    def _heal(self) -> None:
        """No more faults, and every broker that is down comes back."""
        world = self.world
        world.network.heal_all()
        world.store_server.heal()
        for broker, host in self.brokers.items():
            host.disk.stop_no_more()
            self._down_until_ms[broker] = min(self._down_until_ms[broker], world.now_ms)
            app = self.ghost.app(broker)
            if app is not None and app.services is not None and app.services.logs.failures:
                # A sole replica that could not be opened while its disk failed is offline until it is restarted.
                host.crash(power_loss=False)
        self.armed.clear()

    def _check_liveness(self) -> None:
        steps = (
            (lambda: all(self._published), "SIM-4: publishes without an outcome"),
            (self._has_leaders, "SIM-1: a partition has no leader"),
            (self._is_whole, "SIM-2: an in-sync set is not full"),
        )
        for condition, failure in steps:
            if not self._wait(condition, HEAL_WITHIN_MS, failure):
                return
        self.reader.crash(power_loss=False)
        if self.clients.unsettled:
            self.ghost.violations.append(f"SIM-4: {self.clients.unsettled} publishes have no outcome")
        self.reader.start(partial(self.clients.read_all, self.reader))
        if not self._wait(lambda: not self.reader.is_running, HEAL_WITHIN_MS, "SIM-3: not everything can be read"):
            return
        if self.has_group:
            self.reader.start(partial(self.clients.check_positions, self.reader))
            if not self._wait(
                lambda: not self.reader.is_running, HEAL_WITHIN_MS, "SIM-3: no group position can be read"
            ):
                return
        # A position committed last may have met a set that has changed since.
        if not self._wait(self._is_whole, HEAL_WITHIN_MS, "SIM-2: an in-sync set is not full again"):
            return
        self._check_leftovers()
        if self.clients.history.acknowledged_count < ACKNOWLEDGED_MIN:
            count = self.clients.history.acknowledged_count
            self.ghost.violations.append(f"idle: only {count} messages were acknowledged")

    def _check_leftovers(self) -> None:
        """All is quiet: copies are equal, and no broker keeps what it does not need."""
        self.ghost.check_all_equal()
        for host in self.brokers.values():
            tasks = host.loop.describe_tasks() if host.loop is not None else []
            connections = self.world.network.open_connections(host.name)
            if len(tasks) > _TASKS_PER_BROKER_MAX or connections > _CONNECTIONS_PER_BROKER_MAX:
                text = f"SIM-5: {host.name} has {connections} connections and {len(tasks)} tasks: {tasks}"
                self.ghost.violations.append(text)

    def _has_leaders(self) -> bool:
        store = self.ghost.store
        return all(
            record.leader is not None and self.ghost.process_of(record.leader) in record.isr
            for record in store.partitions.values()
        )

    def _is_whole(self) -> bool:
        store = self.ghost.store
        return not self.rot.is_left and all(
            [self.ghost.process_of(member.broker) for member in record.isr] == list(record.isr)
            and len(record.isr) == len(record.replicas)
            for record in store.partitions.values()
        )

    def _outcome(self) -> Outcome:
        world, history = self.world, self.clients.history
        return Outcome(
            seed=int(world.seed),
            violations=[*self.ghost.violations, *world.unhandled()],
            trace_hash=world.trace_hash(),
            acknowledged=history.acknowledged_count,
            sent=history.counts()["sent"],
            starts=sum(host.starts for host in self.brokers.values()),
            checks=self.ghost.checks,
            steps=world.scheduler.steps,
            virtual_ms=world.now_ms,
            faults=self.faults.struck,
        )


_worlds: list[SimWorld] = []


def now_ms() -> int:
    """Virtual time of the run that goes on, for those who print what it says."""
    return _worlds[-1].now_ms if _worlds else 0


def run_seed(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One whole run."""
    return run_seed_of(ClusterRun, seed, keep_trace=keep_trace)


def run_seed_of(kind: type[ClusterRun], seed: int, *, keep_trace: bool = False) -> Outcome:
    """One whole run of some kind, in a world of its own."""
    # Where packets are slow, brokers learn late what is committed, and more is under way when something dies.
    latency_ms = (2, 2, 20, 150)[SimRandomness(f"network of {seed}").below(4)]
    quality = LinkQuality(latency_ns_min=latency_ms * NS_PER_MS // 20, latency_ns_max=latency_ms * NS_PER_MS)
    with SimWorld(seed, quality=quality, keep_trace=keep_trace) as world:
        _worlds.append(world)
        try:
            return kind(world, quality).run()
        finally:
            _worlds.pop()
