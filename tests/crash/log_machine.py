"""A broker's storage without the broker: logs on a simulated disk, publishers that follow its rules, and power cuts.

What a broker does with `martlet.flush=commit`, done step by step under one seed: batches are appended; a flush of a
partition begins, waits for the device and completes while more are appended; what lies below the flushed offset is
acknowledged, and shown to readers; now and then recovery points are written and segments rolled. At any change of the
disk the power may go. Then the disk settles what it had not synced (`SimDisk`), the logs are opened again, everything
found is flushed, and only then used. Idempotent publishers send again what was not acknowledged, in order.

The judge is that of the crash test (`bench.crash.history`).
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from bench.crash.history import History, Kind, Name, ReadMessage, value_of, violations
from sim.disk import SimDisk
from sim.failing_device import SimCrash
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError
from martlet.base.ids import TopicId, TopicPartition
from martlet.log.flushing import FlushTicket
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.log.validation import check_client_batch
from martlet.wire.batch import build_batch, iterate_batches
from martlet.wire.records.record import read_records

_PATH: Final = "data"
_TOPIC_ID: Final = TopicId(b"0123456789abcdef")
_PARTITIONS: Final = 2
_IN_FLIGHT_MAX: Final = 5
_STEPS_MAX: Final = 60
_OPTIONS: Final = LogOptions(segment_bytes=6_000, index_interval_bytes=300)
_PRODUCE_VERSION: Final = 10

_ENDINGS: Final[tuple[Literal["power", "process", "clean"], ...]] = ("power", "power", "power", "process", "clean")


@dataclass
class _Waiting:
    """A batch of the idempotent publisher that has not been acknowledged."""

    names: list[Name]
    first_sequence: int
    last_offset: int = -1


@dataclass
class _Publisher:
    """The idempotent publisher of one partition: it repeats itself until it is answered."""

    producer_id: int
    next_sequence: int = 0
    waiting: list[_Waiting] = field(default_factory=list)


class LogMachine:
    """One seed's machine; `run_life` lets it work until it ends one way or another."""

    def __init__(self, seed: int, *, acknowledge_early: bool = False) -> None:
        self._randomness = SimRandomness(seed)
        self._disk = SimDisk(self._randomness.stream("disk"), page_bytes=512 << self._randomness.below(4))
        self._acknowledge_early = acknowledge_early
        self._publishers = [_Publisher(1000 + partition) for partition in range(_PARTITIONS)]
        self._singles: list[tuple[int, list[Name], int]] = []
        self._tickets: dict[int, FlushTicket] = {}
        self._seen_to = [0] * _PARTITIONS
        self._now_ms = 1_700_000_000_000
        self._epoch = 0
        self._logs = LogDirectory(self._disk, _PATH, _OPTIONS)
        self.history = History()
        self.found: list[str] = []
        self.crashes = 0

    def run_life(self) -> None:
        """Open, check, work, end."""
        randomness = self._randomness
        ending = _ENDINGS[randomness.below(len(_ENDINGS))]
        if ending != "clean":
            self._disk.stop_after(randomness.below(220))
        try:
            self._open()
            for _ in range(randomness.below(_STEPS_MAX)):
                self._step()
            if ending == "clean":
                self._logs.close()
                return
        except SimCrash:
            pass
        except ApiError as error:
            # A publisher that does everything right is refused only when the log has lost its earlier batches.
            self.found.append(f"a publish was refused: {error}")
        self.crashes += 1
        self._disk.crash("process" if ending == "process" else "power")

    def check(self) -> None:
        """Open it once more, in peace, and judge what is there."""
        self._open()
        content = {partition: self._read(partition) for partition in range(_PARTITIONS)}
        self.found += violations(self.history, content)
        self._logs.close()

    # --- opening

    def _open(self) -> None:
        self._tickets.clear()
        self._singles.clear()
        self._epoch += 1
        self._logs = LogDirectory(self._disk, _PATH, _OPTIONS)
        self._logs.open(self._now_ms)
        self.found += [f"{partition} does not open: {error}" for partition, error in self._logs.failures.items()]
        for partition in range(_PARTITIONS):
            name = TopicPartition("t", partition)
            if self._logs.get(name) is None and name not in self._logs.failures:
                self._logs.create(name, topic_id=_TOPIC_ID, now_ms=self._now_ms)
        self._judge_before_use()
        for partition in range(_PARTITIONS):
            # What is found is made durable before anybody can read it.
            self._log(partition).durability.flush()
            self._repeat(partition)

    def _judge_before_use(self) -> None:
        content = {partition: self._read(partition) for partition in range(_PARTITIONS)}
        self.found += violations(self.history, content)

    def _repeat(self, partition: int) -> None:
        for waiting in self._publishers[partition].waiting:
            self._append_idempotent(partition, waiting)

    # --- working

    def _step(self) -> None:
        partition = self._randomness.below(_PARTITIONS)
        self._now_ms += self._randomness.below(50)
        choice = self._randomness.below(12)
        if choice < 4:
            self._publish_idempotent(partition)
        elif choice < 6:
            self._publish_single(partition)
        elif choice < 8:
            self._begin_flush(partition)
        elif choice < 10:
            self._finish_flush(partition)
        elif choice == 10:
            self._logs.checkpoint()
        else:
            self._log(partition).roller.roll(self._now_ms)

    def _publish_idempotent(self, partition: int) -> None:
        publisher = self._publishers[partition]
        if len(publisher.waiting) >= _IN_FLIGHT_MAX:
            return
        waiting = _Waiting(self._names(Kind.IDEMPOTENT, partition), publisher.next_sequence)
        publisher.next_sequence += len(waiting.names)
        publisher.waiting.append(waiting)
        self._append_idempotent(partition, waiting)

    def _append_idempotent(self, partition: int, waiting: _Waiting) -> None:
        producer_id = self._publishers[partition].producer_id
        waiting.last_offset = self._append(partition, waiting.names, producer_id, waiting.first_sequence)
        if self._acknowledge_early:
            self._acknowledge(partition, waiting.last_offset + 1)

    def _publish_single(self, partition: int) -> None:
        names = self._names(Kind.SINGLE, partition)
        last_offset = self._append(partition, names, -1, -1)
        self._singles.append((partition, names, last_offset))

    def _names(self, kind: Kind, partition: int) -> list[Name]:
        return [self.history.next_name(kind, partition) for _ in range(1 + self._randomness.below(4))]

    def _append(self, partition: int, names: list[Name], producer_id: int, first_sequence: int) -> int:
        """The offset of the last message."""
        batch = bytearray(
            build_batch(
                [(self._now_ms, None, value_of(name), ()) for name in names],
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=first_sequence,
            )
        )
        view = memoryview(batch)
        header = check_client_batch(view, _OPTIONS, now_ms=self._now_ms, produce_version=_PRODUCE_VERSION)
        return self._log(partition).append(view, header, leader_epoch=self._epoch, now_ms=self._now_ms).last_offset

    def _begin_flush(self, partition: int) -> None:
        if partition not in self._tickets:
            ticket = self._log(partition).durability.begin_flush()
            if ticket is not None:
                self._tickets[partition] = ticket

    def _finish_flush(self, partition: int) -> None:
        ticket = self._tickets.pop(partition, None)
        log = self._log(partition)
        if ticket is not None:
            ticket.sync()
            log.durability.complete_flush(ticket)
        self._acknowledge(partition, log.durability.flushed_offset)
        self.history.saw(partition, self._read(partition, self._seen_to[partition], log.durability.flushed_offset))
        self._seen_to[partition] = log.durability.flushed_offset

    def _acknowledge(self, partition: int, below: int) -> None:
        """Answer every publish whose messages all lie below that offset."""
        publisher = self._publishers[partition]
        while publisher.waiting and publisher.waiting[0].last_offset < below:
            waiting = publisher.waiting.pop(0)
            self._note(waiting.names, waiting.last_offset)
        for single in [one for one in self._singles if one[0] == partition and one[2] < below]:
            self._singles.remove(single)
            self._note(single[1], single[2])

    def _note(self, names: list[Name], last_offset: int) -> None:
        for number, name in enumerate(reversed(names)):
            self.history.acknowledged[name] = last_offset - number

    # --- reading

    def _log(self, partition: int) -> PartitionLog:
        log = self._logs.get(TopicPartition("t", partition))
        if log is None:
            # Reported already as a log that does not open; nothing more can be learned from this seed.
            raise SimCrash
        return log

    def _read(self, partition: int, offset: int = 0, end_offset: int | None = None) -> list[ReadMessage]:
        log = self._log(partition)
        end_offset = log.end_offset if end_offset is None else end_offset
        messages: list[ReadMessage] = []
        while offset < end_offset:
            data = log.locate(offset, max_bytes=4_000, end_offset=end_offset, at_least_one=True).read()
            messages += [
                ReadMessage(record.offset, record.value or b"")
                for record in read_records(data, 1 << 20, check_crc=True)
                if record.offset >= offset
            ]
            offset = list(iterate_batches(data))[-1][1].next_offset
        return messages
