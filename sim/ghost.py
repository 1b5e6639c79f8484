"""The invariants of a replicated cluster, checked while it runs, against what the brokers themselves cannot see.

How it works: after every turn of a broker's event loop its replicas are compared with what they were; whatever moved is
compared on its disk (`DiskLog`). The ghost keeps what was ever committed: when a leader's high watermark passes a
batch, that batch is *committed* and stays so for ever, at its offset, with its bytes. The store's side is kept by a
`StoreWitness`. Nothing here is seen by the brokers and nothing here changes them.

The invariants, by the numbers of docs/architecture.md:
REP-1 the leader of the newest epoch holds everything committed; REP-2 so does every running member of the stored
   in-sync and eligible sets that counts; REP-3 replicas agree below their high watermarks, and one epoch writes an
   offset once; REP-4 the leader's maximal set holds all who may be elected; REP-5 one leader process per epoch (and
   `StoreWitness`); REP-6 a leader's high watermark passes no member of the maximal set, stands still under the minimum,
   and no follower's passes the leaders';
REP-7 what becomes committed is held by the minimum of replicas, on their devices if the topic says so; REP-8 readers
   get what is committed and nothing else; REP-9 something committed is always on some disk; REP-10 each producer's
   batches come once and in order; REP-11 no broker without a lease appends; REP-12 what a broker believes of its log is
   what lies on its disk;
REP-13 a process that finds a part of its disk gone vouches for none before it, and so is in no set that counts; REP-14
   a broker's metadata is what the store held at that revision; REP-15 a group's position is committed and not lost.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from martlet.base.ids import BrokerId, Member, TopicPartition
from martlet.broker.app import BrokerApp
from martlet.cluster.keys import partition_key
from martlet.wire.batch import BatchHeader
from martlet.wire.records.record import Record
from sim.host import SimHost
from sim.leader_checks import LeaderChecks
from sim.ledger import Ledger, Watched
from sim.loop import SimLoop
from sim.store_witness import StoreWitness
from sim.world import SimWorld

_VIOLATIONS_KEPT = 20


class Ghost:
    """One per run."""

    def __init__(self, world: SimWorld, hosts: Mapping[BrokerId, SimHost], *, min_in_sync: int, durable: bool) -> None:
        self.world = world
        self.hosts = hosts
        self.min_in_sync = min_in_sync
        self.violations: list[str] = []
        self.ledger = Ledger(hosts, self.report, durable=durable)
        self.store = StoreWitness(world.store_server.state, self.report)
        self._leaders = LeaderChecks(self, self.ledger)
        self.store.on_partition = self._leaders.record_stored
        self.checks = 0
        self.is_rotten: Callable[[BrokerId], bool] = lambda broker: False
        """Whether a copy on this broker is damaged, or has been thrown away for that and is not in sync again."""
        self.on_committed: Callable[[TopicPartition, BatchHeader, Sequence[Record]], None] = _nothing
        """Hears of every batch that becomes committed, in each partition's order."""
        self._watched: dict[BrokerId, Watched] = {}
        self._by_loop: dict[int, BrokerId] = {}
        world.scheduler.after_turn = self._turned

    def report(self, name: str, text: str) -> None:
        """Note a violation."""
        if len(self.violations) < _VIOLATIONS_KEPT:
            self.violations.append(f"{name} at {self.world.now_ms} ms: {text}")

    # --- processes

    def started(self, broker: BrokerId, app: BrokerApp) -> None:
        """Called by the process itself, on its own loop."""
        loop = self.hosts[broker].loop
        if loop is not None:
            self._watched[broker] = Watched(app, loop)
            self._by_loop[loop.number] = broker

    def app(self, broker: BrokerId) -> BrokerApp | None:
        """The running process, if it has got far enough to have replicas."""
        watched = self._watched.get(broker)
        if watched is None or watched.loop.is_dead or self.hosts[broker].loop is not watched.loop:
            return None
        return watched.app if watched.app.services is not None else None

    def process_of(self, broker: BrokerId) -> Member | None:
        app = self.app(broker)
        return app.services.me if app is not None and app.services is not None else None

    def before_crash(self, broker: BrokerId) -> None:
        """Something is about to end this process: see what it did last."""
        watched = self._watched.get(broker)
        if watched is not None:
            self._check(broker, watched)

    def lost_disk(self, broker: BrokerId) -> None:
        """A part of this broker's disk may be gone."""
        self.store.lost_disk(broker)
        for partition in self.ledger.committed:
            self._check_somewhere(partition)

    def may_lose(self, broker: BrokerId) -> bool:
        """Whether one more broker may lose something: the promise holds for fewer than the minimum at a time."""
        lossy = [other for other in self.hosts if other != broker and self.is_lossy(other)]
        return len(lossy) < self.min_in_sync - 1

    def is_lossy(self, broker: BrokerId) -> bool:
        return self.is_rotten(broker) or not self.store.has_recovered(broker)

    # --- turns

    def _turned(self, loop: SimLoop) -> None:
        broker = self._by_loop.get(loop.number)
        if broker is not None:
            watched = self._watched[broker]
            if watched.loop is loop:
                self._check(broker, watched)

    def _check(self, broker: BrokerId, watched: Watched) -> None:
        services = watched.app.services
        if services is None:
            return
        if watched.revision < 0 and self.store.vouches_wrongly(services.me):
            self.report("REP-13", f"{services.me} lost a part of its disk and vouches for what it held before")
        table = services.partitions
        for partition in self.store.partitions:
            held = table.hosted(*partition)
            if held is None:
                continue
            replica = self.ledger.replica(broker, partition)
            if held.offline:
                self._check_failed(broker, watched, partition, held)
                continue
            leader = held.leader
            if (
                held.high_watermark != replica.high_watermark
                or held.log.end_offset != replica.end_offset
                or held.leader_epoch != replica.epoch
                or (leader is not None) != replica.is_leading
                or (leader is not None and leader.in_sync is not replica.in_sync)
            ):
                self._moved(broker, watched, partition, held)
            if leader is not None:
                self.ledger.leader_starts_at(partition, held.log.log_start_offset)
        image = services.image
        if image.revision != watched.revision:
            self._check_image(broker, watched)
        watched.may_act = table.may_act()

    def _moved(self, broker: BrokerId, watched: Watched, partition: TopicPartition, held: Any) -> None:
        """A replica is not what it was: read on, then everything that could have been hurt."""
        self.checks += 1
        replica = self.ledger.replica(broker, partition)
        log, leader = held.log, held.leader
        grew = log.end_offset > replica.end_offset >= 0
        led_until_now = replica.is_leading and replica.process is watched
        replica.process = watched
        replica.end_offset, replica.high_watermark = log.end_offset, held.high_watermark
        replica.epoch, replica.is_leading = held.leader_epoch, leader is not None
        replica.in_sync = leader.in_sync if leader is not None else None
        self.ledger.read_on(broker, partition, replica)
        self.ledger.check_own(broker, partition, replica, held)
        if leader is not None:
            # A turn after a pause may append what was fetched before, and learn of the leadership after that.
            wrote = grew and replica.disk.batches[-1].epoch == held.leader_epoch
            if wrote and not watched.may_act and not watched.app.services.partitions.may_act():  # type: ignore[union-attr]
                self.report("REP-11", f"broker {broker} appended to {partition} without a lease")
            self._leaders.check_leader(broker, partition, replica, leader)
        committed = self.ledger.of(partition)
        if leader is None and held.high_watermark > committed.end_offset:
            if led_until_now:
                # It heard in one turn of an in-sync set that let it go on, and of its leadership's end.
                self._leaders.commit(broker, partition, replica, held.high_watermark)
            else:
                self.report("REP-6", f"broker {broker} follows {partition} with a high watermark that no leader had")
        self.ledger.verify(broker, partition, up_to=min(held.high_watermark, committed.end_offset), name="REP-3")

    def _check_failed(self, broker: BrokerId, watched: Watched, partition: TopicPartition, held: Any) -> None:
        """This copy has failed. What it committed as the leader in that very turn may have reached others."""
        replica = self.ledger.replica(broker, partition)
        led_until_now = replica.is_leading and replica.process is watched
        replica.is_leading = False
        if led_until_now and held.high_watermark > self.ledger.of(partition).end_offset:
            self.ledger.read_on(broker, partition, replica)
            self._leaders.commit(broker, partition, replica, held.high_watermark)

    def end_offset(self, broker: BrokerId, partition: TopicPartition) -> int:
        """Where the broker's copy ends, as last seen."""
        return self.ledger.replica(broker, partition).end_offset

    def high_watermark(self, broker: BrokerId, partition: TopicPartition) -> int:
        """What the broker knows to be committed, as last seen."""
        return self.ledger.replica(broker, partition).high_watermark

    # --- what lies on disks

    def _check_somewhere(self, partition: TopicPartition) -> None:
        committed = self.ledger.of(partition)
        for broker in self.hosts:
            replica = self.ledger.replica(broker, partition)
            self.ledger.read_on(broker, partition, replica)
            if replica.disk.batches[: len(committed.batches)] == committed.batches:
                return
        if sum(self.is_lossy(broker) for broker in self.hosts) < self.min_in_sync:
            self.report("REP-9", f"no disk holds all of {partition} up to {committed.end_offset}")

    def check_untouched(self, broker: BrokerId) -> None:
        """After a power loss of a machine whose broker had stopped cleanly: nothing may have changed."""
        for partition in self.store.partitions:
            replica = self.ledger.replica(broker, partition)
            before = list(replica.disk.batches)
            self.ledger.read_on(broker, partition, replica)
            if replica.disk.batches != before:
                text = f"broker {broker} had stopped cleanly, yet the power loss took {partition} from {before[-1:]}"
                self.report("REP-9", f"{text} to {replica.disk.batches[-1:]}")

    def check_all_equal(self) -> None:
        """When all is quiet: every replica holds what is committed, and nothing else."""
        for partition, committed in self.ledger.committed.items():
            for broker in self.hosts:
                replica = self.ledger.replica(broker, partition)
                self.ledger.read_on(broker, partition, replica)
                if replica.in_log(replica.disk.batches) != replica.in_log(committed.batches):
                    ends = f"{replica.disk.end_offset}, committed are {committed.end_offset}"
                    self.report("SIM-2", f"broker {broker} holds {partition} up to {ends}, and not the same")

    # --- metadata

    def _check_image(self, broker: BrokerId, watched: Watched) -> None:
        services = watched.app.services
        if services is None:
            return
        image = services.image
        if image.revision < watched.revision:
            self.report("REP-14", f"broker {broker} went from revision {watched.revision} back to {image.revision}")
        watched.revision = image.revision
        for topic in image.topics():
            for record in image.partitions(topic.name):
                stored = self.store.version_of(partition_key(topic.id, record.partition), image.revision)
                if record.mod_revision != stored:
                    text = f"broker {broker} at revision {image.revision} holds {topic.name}-{record.partition}"
                    self.report("REP-14", f"{text} of {record.mod_revision}, the store {stored}")

    # --- clients

    def committed_end(self, partition: TopicPartition) -> int:
        return self.ledger.of(partition).end_offset

    def acknowledged(self, partition: TopicPartition, offset: int, value: bytes, *, committed_before: int) -> None:
        """A publisher got this answer; `committed_before` was the committed end when it sent the message."""
        found = self.ledger.of(partition).values.get(offset)
        if found != value:
            self.report("REP-1", f"{partition}/{offset} is acknowledged as {value[:30]!r}, committed is {found!r:.40}")
        if offset < committed_before:
            self.report("REP-1", f"{partition}/{offset} is acknowledged below {committed_before}, committed before")

    def delivered(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A reader was given this."""
        found = self.ledger.of(partition).values.get(offset)
        if found != value:
            self.report("REP-8", f"{partition}/{offset} was read as {value[:30]!r}, committed is {found!r:.40}")

    def position_committed(self, partition: TopicPartition, offset: int) -> None:
        """A group's position was answered or acknowledged."""
        if offset > self.committed_end(partition):
            self.report("REP-15", f"a group is at {partition}/{offset}, beyond what is committed")


def _nothing(partition: TopicPartition, header: BatchHeader, records: Sequence[Record]) -> None:
    return None
