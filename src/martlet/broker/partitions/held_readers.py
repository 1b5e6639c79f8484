"""How long readers of committed data have been waiting at one offset, because a transaction there has no end.

A transaction is ended by its producer or, at the latest, by its time-out. One that stays open for longer than any
time-out is prepared and waits for someone outside, or it hangs: its coordinator does not know of it. Either way an
operator has to look, so it is said in the log, once for each offset, and shown as metrics.

Proved by: tests/unit/broker/partitions/test_held_readers.py
"""

import logging
from typing import Final, NamedTuple

from martlet.base.clock import Clock
from martlet.base.ids import TopicPartition
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.observe.metrics import BrokerMetrics

logger = logging.getLogger(__name__)

LOOK_EVERY_MS: Final = 5_000
_GRACE_MS: Final = 60_000
"""After the longest time-out; the abort itself takes a moment."""


class _Held(NamedTuple):
    offset: int
    since_ms: int
    is_said: bool


class HeldReaders:
    """One per broker; `look` is called now and then."""

    def __init__(self, partitions: PartitionTable, clock: Clock, metrics: BrokerMetrics, timeout_max_ms: int) -> None:
        self._partitions = partitions
        self._clock = clock
        self._patience_ms = timeout_max_ms + _GRACE_MS
        self._held: dict[TopicPartition, _Held] = {}
        metrics.watch(
            "martlet_unstable_messages",
            "Committed messages of partitions led here that open transactions hide from readers of committed data.",
            lambda: sum(map(_hidden, partitions.led())),
        )
        metrics.watch(
            "martlet_held_readers_seconds",
            "How long readers of committed data have waited at one offset: the longest of all partitions led here.",
            self._longest_seconds,
        )

    def look(self) -> None:
        """Note where readers wait, and say where that lasts too long."""
        now_ms = self._clock.monotonic_ms()
        held: dict[TopicPartition, _Held] = {}
        for partition in self._partitions.led():
            if _hidden(partition):
                offset = partition.log.last_stable_offset
                before = self._held.get(partition.name)
                same = before if before is not None and before.offset == offset else _Held(offset, now_ms, False)
                if not same.is_said and now_ms - same.since_ms >= self._patience_ms:
                    self._say(partition, now_ms - same.since_ms)
                    same = same._replace(is_said=True)
                held[partition.name] = same
        self._held = held

    def _longest_seconds(self) -> float:
        now_ms = self._clock.monotonic_ms()
        return max((now_ms - held.since_ms for held in self._held.values()), default=0) / 1_000

    def _say(self, partition: Partition, waited_ms: int) -> None:
        offset = partition.log.last_stable_offset
        producers = [
            producer_id
            for producer_id, entry in partition.log.producers.items()
            if entry.current_txn_first_offset == offset
        ]
        logger.warning(
            "%s: readers of committed data have waited at offset %d for %d minutes, with %d messages hidden from them: "
            "producer %s has a transaction open; `martlet transaction list --hanging` says whether it will ever end",
            partition.name,
            offset,
            waited_ms // 60_000,
            _hidden(partition),
            producers[0] if producers else "?",
        )


def _hidden(partition: Partition) -> int:
    """How many offsets are committed and not shown to readers of committed data."""
    log = partition.log
    if log.producers.transactions.first_unstable_offset is None:
        return 0
    return max(0, partition.high_watermark - log.last_stable_offset)
