"""The invariants of a replicated cluster, checked while it runs, against what the brokers themselves cannot see.

How it works: after every turn of a broker's event loop its replicas are compared with what they were; whatever moved is
looked up on its disk (`DiskLog`). The ghost keeps what was ever committed: when a leader's high watermark passes a
batch, that batch is *committed* and stays so for ever, at its offset, with its bytes. The store's side is kept by a
`StoreWitness`. Nothing here is seen by the brokers and nothing here changes them.

The invariants, by the numbers of docs/architecture.md:
I1 the leader of the newest epoch holds everything committed; I2 so does every running member of the stored in-sync and
eligible sets that counts; I3 replicas agree below their high watermarks, and one epoch writes an offset once; I4 the
leader's maximal set holds all who may be elected; I5 one leader process per epoch (and `StoreWitness`); I6 a leader's
high watermark passes nobody in the maximal set, stands still under the minimum, and no follower's passes the leaders';
I7 what becomes committed is held by the minimum of replicas, on their devices if the topic says so; I8 readers get
what is committed and nothing else; I9 something committed is always on some disk; I10 each producer's batches come
once and in order; I11 nobody without a lease appends; I12 what a broker believes of its log is what lies on its disk;
I13 a process that finds a part of its disk gone vouches for none before it, and so is in no set that counts; I14 a
broker's metadata is what the store held at that revision; I15 a group's position is committed and not lost.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from martlet.base.ids import BrokerId, Member, TopicPartition
from martlet.broker.app import BrokerApp
from martlet.cluster.keys import partition_key
from sim.disk_log import Batch, DiskLog
from sim.host import SimHost
from sim.loop import SimLoop
from sim.simulated_broker import log_directory
from sim.store_witness import StoreWitness
from sim.world import SimWorld

_VIOLATIONS_KEPT = 20
_SEQUENCES = 1 << 31


@dataclass
class Committed:
    """What was ever committed in one partition."""

    batches: list[Batch] = field(default_factory=list)
    values: dict[int, bytes] = field(default_factory=dict)
    """Offset → value of every committed record."""
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """Producer id and epoch → the next sequence number."""

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0


class Replica:
    """One broker's copy of one partition, as last seen."""

    __slots__ = (
        "device",
        "disk",
        "end_offset",
        "epoch",
        "epochs_checked",
        "frozen_at",
        "high_watermark",
        "in_sync",
        "is_leading",
        "process",
        "verified",
    )

    def __init__(self, disk: DiskLog, device: DiskLog) -> None:
        self.disk = disk
        self.device = device
        """What would be left of it after a power loss."""
        self.verified = 0
        """So many batches on its disk are the committed ones."""
        self.epochs_checked = 0
        """For so many batches on its disk the broker knows the epoch."""
        self.high_watermark = self.end_offset = self.epoch = -1
        self.is_leading = False
        self.process: Watched | None = None
        self.in_sync: Any = None
        self.frozen_at: tuple[int, int] | None = None
        """Leader epoch and high watermark while too few are in sync."""


class Watched:
    """A broker's process and what it knew when last looked at."""

    def __init__(self, app: BrokerApp, loop: SimLoop) -> None:
        self.app = app
        self.loop = loop
        self.revision = -1
        self.may_act = True


class Ghost:
    """One per run."""

    def __init__(self, world: SimWorld, hosts: Mapping[BrokerId, SimHost], *, min_in_sync: int, durable: bool) -> None:
        self.world = world
        self.hosts = hosts
        self.min_in_sync = min_in_sync
        self.violations: list[str] = []
        self.committed: dict[TopicPartition, Committed] = {}
        self.store = StoreWitness(world.store_server.state, self.report)
        self.store.on_partition = self._record_stored
        self.checks = 0
        self.is_rotten: Callable[[BrokerId], bool] = lambda broker: False
        """Whether a copy on this broker is damaged, or has been thrown away for that and is not in sync again."""
        self._durable = durable
        self._watched: dict[BrokerId, Watched] = {}
        self._by_loop: dict[int, BrokerId] = {}
        self._replicas: dict[tuple[BrokerId, TopicPartition], Replica] = {}
        self._written: dict[tuple[TopicPartition, int, int], Batch] = {}
        self._starts: dict[TopicPartition, int] = {}
        """The greatest offset at which the log of a leader started."""
        self._leads: dict[tuple[TopicPartition, int], Member] = {}
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
            self._look(broker, watched)

    def lost_disk(self, broker: BrokerId) -> None:
        """A part of this broker's disk may be gone."""
        self.store.lost_disk(broker)
        for partition in self.committed:
            self._check_somewhere(partition)

    def may_lose(self, broker: BrokerId) -> bool:
        """Whether one more broker may lose something: the promise holds for fewer than the minimum at a time."""
        lossy = [other for other in self.hosts if other != broker and self._is_lossy(other)]
        return len(lossy) < self.min_in_sync - 1

    def _is_lossy(self, broker: BrokerId) -> bool:
        return self.is_rotten(broker) or not self.store.has_recovered(broker)

    # --- turns

    def _turned(self, loop: SimLoop) -> None:
        broker = self._by_loop.get(loop.number)
        if broker is not None:
            watched = self._watched[broker]
            if watched.loop is loop:
                self._look(broker, watched)

    def _look(self, broker: BrokerId, watched: Watched) -> None:
        services = watched.app.services
        if services is None:
            return
        if watched.revision < 0 and self.store.vouches_wrongly(services.me):
            self.report("I13", f"{services.me} lost a part of its disk and vouches for what it held before")
        table = services.partitions
        for partition in self.store.partitions:
            held = table.hosted(*partition)
            if held is None:
                continue
            replica = self._replica(broker, partition)
            if held.offline:
                self._look_back(broker, watched, partition, held)
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
            if leader is not None and held.log.log_start_offset > self._starts.get(partition, 0):
                self._starts[partition] = held.log.log_start_offset
        image = services.image
        if image.revision != watched.revision:
            self._check_image(broker, watched)
        watched.may_act = table.may_act()

    def _replica(self, broker: BrokerId, partition: TopicPartition) -> Replica:
        replica = self._replicas.get((broker, partition))
        if replica is None:
            disk, directory = self.hosts[broker].disk, log_directory(broker, partition)
            before = partial(self._may_lack, partition)
            replica = Replica(DiskLog(disk, directory, before), DiskLog(disk, directory, before, durable=True))
            self._replicas[broker, partition] = replica
        return replica

    def _may_lack(self, partition: TopicPartition, offset: int) -> list[Batch]:
        """What was committed below the start of a leader's log."""
        if offset > self._starts.get(partition, 0):
            return []
        return [batch for batch in self._committed(partition).batches if batch.next_offset <= offset]

    def _moved(self, broker: BrokerId, watched: Watched, partition: TopicPartition, held: Any) -> None:
        """A replica is not what it was: read on, then everything that could have been hurt."""
        self.checks += 1
        replica = self._replica(broker, partition)
        log, leader = held.log, held.leader
        grew = log.end_offset > replica.end_offset >= 0
        led_until_now = replica.is_leading and replica.process is watched
        replica.process = watched
        replica.end_offset, replica.high_watermark = log.end_offset, held.high_watermark
        replica.epoch, replica.is_leading = held.leader_epoch, leader is not None
        replica.in_sync = leader.in_sync if leader is not None else None
        self._read_on(broker, partition, replica)
        self._check_own(broker, partition, replica, held)
        if leader is not None:
            if grew and not watched.may_act and not watched.app.services.partitions.may_act():  # type: ignore[union-attr]
                self.report("I11", f"broker {broker} appended to {partition} without a lease")
            self._check_leader(broker, partition, replica, leader)
        committed = self._committed(partition)
        if leader is None and held.high_watermark > committed.end_offset:
            if led_until_now:
                # It heard in one turn of an in-sync set that let it go on, and of its leadership's end.
                self._commit(broker, partition, replica, held.high_watermark)
            else:
                self.report("I6", f"broker {broker} follows {partition} with a high watermark that no leader had")
        self._verify(broker, partition, up_to=min(held.high_watermark, committed.end_offset), name="I3")

    def _look_back(self, broker: BrokerId, watched: Watched, partition: TopicPartition, held: Any) -> None:
        """This copy has failed. What it committed as the leader in that very turn may have been told to others."""
        replica = self._replica(broker, partition)
        led_until_now = replica.is_leading and replica.process is watched
        replica.is_leading = False
        if led_until_now and held.high_watermark > self._committed(partition).end_offset:
            self._read_on(broker, partition, replica)
            self._commit(broker, partition, replica, held.high_watermark)

    def _committed(self, partition: TopicPartition) -> Committed:
        found = self.committed.get(partition)
        if found is None:
            found = self.committed[partition] = Committed()
        return found

    def end_offset(self, broker: BrokerId, partition: TopicPartition) -> int:
        """Where the broker's copy ends, as last seen."""
        return self._replica(broker, partition).end_offset

    def high_watermark(self, broker: BrokerId, partition: TopicPartition) -> int:
        """What the broker knows to be committed, as last seen."""
        return self._replica(broker, partition).high_watermark

    # --- what lies on disks

    def _read_on(self, broker: BrokerId, partition: TopicPartition, replica: Replica) -> None:
        first = replica.disk.look()
        replica.verified = min(replica.verified, first)
        replica.epochs_checked = min(replica.epochs_checked, first)
        for batch in replica.disk.batches[first:]:
            known = self._written.setdefault((partition, batch.base_offset, batch.epoch), batch)
            if known != batch:
                self.report("I3", f"broker {broker} has {batch} of {partition}, but it was written as {known}")

    def _check_own(self, broker: BrokerId, partition: TopicPartition, replica: Replica, held: Any) -> None:
        log, disk = held.log, replica.disk
        if disk.end_offset != log.end_offset:
            text = f"broker {broker} believes that {partition} ends at {log.end_offset}, on its disk {disk.end_offset}"
            self.report("I12", text)
        if not log.log_start_offset <= held.high_watermark <= log.end_offset:
            ends = f"{log.log_start_offset} to {log.end_offset}"
            self.report("I12", f"broker {broker}: {held.high_watermark} is outside of {partition}, {ends}")
        for batch in disk.batches[replica.epochs_checked :]:
            if batch.base_offset >= log.log_start_offset and log.epochs.epoch_at(batch.base_offset) != batch.epoch:
                entries = [tuple(entry) for entry in log.epochs.entries]
                self.report("I12", f"broker {broker} has epochs {entries} of {partition}, its disk {batch}")
        replica.epochs_checked = len(disk.batches)

    def _verify(self, broker: BrokerId, partition: TopicPartition, *, up_to: int, name: str) -> None:
        """The replica holds what is committed up to that offset, byte for byte."""
        replica, committed = self._replica(broker, partition), self._committed(partition)
        batches = replica.disk.batches
        while replica.verified < len(committed.batches):
            wanted = committed.batches[replica.verified]
            if wanted.next_offset > up_to:
                return
            if replica.verified >= len(batches) or batches[replica.verified] != wanted:
                found = batches[replica.verified] if replica.verified < len(batches) else "nothing"
                text = f"broker {broker} has {found} of {partition} where {wanted} is committed, up to {up_to}"
                self.report(name, text)
                return
            replica.verified += 1

    def _holds(self, broker: BrokerId, partition: TopicPartition, batch: Batch, number: int) -> bool:
        replica = self._replica(broker, partition)
        is_durable = self._durable and not partition.topic.startswith("__")
        disk = replica.device if is_durable else replica.disk
        if is_durable:
            disk.look()
        else:
            self._read_on(broker, partition, replica)
        return number < len(disk.batches) and disk.batches[number] == batch

    def _check_somewhere(self, partition: TopicPartition) -> None:
        committed = self._committed(partition)
        for broker in self.hosts:
            replica = self._replica(broker, partition)
            self._read_on(broker, partition, replica)
            if replica.disk.batches[: len(committed.batches)] == committed.batches:
                return
        if sum(self._is_lossy(broker) for broker in self.hosts) < self.min_in_sync:
            self.report("I9", f"no disk holds all of {partition} up to {committed.end_offset}")

    def check_untouched(self, broker: BrokerId) -> None:
        """After a power loss of a machine whose broker had stopped cleanly: nothing may have changed."""
        for partition in self.store.partitions:
            replica = self._replica(broker, partition)
            before = list(replica.disk.batches)
            self._read_on(broker, partition, replica)
            if replica.disk.batches != before:
                text = f"broker {broker} had stopped cleanly, yet the power loss took {partition} from {before[-1:]}"
                self.report("I9", f"{text} to {replica.disk.batches[-1:]}")

    def check_all_equal(self) -> None:
        """When all is quiet: every replica holds what is committed, and nothing else."""
        for partition, committed in self.committed.items():
            for broker in self.hosts:
                replica = self._replica(broker, partition)
                self._read_on(broker, partition, replica)
                if replica.disk.batches != committed.batches:
                    ends = f"{replica.disk.end_offset}, committed are {committed.end_offset}"
                    self.report("L2", f"broker {broker} holds {partition} up to {ends}, and not the same")

    # --- leaders

    def _check_leader(self, broker: BrokerId, partition: TopicPartition, replica: Replica, leader: Any) -> None:
        me = leader.me
        known = self._leads.setdefault((partition, leader.leader_epoch), me)
        if known != me:
            self.report("I5", f"{me} leads {partition} in epoch {leader.leader_epoch}, which was {known}'s")
        record = self.store.partitions[partition]
        is_current = record.leader_epoch == leader.leader_epoch and self.hosts[broker].is_running
        committed = self._committed(partition)
        if replica.high_watermark > committed.end_offset:
            self._commit(broker, partition, replica, replica.high_watermark)
            self._check_reached(partition, leader, replica.high_watermark)
        if is_current:
            self._verify(broker, partition, up_to=committed.end_offset, name="I1")
            self._check_maximal(partition, leader, record)
        self._check_frozen(partition, replica, leader)

    def _commit(self, broker: BrokerId, partition: TopicPartition, replica: Replica, high_watermark: int) -> None:
        """The high watermark has passed batches: they are committed from now on."""
        committed = self._committed(partition)
        self._verify(broker, partition, up_to=committed.end_offset, name="I1")
        number = len(committed.batches)
        while number < len(replica.disk.batches) and replica.disk.batches[number].next_offset <= high_watermark:
            batch, header = replica.disk.batches[number], replica.disk.header(number)
            committed.batches.append(batch)
            for record in replica.disk.records(number):
                committed.values[record.offset] = record.value or b""
            self._check_sequence(partition, committed, header)
            number += 1
        replica.verified = max(replica.verified, number)
        if number:
            self._check_holders(partition, committed.batches[-1], number - 1)
        self._check_candidates(partition)

    def _check_reached(self, partition: TopicPartition, leader: Any, high_watermark: int) -> None:
        for member in leader.in_sync.maximal:
            if member != leader.me and self.process_of(member.broker) == member:
                follower = self._replica(member.broker, partition)
                self._read_on(member.broker, partition, follower)
                if follower.disk.end_offset < high_watermark:
                    text = f"{partition} is committed to {high_watermark}, but {member} in sync has "
                    self.report("I6", f"{text}{follower.disk.end_offset}")

    def _check_sequence(self, partition: TopicPartition, committed: Committed, header: Any) -> None:
        if header.producer_id < 0:
            return
        producer = header.producer_id, header.producer_epoch
        expected = committed.sequences.get(producer, 0)
        if header.base_sequence != expected:
            text = f"{partition}/{header.base_offset}: producer {producer} is at {header.base_sequence}"
            self.report("I10", f"{text}, {expected} comes next")
        committed.sequences[producer] = (header.last_sequence + 1) % _SEQUENCES

    def _check_holders(self, partition: TopicPartition, batch: Batch, number: int) -> None:
        holders = [broker for broker in self.hosts if self._holds(broker, partition, batch, number)]
        # Who held it and has just lost its tail is one of those the promise allows for.
        lossy = [one for one in self.hosts if one not in holders and self._is_lossy(one)]
        if len(holders) + len(lossy) < self.min_in_sync:
            self.report("I7", f"{partition} up to {batch.next_offset} is committed, and only {holders} hold it")

    def _check_maximal(self, partition: TopicPartition, leader: Any, record: Any) -> None:
        if len(leader.in_sync.committed) < self.min_in_sync:
            return
        maximal = {member.broker for member in leader.in_sync.maximal}
        may_lead = [member for member in self.store.candidates(partition) if member.broker not in maximal]
        if may_lead:
            self.report("I4", f"{may_lead} of {partition} may be elected, but commits wait for {sorted(maximal)} only")

    def _check_frozen(self, partition: TopicPartition, replica: Replica, leader: Any) -> None:
        now = leader.leader_epoch, replica.high_watermark
        is_frozen = len(leader.in_sync.committed) < self.min_in_sync
        if is_frozen and replica.frozen_at is not None and replica.frozen_at[0] == now[0] and replica.frozen_at != now:
            self.report("I6", f"{partition} went to {now[1]} with too few in sync")
        replica.frozen_at = now if is_frozen else None

    # --- candidates, whenever the store or what is committed has moved

    def _record_stored(self, partition: TopicPartition) -> None:
        self._check_candidates(partition)
        record = self.store.partitions[partition]
        if record.leader is None:
            return
        app = self.app(record.leader)
        held = app.services.partitions.hosted(*partition) if app is not None and app.services is not None else None
        if held is not None and held.leader is not None and held.leader.leader_epoch == record.leader_epoch:
            self._check_maximal(partition, held.leader, record)

    def _check_candidates(self, partition: TopicPartition) -> None:
        committed = self._committed(partition)
        for member in self.store.candidates(partition):
            if self.process_of(member.broker) == member:
                self._read_on(member.broker, partition, self._replica(member.broker, partition))
                self._verify(member.broker, partition, up_to=committed.end_offset, name="I2")

    # --- metadata

    def _check_image(self, broker: BrokerId, watched: Watched) -> None:
        services = watched.app.services
        if services is None:
            return
        image = services.image
        if image.revision < watched.revision:
            self.report("I14", f"broker {broker} went from revision {watched.revision} back to {image.revision}")
        watched.revision = image.revision
        for topic in image.topics():
            for record in image.partitions(topic.name):
                stored = self.store.version_of(partition_key(topic.id, record.partition), image.revision)
                if record.mod_revision != stored:
                    text = f"broker {broker} at revision {image.revision} holds {topic.name}-{record.partition}"
                    self.report("I14", f"{text} of {record.mod_revision}, the store {stored}")

    # --- clients

    def committed_end(self, partition: TopicPartition) -> int:
        return self._committed(partition).end_offset

    def acknowledged(self, partition: TopicPartition, offset: int, value: bytes, *, committed_before: int) -> None:
        """A publisher was told so; `committed_before` was the committed end when it sent the message."""
        found = self._committed(partition).values.get(offset)
        if found != value:
            self.report("I1", f"{partition}/{offset} is acknowledged as {value[:30]!r}, committed is {found!r:.40}")
        if offset < committed_before:
            self.report("I1", f"{partition}/{offset} is acknowledged below {committed_before}, committed before")

    def delivered(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A reader was given this."""
        found = self._committed(partition).values.get(offset)
        if found != value:
            self.report("I8", f"{partition}/{offset} was read as {value[:30]!r}, committed is {found!r:.40}")

    def position_committed(self, partition: TopicPartition, offset: int) -> None:
        """A group's position was told or acknowledged."""
        if offset > self.committed_end(partition):
            self.report("I15", f"a group is at {partition}/{offset}, beyond what is committed")
