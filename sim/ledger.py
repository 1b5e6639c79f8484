"""What was ever committed on a simulated cluster, and what lies on each broker's disk, read as far as it has changed.

A batch is committed when a leader's high watermark passes it, and stays so for ever, at its offset, with its bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from martlet.base.ids import BrokerId, TopicPartition
from martlet.broker.app import BrokerApp
from sim.disk_log import Batch, DiskLog
from sim.host import SimHost
from sim.loop import SimLoop
from sim.simulated_broker import log_directory


@dataclass
class Committed:
    """What was ever committed in one partition."""

    batches: list[Batch] = field(default_factory=list)
    values: dict[int, bytes] = field(default_factory=dict)
    """Offset → value of every committed record."""
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    """Producer id and epoch → the next sequence number."""
    live: dict[bytes, int] = field(default_factory=dict)
    """Of a coordinator's partition: key → where it was last written, without what was deleted or in a transaction."""

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
        "log_start",
        "process",
        "verified",
    )

    def __init__(self, disk: DiskLog, device: DiskLog) -> None:
        self.disk = disk
        self.device = device
        """What would be left of it after a power loss."""
        self.verified = 0
        """How many batches on its disk are the committed ones."""
        self.epochs_checked = 0
        """Of how many batches on its disk the broker knows the epoch."""
        self.high_watermark = self.end_offset = self.epoch = -1
        self.log_start = 0
        """What is left on the disk below belongs to no log any more."""
        self.is_leading = False
        self.process: Watched | None = None
        self.in_sync: Any = None
        self.frozen_at: tuple[int, int] | None = None
        """Leader epoch and high watermark while too few are in sync."""

    def in_log(self, batches: Sequence[Batch]) -> list[Batch]:
        """Those that do not lie below the log's start."""
        return [batch for batch in batches if batch.next_offset > self.log_start]


class Watched:
    """A broker's process and what it knew at the last check."""

    def __init__(self, app: BrokerApp, loop: SimLoop) -> None:
        self.app = app
        self.loop = loop
        self.revision = -1
        self.may_act = True


class Ledger:
    """One per ghost."""

    def __init__(self, hosts: Mapping[BrokerId, SimHost], report: Callable[[str, str], None], *, durable: bool) -> None:
        self.committed: dict[TopicPartition, Committed] = {}
        self._hosts = hosts
        self._report = report
        self._durable = durable
        self._replicas: dict[tuple[BrokerId, TopicPartition], Replica] = {}
        self._written: dict[tuple[TopicPartition, int, int], Batch] = {}
        self._starts: dict[TopicPartition, int] = {}
        """The greatest offset at which the log of a leader started."""

    def replica(self, broker: BrokerId, partition: TopicPartition) -> Replica:
        replica = self._replicas.get((broker, partition))
        if replica is None:
            disk, directory = self._hosts[broker].disk, log_directory(broker, partition)
            before = partial(self._may_lack, partition)
            replica = Replica(DiskLog(disk, directory, before), DiskLog(disk, directory, before, durable=True))
            self._replicas[broker, partition] = replica
        return replica

    def leader_starts_at(self, partition: TopicPartition, offset: int) -> None:
        """A leader's log starts there: what was committed below may be missing everywhere, and must live no more."""
        if offset <= self._starts.get(partition, 0):
            return
        self._starts[partition] = offset
        lost = sorted(at for at in self.of(partition).live.values() if at < offset)
        if lost:
            text = f"{partition} starts at {offset}, and {len(lost)} live records are committed only below: {lost[0]}"
            self._report("SNAP-2", text)

    def _may_lack(self, partition: TopicPartition, offset: int) -> list[Batch]:
        """What was committed below the start of a leader's log."""
        if offset > self._starts.get(partition, 0):
            return []
        return [batch for batch in self.of(partition).batches if batch.next_offset <= offset]

    def of(self, partition: TopicPartition) -> Committed:
        found = self.committed.get(partition)
        if found is None:
            found = self.committed[partition] = Committed()
        return found

    def read_on(self, broker: BrokerId, partition: TopicPartition, replica: Replica) -> None:
        first = replica.disk.refresh()
        replica.verified = min(replica.verified, first)
        replica.epochs_checked = min(replica.epochs_checked, first)
        for batch in replica.disk.batches[first:]:
            known = self._written.setdefault((partition, batch.base_offset, batch.epoch), batch)
            if known != batch:
                self._report("REP-3", f"broker {broker} has {batch} of {partition}, but it was written as {known}")

    def check_own(self, broker: BrokerId, partition: TopicPartition, replica: Replica, held: Any) -> None:
        log, disk = held.log, replica.disk
        replica.log_start = log.log_start_offset
        if disk.end_offset != log.end_offset:
            text = f"broker {broker} believes that {partition} ends at {log.end_offset}, on its disk {disk.end_offset}"
            self._report("REP-12", text)
        if not log.log_start_offset <= held.high_watermark <= log.end_offset:
            ends = f"{log.log_start_offset} to {log.end_offset}"
            self._report("REP-12", f"broker {broker}: {held.high_watermark} is outside of {partition}, {ends}")
        for batch in disk.batches[replica.epochs_checked :]:
            is_known = batch.base_offset < log.log_start_offset or log.epochs.epoch_at(batch.base_offset) == batch.epoch
            # Of a batch that cannot be read, and is copied again, the broker need not know the epoch.
            if not is_known and not log.damage:
                entries = [tuple(entry) for entry in log.epochs.entries]
                self._report("REP-12", f"broker {broker} has epochs {entries} of {partition}, its disk {batch}")
        replica.epochs_checked = len(disk.batches)

    def verify(self, broker: BrokerId, partition: TopicPartition, *, up_to: int, name: str) -> None:
        """The replica holds what is committed up to that offset, byte for byte."""
        replica, committed = self.replica(broker, partition), self.of(partition)
        batches = replica.disk.batches
        while replica.verified < len(committed.batches):
            wanted = committed.batches[replica.verified]
            if wanted.next_offset > up_to:
                return
            if wanted.next_offset <= replica.log_start:
                replica.verified += 1
                continue
            if replica.verified >= len(batches) or batches[replica.verified] != wanted:
                found = batches[replica.verified] if replica.verified < len(batches) else "nothing"
                text = f"broker {broker} has {found} of {partition} where {wanted} is committed, up to {up_to}"
                self._report(name, text)
                return
            replica.verified += 1

    def holds(self, broker: BrokerId, partition: TopicPartition, batch: Batch, number: int) -> bool:
        replica = self.replica(broker, partition)
        is_durable = self._durable and not partition.topic.startswith("__")
        disk = replica.device if is_durable else replica.disk
        if is_durable:
            disk.refresh()
        else:
            self.read_on(broker, partition, replica)
        return number < len(disk.batches) and disk.batches[number] == batch
