"""The guards of queues taken away one at a time, for runs with workers; see `mutations.py`."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.broker.handlers import settle_messages
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.queueing import pair, state_loading
from martlet.broker.queueing.pair import QueuePair
from martlet.cluster.topic_names import topic_of_queue_state
from martlet.queues.engine import QueueEngine
from martlet.queues.partition_queues import PartitionQueues


def _patch_closed(patch: pytest.MonkeyPatch, is_closed: Callable[[PartitionShardLog], bool]) -> None:
    """Of the state of queues alone, not of other coordinators' logs."""
    original = PartitionShardLog.closed

    def closed(self: PartitionShardLog) -> bool:
        is_of_queues = topic_of_queue_state(self.name.rpartition("-")[0]) is not None
        return is_closed(self) if is_of_queues else bool(original.__get__(self))

    patch.setattr(PartitionShardLog, "closed", property(closed))


def served_before_loaded(patch: pytest.MonkeyPatch) -> None:
    """A new leader begins with nothing known of its queues."""

    async def load_queues(*unused: Any) -> int:
        return 0

    patch.setattr(pair, "load_queues", load_queues)


def served_where_only_the_data_is_led(patch: pytest.MonkeyPatch) -> None:
    """The state is taken from whatever copy lies here, which may lack the end of it (QPA-1)."""
    original_leads, original_get = PartitionTable.leads, PartitionTable.get

    def leads(self: PartitionTable, topic: str, index: int) -> bool:
        return topic_of_queue_state(topic) is not None or original_leads(self, topic, index)

    def get(self: PartitionTable, topic: str, index: int) -> Partition:
        hosted = self.hosted(topic, index) if topic_of_queue_state(topic) is not None else None
        return hosted if hosted is not None else original_get(self, topic, index)

    async def wait_committed(*unused: Any) -> None:
        return None

    patch.setattr(PartitionTable, "leads", leads)
    patch.setattr(PartitionTable, "get", get)
    _patch_closed(patch, lambda log: log.partition is None)
    patch.setattr(state_loading, "wait_committed", wait_committed)


def serving_on_after_a_leadership(patch: pytest.MonkeyPatch) -> None:
    """What was known in an earlier leadership is taken for what is so in the next (QPA-1)."""

    def closed(self: PartitionShardLog) -> bool:
        if self.partition is not None and self.partition.leader is not None:
            self._leader_epoch = self.partition.leader_epoch
        return False

    _patch_closed(patch, closed)
    patch.setattr(QueuePair, "has_ended", property(lambda self: self.is_closed))


def answering_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    def when_committed(self: QueuePair) -> Any:
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        self.ask_for_pass()
        return future

    patch.setattr(QueuePair, "when_committed", when_committed)


def cutting_behind_a_snapshot_that_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    original = PartitionQueues.stored

    def stored(self: PartitionQueues, first_offset: int, next_offset: int) -> None:
        snapshots = [name for name, _, change, _ in self._taken if change.record.is_snapshot]
        original(self, first_offset, next_offset)
        for name in snapshots:
            self._stored[name].needed_from = first_offset

    def cut(self: QueuePair) -> None:
        original_store(self)
        partition, needed = self.log.partition, self.queues.needed_from
        if partition is not None and needed is not None and needed > partition.log.log_start_offset:
            partition.log.advance_log_start(needed)
            partition.watermarks.wake()

    original_store = QueuePair._store
    patch.setattr(PartitionQueues, "stored", stored)
    patch.setattr(QueuePair, "_store", cut)


def tokens_of_any_attempt(patch: pytest.MonkeyPatch) -> None:
    """A lease that has ended can still settle its message, which another worker has by now."""
    original = QueueEngine.settle

    def settle(self: QueueEngine, holder: Any, settlements: Any, now_ms: int, *rest: Any, **options: Any) -> None:
        original(self, None, settlements, now_ms, None, **options)

    def apply_all(broker: Any, subscription: str, asked: Any) -> Any:
        asked.lease_epoch = -1
        return original_apply(broker, subscription, asked)

    original_apply = settle_messages._apply_all
    patch.setattr(QueueEngine, "settle", settle)
    patch.setattr(settle_messages, "_apply_all", apply_all)


def a_lease_given_twice(patch: pytest.MonkeyPatch) -> None:
    """Leases are told apart by the leader epoch of the data alone, though the state's may rise without it (QPA-3)."""
    patch.setattr(QueuePair, "lease_epoch", property(lambda self: self.leader_epoch))


QUEUE_MUTATIONS = (
    served_before_loaded,
    served_where_only_the_data_is_led,
    serving_on_after_a_leadership,
    answering_before_it_is_committed,
    cutting_behind_a_snapshot_that_is_not_committed,
    tokens_of_any_attempt,
    a_lease_given_twice,
)
