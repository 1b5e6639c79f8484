"""What must hold of transactions in the logs themselves, checked whenever a batch becomes committed.

How it works: committed records of `__transaction_state` say what was decided, committed control batches what was
carried out. A decision carries the epoch that its markers carry; in the second generation that is one epoch for each
end, so a decision is known by producer id and epoch.

TX-1 A marker that is committed was decided before, for its producer, epoch and way, by a committed record.
TX-2 One producer id and epoch is decided one way.
TX-3 A partition has at most one open transaction of a producer, and a marker ends it: no data of a producer come at an
     epoch below that of its last marker there.
TX-4 When all is quiet no transaction is open anywhere: neither in a coordinator nor in a partition.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from martlet.base.errors import ProtocolViolation
from martlet.base.ids import TopicPartition
from martlet.broker.app import BrokerApp
from martlet.cluster.topic_names import TRANSACTION_STATE_TOPIC
from martlet.transactions.record_codec import TransactionRecordCodec
from martlet.transactions.records import TransactionStored
from martlet.transactions.states import TransactionState
from martlet.wire.batch import BatchHeader, parse_marker
from martlet.wire.records.record import Record

_DECIDED = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}


class Decision(NamedTuple):
    """What a committed record says about the end of one transaction; the epoch is that of its markers."""

    name: str
    producer_id: int
    epoch: int
    is_commit: bool
    version: int
    partitions: tuple[TopicPartition, ...]


class TransactionGhost:
    """Hears of every batch that becomes committed; reports what cannot be."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self._codec = TransactionRecordCodec()
        self._decided: dict[tuple[int, int], bool] = {}
        self._ended: dict[tuple[TopicPartition, int], int] = {}
        self.markers = 0
        self.decisions: list[Decision] = []
        """In the order in which they became committed."""
        self.written: dict[tuple[TopicPartition, int, int], int] = {}
        """The coordinator epoch of each marker, by partition, producer id and epoch."""

    def committed(self, partition: TopicPartition, header: BatchHeader, records: Iterable[Record]) -> None:
        """A leader's high watermark has passed this batch."""
        if partition.topic == TRANSACTION_STATE_TOPIC:
            for record in records:
                self._decision(record)
        elif header.is_control:
            for record in records:
                marker = parse_marker(record.key, record.value)
                if marker is not None:
                    self._marker(partition, header, is_commit=marker.is_commit)
                    place = (partition, header.producer_id, header.producer_epoch)
                    self.written[place] = marker.coordinator_epoch
        elif header.is_transactional:
            ended = self._ended.get((partition, header.producer_id), -1)
            if header.producer_epoch < ended:
                text = f"{partition}/{header.base_offset}: producer {header.producer_id} at {header.producer_epoch}"
                self._report("TX-3", f"{text} writes after its marker of {ended}")

    def _decision(self, record: Record) -> None:
        try:
            decoded = self._codec.decode(record.key or b"", record.value)
        except ProtocolViolation as error:
            self._report("TX-1", f"a record of {TRANSACTION_STATE_TOPIC} cannot be read: {error}")
            return
        if not isinstance(decoded, TransactionStored) or decoded.state not in _DECIDED:
            return
        is_commit = _DECIDED[decoded.state]
        pair = (decoded.producer_id, decoded.producer_epoch)
        if pair not in self._decided:
            name, partitions = decoded.transactional_id, tuple(sorted(decoded.partitions))
            self.decisions.append(Decision(name, *pair, is_commit, decoded.client_version, partitions))
        if self._decided.setdefault(pair, is_commit) is not is_commit:
            self._report("TX-2", f"{decoded.transactional_id} at {pair} is decided both ways")

    def _marker(self, partition: TopicPartition, header: BatchHeader, *, is_commit: bool) -> None:
        self.markers += 1
        pair = (header.producer_id, header.producer_epoch)
        if self._decided.get(pair) is not is_commit:
            decided = {None: "nothing", True: "a commit", False: "an abort"}[self._decided.get(pair)]
            wanted = "commits" if is_commit else "aborts"
            self._report("TX-1", f"{partition}/{header.base_offset} {wanted} {pair}, of which {decided} is decided")
        place = (partition, header.producer_id)
        self._ended[place] = max(self._ended.get(place, -1), header.producer_epoch)

    def open_in(self, apps: Iterable[BrokerApp]) -> list[str]:
        """What is open still, in coordinators and in partitions (TX-4)."""
        found: list[str] = []
        for app in apps:
            services: Any = app.services
            if services is None:
                continue
            for machine in services.transactions.coordinator.host.machines():
                counts = machine.statistics()
                busy = {state.label: count for state, count in counts.items() if count and not state.is_idle}
                found += [f"{services.me}: {count} {label}" for label, count in busy.items()]
            for partition in services.partitions.led():
                if partition.leader is not None and partition.log.last_stable_offset < partition.high_watermark:
                    held = f"{partition.log.last_stable_offset} of {partition.high_watermark}"
                    found.append(f"{services.me}: {partition.name} is stable up to {held}")
        return found
