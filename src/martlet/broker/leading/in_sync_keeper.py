"""Carries the in-sync sets that the leaders of this broker want to the metadata store.

Rules: who belongs to a set is decided by `LeaderReplica` of `martlet.replication`, what may be stored by
`plan_in_sync_change`; here is only the way between them. A leader always learns what became of its proposal: taken,
refused for certain, or unknown.

How it works: all partitions led here are checked several times within the time a follower may lag, and every second
while the disk of some broker is full; one with a follower that may join is checked soon. Proposals travel together, a
batch to a commit; when a commit loses a comparison, what was in it is proposed again in smaller batches. The store's
word reaches the leaders through the image. After an answer that never came the image is brought up to date and the
leader is given what is stored.

Proved by: tests/unit/broker/leading/test_in_sync_keeper.py, tests/properties/test_controlled_replication.py
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple, Protocol

from martlet.base.clock import Clock
from martlet.base.errors import DiskFull
from martlet.base.ids import BrokerId, TopicPartition
from martlet.broker.membership.lease_keeper import LeaseKeeper
from martlet.broker.membership.metadata_commits import MetadataCommits
from martlet.cluster.controller_decisions import plan_in_sync_change, topic_rules
from martlet.cluster.image import ImageDelta
from martlet.cluster.liveness import read_states
from martlet.cluster.records import PartitionRecord
from martlet.cluster.store import COMMIT_OPERATIONS_MAX, CommitPlan, StoreClosed, StoreUnavailable, UnknownOutcome
from martlet.configs.effective import BrokerLayers
from martlet.replication.in_sync import Proposal
from martlet.replication.leader import LeaderReplica

logger = logging.getLogger(__name__)

BATCH: Final = 32
"""Partitions changed by one commit."""

_LOOKS_PER_LAG_TIME: Final = 4
_RETRY_SECONDS: Final = 0.5
_LOOK_SECONDS_WHILE_FULL: Final = 1.0
"""Every publish that waits for all waits for the follower without space to be dropped."""


class LedPartition(Protocol):
    """A partition as far as its in-sync set goes."""

    name: TopicPartition
    leader: LeaderReplica | None

    def state_stored(self, record: PartitionRecord) -> None: ...


class LedPartitions(Protocol):
    """Where the partitions led here are found."""

    def led(self) -> Iterable[LedPartition]: ...


class _Change(NamedTuple):
    """A proposal that may be stored."""

    partition: LedPartition
    leader: LeaderReplica
    plan: CommitPlan


class InSyncKeeper:
    """One task from `start` to `aclose`."""

    def __init__(
        self,
        table: LedPartitions,
        commits: MetadataCommits,
        keeper: LeaseKeeper,
        clock: Clock,
        layers: Callable[[], BrokerLayers],
        lag_time_max_ms: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._table = table
        self._commits = commits
        self._image = commits.image
        self._keeper = keeper
        self._clock = clock
        self._layers = layers
        self._look_seconds = max(0.05, lag_time_max_ms / _LOOKS_PER_LAG_TIME / 1000)
        self._on_failure = on_failure
        self._due: dict[TopicPartition, LedPartition] = {}
        self._batch_size = BATCH
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.changes = 0
        """In-sync sets stored by this process."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="martlet-in-sync")
        self._task.add_done_callback(self._ended)

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def may_join(self, partition: LedPartition) -> None:
        """A follower of this partition seems to have caught up."""
        self._due[partition.name] = partition
        self._wake.set()

    def follow(self, delta: ImageDelta) -> None:
        """A step of the image: followers that lack something and have no space for it leave soon."""
        if any(after is not None and after.full for _, after in delta.live):
            self._wake.set()

    # --- the task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            pause = min(self._look_seconds, _LOOK_SECONDS_WHILE_FULL) if self._full() else self._look_seconds
            try:
                async with asyncio.timeout_at(looked_at + pause):
                    await self._wake.wait()
            except TimeoutError:
                looked_at = loop.time()
                self._due.update({partition.name: partition for partition in self._table.led()})
            self._wake.clear()
            await self._look()

    async def _look(self) -> None:
        while self._due and self._keeper.may_act():
            changes = self._propose_some()
            if changes and not await self._store(changes):
                self._due.update({change.partition.name: change.partition for change in changes})
        # Who may not act proposes nothing; the next check sees to what is due then.
        self._due.clear()

    def _full(self) -> Collection[BrokerId]:
        return read_states(self._image).full

    def _propose_some(self) -> list[_Change]:
        """Take the proposals of some due partitions, as many as fit a commit."""
        now_ms, full = self._clock.monotonic_ms(), self._full()
        changes: list[_Change] = []
        compares: set[str] = set()
        while self._due and len(changes) < self._batch_size:
            name, partition = next(iter(self._due.items()))
            del self._due[name]
            leader = partition.leader
            proposal = leader.propose(now_ms, full) if leader is not None else None
            if leader is None or proposal is None:
                continue
            plan = self._plan(name, leader, proposal)
            if plan is None:
                leader.proposal_refused()
                self._tell_stored(partition, leader)
                continue
            compares |= set(plan.compares)
            changes.append(_Change(partition, leader, plan))
            if len(compares) > COMMIT_OPERATIONS_MAX // 2:
                break
        return changes

    def _plan(self, name: TopicPartition, leader: LeaderReplica, proposal: Proposal) -> CommitPlan | None:
        topic = self._image.topic(name.topic)
        record = self._image.partition(name.topic, name.partition)
        if topic is None or record is None or record.leader_epoch != leader.leader_epoch:
            return None
        return plan_in_sync_change(
            record,
            proposal.members,
            self._image,
            read_states(self._image),
            partition_epoch=proposal.partition_epoch,
            min_in_sync=topic_rules(topic, self._layers()).min_in_sync,
        )

    async def _store(self, changes: list[_Change]) -> bool:
        """Whether every leader now knows what is stored; False: it is worth another try at once."""
        try:
            is_taken = await self._commits.commit(_joined(changes))
        except UnknownOutcome as error:
            logger.warning("in-sync sets: %s; reading back", error)
            for change in changes:
                change.leader.proposal_unanswered()
            await self._read_back()
            is_taken = True
        except (StoreUnavailable, DiskFull) as error:
            logger.debug("in-sync sets could not be stored: %s", error)
            for change in changes:
                change.leader.proposal_refused()
            await asyncio.sleep(_RETRY_SECONDS)
            return False
        else:
            if not is_taken:
                for change in changes:
                    change.leader.proposal_refused()
            else:
                self.changes += len(changes)
        for change in changes:
            self._tell_stored(change.partition, change.leader)
        # What lost a comparison is tried again in smaller company; alone it waits for the next check.
        was_alone = self._batch_size == 1
        self._batch_size = BATCH if is_taken else max(1, self._batch_size // 4)
        return is_taken or was_alone

    async def _read_back(self) -> None:
        try:
            await self._commits.catch_up()
        except (StoreUnavailable, DiskFull):
            return  # the next check proposes again, which settles it

    def _tell_stored(self, partition: LedPartition, leader: LeaderReplica) -> None:
        """The image tells of changed sets; that the same set was stored again only shows here."""
        record = self._image.partition(partition.name.topic, partition.name.partition)
        if record is not None and partition.leader is leader and record.leader_epoch == leader.leader_epoch:
            partition.state_stored(record)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreClosed):
            self._on_failure(error)


def _joined(changes: Iterable[_Change]) -> CommitPlan:
    compares: dict[str, int] = {}
    puts: dict[str, bytes] = {}
    for change in changes:
        compares.update(change.plan.compares)
        puts.update(change.plan.puts)
    return CommitPlan(compares, puts)
