"""The guards of replication and transactions taken away one by one: the simulator must find each, or it proves nothing.

`python -m sim.mutations --seeds 2000` says at which seed each one is found, and by which invariant. Every
mutation is a function that patches the brokers' code; nothing in the package knows of them.
"""

import argparse
import logging
import sys
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from martlet.base.ids import BrokerId, Incarnation, Member
from martlet.broker.coordinators import marker_writing, shard_snapshots
from martlet.broker.membership.membership import Membership
from martlet.broker.parked import consumer_fetch, replica_fetch
from martlet.broker.parked.produce import WaitingProduce
from martlet.broker.parked.transaction_leave import Leave, LeaveQuestion
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.partitions.refused_batches import RefusedBatches
from martlet.cluster import controller_decisions, reassignment, replica_decisions, resignation
from martlet.cluster.records import PartitionRecord
from martlet.cluster.store import Change
from martlet.coordinator.shard import Shard
from martlet.groups.offsets.pending import PendingOffsets
from martlet.log.aborted_index import AbortedIndex, AbortedTransaction
from martlet.log.partition_log import PartitionLog
from martlet.replication.in_sync import Proposed, Settled
from martlet.replication.leader import LeaderReplica
from sim import cluster_run, queues_run, transactions_run
from sim.cluster_run import Outcome
from sim.host import HostDisk
from sim.queue_mutations import QUEUE_MUTATIONS
from sim.remote_store import RemoteStore

Mutation = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    original = WaitingProduce.wait

    def wait(self: WaitingProduce, timeout_ms: int, **options: Any) -> None:
        original(self, timeout_ms, **{**options, "by_all": False})

    patch.setattr(WaitingProduce, "wait", wait)


def high_watermark_by_the_committed_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Proposed, "maximal", property(lambda self: self.members))


def joining_without_the_epochs_start(patch: pytest.MonkeyPatch) -> None:
    def may_join(self: LeaderReplica, progress: Any) -> bool:
        return progress.member not in self.in_sync.committed and progress.end_offset >= self._log.high_watermark

    patch.setattr(LeaderReplica, "may_join", may_join)


def fetches_without_epochs(patch: pytest.MonkeyPatch) -> None:
    def check_fetch(self: LeaderReplica, member: Member, leader_epoch: int) -> None:
        return None

    patch.setattr(LeaderReplica, "check_fetch", check_fetch)
    patch.setattr(replica_fetch, "diverging_epoch", lambda partition, asked: None)
    patch.setattr(consumer_fetch, "diverging_epoch", lambda partition, asked: None)


def no_fetch_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """Histories are compared all the same; only the leader epoch that the follower believes in is not (REP-11)."""
    original = LeaderReplica.check_fetch

    def check_fetch(self: LeaderReplica, member: Member, leader_epoch: int) -> None:
        original(self, member, self.leader_epoch)

    patch.setattr(LeaderReplica, "check_fetch", check_fetch)


def no_refused_batch_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RefusedBatches, "check", lambda self, header, producers, now_ms: None)


def cutting_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    original = Partition.follow

    def follow(self: Partition, record: PartitionRecord) -> None:
        original(self, record)
        if self.high_watermark < self.log.end_offset:
            self.followed_log.truncate_to(self.high_watermark, 0)

    patch.setattr(Partition, "follow", follow)


def entries_without_incarnation(patch: pytest.MonkeyPatch) -> None:
    def live_member(entry: Member, live: Any) -> Member | None:
        broker = live.get(entry.broker)
        return None if broker is None else Member(broker.id, broker.incarnation)

    for module in (replica_decisions, controller_decisions, reassignment):
        patch.setattr(module, "live_member", live_member)


def taking_a_lost_answer_for_a_refusal(patch: pytest.MonkeyPatch) -> None:
    """The commit is simply tried again, as if the first one could no longer happen."""

    def unanswered(self: LeaderReplica) -> None:
        self.in_sync = Settled(self.in_sync.committed)
        self.proposal_refused()

    patch.setattr(LeaderReplica, "proposal_unanswered", unanswered)


def resuming_a_watch_where_the_store_is(patch: pytest.MonkeyPatch) -> None:
    original = RemoteStore.watch

    async def watch(self: RemoteStore, prefix: str, after_revision: int) -> AsyncGenerator[Change, None]:
        here = max(after_revision, self._server.state.revision)
        async for change in original(self, prefix, here):
            yield change

    patch.setattr(RemoteStore, "watch", watch)


def no_unclean_exclusion(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "_is_clean", lambda self, *found: True)


def skipping_directory_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostDisk, "sync_directory", lambda self, path: None)


def high_watermark_below_the_minimum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderReplica, "has_enough_in_sync", property(lambda self: True))


def acknowledging_after_leadership(patch: pytest.MonkeyPatch) -> None:
    original = WaitingProduce._refusal

    def refusal(self: WaitingProduce, one: Any) -> Any:
        partition = one.partition
        if partition.leader is None or partition.leader_epoch != one.leader_epoch:
            return None
        return original(self, one)

    patch.setattr(WaitingProduce, "_refusal", refusal)


def leading_on_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    def is_led_by(self: PartitionRecord, broker: BrokerId, incarnation: Incarnation) -> bool:
        return self.leader == broker

    patch.setattr(PartitionRecord, "is_led_by", is_led_by)
    original = LeaderReplica.__init__

    def init(self: LeaderReplica, me: Member, state: Any, *arguments: Any, **options: Any) -> None:
        members = frozenset(me if member.broker == me.broker else member for member in state.in_sync)
        original(self, me, replace(state, in_sync=members), *arguments, **options)

    patch.setattr(LeaderReplica, "__init__", init)


def resigning_within_an_epoch(patch: pytest.MonkeyPatch) -> None:
    """A follower throws its damaged copy away in the leader epoch in which it has fetched with it."""
    original = resignation.resign

    def resign(partition: PartitionRecord, *arguments: Any) -> PartitionRecord | None:
        after = original(partition, *arguments)
        if after is None or (after.leader, after.leader_incarnation) != (
            partition.leader,
            partition.leader_incarnation,
        ):
            return after
        return replace(after, leader_epoch=partition.leader_epoch)

    def has_resigned(self: Any, partition: Partition, record: PartitionRecord) -> bool:
        return resignation.has_resigned(record, self._me.broker)

    patch.setattr(resignation, "resign", resign)
    patch.setattr(PartitionTable, "_has_resigned", has_resigned)


def starting_at_a_snapshot_that_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """The log of a coordinator's shard starts at a snapshot that another leader may never have had (SNAP-2)."""

    async def wait_committed(*unused: Any) -> None:
        return None

    patch.setattr(shard_snapshots, "wait_committed", wait_committed)


# --- of transactions


def last_stable_offset_is_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLog, "last_stable_offset", property(lambda self: self.high_watermark))


def markers_from_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A marker that comes late ends whatever the producer has open then (TXN-4)."""
    patch.setattr(marker_writing, "check_marker", lambda producers, marker: None)


def markers_before_the_decision_is_stored(patch: pytest.MonkeyPatch) -> None:
    """Effects start when their records are appended, not when they are committed (TXN-3, SHARD-4)."""
    original = Shard._respond

    def respond(self: Shard[Any], done: Any, response: object) -> None:
        if done == self._start_effect:
            self._start_effect(response)
        else:
            original(self, done, response)

    patch.setattr(Shard, "_respond", respond)


def offsets_in_transactions_count_at_once(patch: pytest.MonkeyPatch) -> None:
    def decide(self: PendingOffsets, producer_id: int, *, is_commit: bool) -> list[Any]:
        return original(self, producer_id, is_commit=True)

    original = PendingOffsets.decide
    patch.setattr(PendingOffsets, "decide", decide)


def no_question_before_a_transaction_begins(patch: pytest.MonkeyPatch) -> None:
    """Batches are taken although the coordinator does not know that the partition is in the transaction."""

    async def ask(self: LeaveQuestion, broker: Any) -> Leave:
        return Leave(self._guards, self._refusals)

    patch.setattr(LeaveQuestion, "ask", ask)


def aborted_index_not_made_again(patch: pytest.MonkeyPatch) -> None:
    """What a start reads back from the log leaves the index of aborted transactions as it is."""
    is_adding = [False]
    append = PartitionLog.append
    append_as_is = PartitionLog.append_as_is

    def adding(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            is_adding[0] = True
            try:
                return original(*arguments, **options)
            finally:
                is_adding[0] = False

        return call

    def add(self: AbortedIndex, aborted: AbortedTransaction) -> None:
        if is_adding[0]:
            added(self, aborted)

    added = AbortedIndex.add
    patch.setattr(PartitionLog, "append", adding(append))
    patch.setattr(PartitionLog, "append_as_is", adding(append_as_is))
    patch.setattr(AbortedIndex, "add", add)


MUTATIONS: tuple[Mutation, ...] = (
    *QUEUE_MUTATIONS,
    acknowledge_before_the_high_watermark,
    high_watermark_by_the_committed_set,
    joining_without_the_epochs_start,
    fetches_without_epochs,
    no_fetch_epoch_check,
    no_refused_batch_order,
    cutting_to_the_high_watermark,
    entries_without_incarnation,
    taking_a_lost_answer_for_a_refusal,
    resuming_a_watch_where_the_store_is,
    no_unclean_exclusion,
    skipping_directory_sync,
    high_watermark_below_the_minimum,
    acknowledging_after_leadership,
    leading_on_after_a_restart,
    resigning_within_an_epoch,
    starting_at_a_snapshot_that_is_not_committed,
)


TRANSACTION_MUTATIONS: tuple[Mutation, ...] = (
    last_stable_offset_is_the_high_watermark,
    markers_from_any_epoch,
    markers_before_the_decision_is_stored,
    offsets_in_transactions_count_at_once,
    no_question_before_a_transaction_begins,
    aborted_index_not_made_again,
)
"""Found by the runs with transactions."""


class Found(NamedTuple):
    """Where a mutation was found out, if it was."""

    mutation: str
    seed: int | None
    reason: str


def run_mutated(mutation: Mutation, seed: int) -> list[str]:
    """The violations of one seed with that guard taken away."""
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        return _run_of(mutation)(seed).violations


def _run_of(mutation: Mutation) -> Callable[[int], Outcome]:
    """The kind of run that would notice."""
    if mutation in QUEUE_MUTATIONS:
        return queues_run.run_seed
    return transactions_run.run_seed if mutation in TRANSACTION_MUTATIONS else cluster_run.run_seed


def find(name: str, first: int, count: int) -> Found:
    """The first seed that notices that this guard is missing."""
    logging.disable(logging.CRITICAL)
    mutation = next(one for one in (*MUTATIONS, *TRANSACTION_MUTATIONS) if one.__name__ == name)
    for seed in range(first, first + count):
        violations = run_mutated(mutation, seed)
        # A seed that fails without the mutation as well says nothing about it.
        if violations and not _run_of(mutation)(seed).violations:
            return Found(name, seed, violations[0])
    return Found(name, None, "")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Says at which seed the simulator notices each missing guard.")
    parser.add_argument("--seeds", type=int, default=2_000, help="seeds to try for each; 2,000 by default")
    parser.add_argument("--first", type=int, default=0, help="the first seed; 0 by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once; 2 by default")
    parser.add_argument("--only", default="", help="a part of the mutation's name")
    asked = parser.parse_args(arguments)
    names = [mutation.__name__ for mutation in (*MUTATIONS, *TRANSACTION_MUTATIONS) if asked.only in mutation.__name__]
    missed = 0
    with ProcessPoolExecutor(asked.jobs) as pool:
        searches = [pool.submit(find, name, asked.first, asked.seeds) for name in names]
        for search in as_completed(searches):
            found = search.result()
            if found.seed is None:
                missed += 1
                print(f"{found.mutation}: NOT FOUND in {asked.seeds} seeds", flush=True)
            else:
                print(f"{found.mutation}: seed {found.seed}: {found.reason[:200]}", flush=True)
    print(f"{len(names) - missed} of {len(names)} mutations found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
