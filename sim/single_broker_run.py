"""One seed's run of a single broker under faults, and the judgement of what its clients saw.

A publisher sends numbered messages with acks=all and idempotence, a tail reader follows, and meanwhile faults strike:
kills, power losses, crashes at a drawn disk change, clean stops, failing syncs and writes, pauses, clock jumps, network
cuts, resets, drips and store outages. Then all heals, what is left is delivered, and everything is read back.

The promise that is judged: what was acknowledged is there at the offset answered, exactly once; what was not
acknowledged is there at most once; per partition messages are in the order of sending; no reader ever got anything
that is not there in the end.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial

from martlet.base.addresses import Address
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.accumulator import Delivery
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.client.offsets import LATEST, list_offsets
from martlet.client.options import ClientOptions
from martlet.client.producer import Producer, ProducerOptions
from sim.remote_store import STORE_NAME
from sim.simulated_broker import KAFKA_PORT, StopRequest, broker_settings, run_broker
from sim.world import SimTimeout, SimWorld

TOPIC = "orders"
PARTITIONS = 2
BATCH_BYTES = 4_000
FAULTS_END_MS = 20_000
OPTIONS = ClientOptions(connect_timeout_ms=2_000, request_timeout_ms=5_000, retry_timeout_ms=60_000)

Place = tuple[int, int]


@dataclass
class Ledger:
    """What the clients were answered and saw; filled from inside the simulation, judged afterwards."""

    sent: list[int] = field(default_factory=list)
    acknowledged: dict[int, Place] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    seen: dict[Place, bytes | None] = field(default_factory=dict)
    final: dict[Place, bytes | None] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)

    def saw(self, place: Place, value: bytes | None) -> None:
        if self.seen.setdefault(place, value) != value:
            self.contradictions.append(f"{place} was {self.seen[place]!r} and then {value!r}")

    def violations(self) -> list[str]:
        """Every broken promise, in words."""
        found = list(self.contradictions)
        places: dict[int, list[Place]] = {}
        for place, value in sorted(self.final.items()):
            places.setdefault(int(value or b"-1"), []).append(place)
        for number, place in self.acknowledged.items():
            if places.get(number) != [place]:
                found.append(f"message {number} was acknowledged at {place} but is at {places.get(number)}")
        found += [f"message {number} is there {len(where)} times" for number, where in places.items() if len(where) > 1]
        found += [f"message {number} was never sent" for number in places if number not in set(self.sent)]
        found += [
            f"{place} was read as {value!r} and is {self.final.get(place)!r} in the end"
            for place, value in self.seen.items()
            if self.final.get(place) != value
        ]
        for partition in range(PARTITIONS):
            numbers = [int(value or b"-1") for place, value in sorted(self.final.items()) if place[0] == partition]
            if numbers != sorted(numbers):
                found.append(f"partition {partition} is out of order: {numbers}")
        return found


@dataclass(frozen=True)
class Outcome:
    """What one seed came to."""

    seed: int
    violations: list[str]
    trace_hash: str
    acknowledged: int
    sent: int
    starts: int
    boots: int
    steps: int
    virtual_ms: int
    faults: list[str]


class SingleBrokerRun:
    """Builds the world of one seed and lets it run."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.ledger = Ledger()
        self.faults: list[str] = []
        self.broker = world.add_host("broker", drift_ppm=world.workload.below(400) - 200)
        self.publisher = world.add_host("publisher")
        self.reader = world.add_host("reader")
        self.settings = broker_settings(self.broker, default_partitions=PARTITIONS, checkpoint_interval_ms=1_000)
        self.stop_request = StopRequest(self.broker)
        self._restart_after_ms = 0
        self._published = False
        self._supervise()

    # --- processes

    def _supervise(self) -> None:
        """Start the broker whenever it is down and its time has come."""
        world = self.world
        if not self.broker.is_running and world.now_ms >= self._restart_after_ms:
            self.broker.start(partial(run_broker, self.broker, self.settings, self.stop_request))
        world.at_ms(world.now_ms + 50, self._supervise)

    async def publish(self) -> None:
        """Send numbered messages through the time of the faults, then wait for the fate of each."""
        randomness = self.world.randomness.stream("publisher")
        deliveries: list[tuple[int, asyncio.Task[None]]] = []
        options = ProducerOptions(linger_ms=5, delivery_timeout_ms=90_000, batch_bytes=BATCH_BYTES)
        cluster = Cluster([Address("broker", KAFKA_PORT)], OPTIONS, self.publisher.randomness)
        await self._create_topic(cluster)
        async with Producer(cluster, options, self.publisher.clock) as producer:
            while self.world.now_ms < FAULTS_END_MS:
                for _ in range(1 + randomness.below(4)):
                    number = len(self.ledger.sent)
                    self.ledger.sent.append(number)
                    value = b"%d" % number + b" " * randomness.below(BATCH_BYTES // 4)
                    try:
                        delivery = await producer.send(TOPIC, value, partition=randomness.below(PARTITIONS))
                    except (ApiError, ClientError):
                        self.ledger.refused.add(number)
                        continue
                    deliveries.append((number, asyncio.create_task(self._settle(number, delivery))))
                await asyncio.sleep(randomness.below(400) / 1000)
            for _, task in deliveries:
                await task
        await cluster.aclose()
        self._published = True

    async def _create_topic(self, cluster: Cluster) -> None:
        """With segments so small that they are rolled all the time, in two of three runs."""
        segment_bytes = (2 * BATCH_BYTES, 10 * BATCH_BYTES, 1 << 30)[self.world.workload.below(3)]
        topic = NewTopic(
            name=TOPIC,
            partitions=PARTITIONS,
            configs={"segment.bytes": str(segment_bytes), "index.interval.bytes": "1000"},
        )
        while True:
            try:
                await Admin(cluster).create_topic(topic)
                return
            except ApiError as error:
                if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    return
            except ClientError:
                pass
            await asyncio.sleep(0.2)

    async def _settle(self, number: int, delivery: Delivery) -> None:
        try:
            delivered = await delivery
        except (ApiError, ClientError):
            return
        if delivered.offset >= 0:
            self.ledger.acknowledged[number] = (delivered.partition, delivered.offset)

    async def follow(self) -> None:
        """Read along, whatever happens."""
        while True:
            try:
                async with Cluster([Address("broker", KAFKA_PORT)], OPTIONS, self.reader.randomness) as cluster:
                    await self._read_on(cluster)
            except (ApiError, ClientError):
                await asyncio.sleep(0.5)

    async def _read_on(self, cluster: Cluster) -> None:
        await cluster.topic(TOPIC)
        async with Fetcher(cluster, FetcherOptions(max_wait_ms=500)) as fetcher:
            fetcher.assign({TopicPartition(TOPIC, partition): 0 for partition in range(PARTITIONS)})
            while True:
                for fetched in await fetcher.fetch():
                    for record in fetched.records(batch_bytes_max=1 << 20):
                        self.ledger.saw((fetched.partition.partition, record.offset), record.value)

    async def read_all(self) -> None:
        """Read everything there is, once all is quiet; a broker that was stopped or starts may need some patience."""
        while True:
            self.ledger.final.clear()
            try:
                async with Cluster([Address("broker", KAFKA_PORT)], OPTIONS, self.reader.randomness) as cluster:
                    await self._read_to_end(cluster)
                return
            except ClientError:
                await asyncio.sleep(1)

    async def _read_to_end(self, cluster: Cluster) -> None:
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
        async with Fetcher(cluster, FetcherOptions(max_wait_ms=200)) as fetcher:
            fetcher.assign(dict.fromkeys(partitions, 0))
            while any(fetcher.positions[partition] < ends[partition].offset for partition in partitions):
                for fetched in await fetcher.fetch():
                    for record in fetched.records(batch_bytes_max=1 << 20):
                        self.ledger.final[fetched.partition.partition, record.offset] = record.value

    # --- faults

    def plan_faults(self) -> None:
        draw = self.world.workload.below
        for _ in range(3 + draw(8)):
            self.world.at_ms(1_000 + draw(FAULTS_END_MS - 1_000), partial(self._strike, draw(14), draw(3_000)))

    def _strike(self, kind: int, length_ms: int) -> None:
        world, network = self.world, self.world.network
        end_ms = world.now_ms + length_ms
        self.faults.append(f"{world.now_ms} kind {kind} for {length_ms}")
        match kind:
            case 0 | 1:
                self._restart_after_ms = end_ms
                self.broker.crash(power_loss=kind == 1)
            case 2 | 3:
                self._restart_after_ms = end_ms
                self.broker.dies_by_power = kind == 3
                self.broker.disk.stop_after(length_ms % 40)
            case 4:
                self.broker.pause(length_ms * 3)
            case 5:
                network.cut("broker", ("publisher", "reader", STORE_NAME)[length_ms % 3])
                world.at_ms(end_ms * 2 - world.now_ms, network.heal_all)
            case 6:
                ends = ("broker", ("publisher", "reader", STORE_NAME)[length_ms % 3])
                network.cut_one_way(*(ends if length_ms % 2 else ends[::-1]))
                world.at_ms(end_ms, network.heal_all)
            case 7:
                network.reset("broker", "publisher")
            case 8:
                network.slow_drip("publisher", "broker", 1 + length_ms % 50)
                world.at_ms(end_ms, partial(network.slow_drip, "publisher", "broker", None))
            case 9:
                self.broker.clock.jump(length_ms * 100 - 150_000)
            case 10 if self.broker.is_running:
                self.broker.disk.fail_next_sync()
            case 11 if self.broker.is_running:
                self.broker.disk.fail_next_write()
            case 12:
                self._restart_after_ms = end_ms
                self.stop_request.send()
            case _:
                world.store_server.stop()
                world.store_server.state.compact()
                world.at_ms(end_ms, world.store_server.start)

    def run(self) -> Outcome:
        world = self.world
        self.plan_faults()
        self.publisher.start(self.publish)
        self.reader.start(self.follow)
        world.run_until(lambda: world.now_ms >= FAULTS_END_MS)
        world.network.heal_all()
        if not world.store_server.is_up:
            world.store_server.start()
        # A last restart: a log that could not be opened while its disk failed stays offline until then.
        self.broker.crash(power_loss=bool(world.workload.below(2)))
        world.run_until(lambda: self._published, 200_000)
        self.reader.crash(power_loss=False)
        ledger = self.ledger
        try:
            world.run_process(self.reader, self.read_all, 200_000)
            violations = ledger.violations()
        except (ApiError, SimTimeout) as error:
            violations = [f"the messages could not be read back: {error}"]
        return Outcome(
            seed=int(world.seed),
            violations=violations + world.unhandled(),
            trace_hash=world.trace_hash(),
            acknowledged=len(ledger.acknowledged),
            sent=len(ledger.sent),
            starts=self.broker.starts,
            boots=self.broker.boots,
            steps=world.scheduler.steps,
            virtual_ms=world.now_ms,
            faults=self.faults,
        )


def run_seed(seed: int) -> Outcome:
    """One whole run."""
    with SimWorld(seed) as world:
        return SingleBrokerRun(world).run()
