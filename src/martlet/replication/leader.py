"""The leader's side of replication for one partition and one leader epoch: who is in sync, and what is committed.

Rules: pure. The partition reports appends, followers' fetches, time and what the metadata store says; the machine
answers what is committed and proposes changes of the in-sync set. It alone decides which follower may join. The high
watermark is kept by the log and only read here: the partition moves it to `committed_offset`.

How it works: a follower's fetch offset says that it holds everything below. Committed is what all members of the
maximal in-sync set hold. A follower is dropped when it has not caught up for `lag_time_max_ms`, lags by more messages
than allowed, or lacks anything while its disk is full. It may join again when it holds everything that is committed and
everything this epoch began with; with a full disk only when it holds all.

Invariants (REP-1 to REP-15 are those of docs/architecture.md, "Replication"):
REP-16 a leader is in its own in-sync set;
REP-4 what is committed is held by every member of the maximal in-sync set;
REP-6 the high watermark never goes back, never passes a member of the maximal set, and stands still while fewer than
   the minimum are in sync;
REP-11 a fetch with another leader epoch, or of a process that is not a replica, counts for nothing;
REP-13 a follower is taken back only with at least one fetch in this epoch that reached both the high watermark and the
   epoch's first offset.

Proved by: tests/unit/replication/test_leader.py, tests/properties/test_replication.py
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Member
from martlet.base.invariant import invariant
from martlet.replication.in_sync import InSyncState, Members, Proposal, Proposed, Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationOptions:
    """What decides whether a follower keeps up."""

    min_in_sync: int = 1
    lag_time_max_ms: int = 30_000
    lag_messages_max: int | None = None
    """Messages a follower may lag behind and stay in sync; None: only time counts."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The partition's record in the store, as far as its leader cares."""

    replicas: tuple[BrokerId, ...]
    leader_epoch: int
    in_sync: Members
    partition_epoch: int
    has_eligible: bool = False
    """Whether the store names replicas, besides those in sync, that hold everything acknowledged."""


class LeaderLog(Protocol):
    """The leader's own log, as far as its rules read it."""

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...


@dataclass(slots=True)
class FollowerProgress:
    """What a follower's fetches in this epoch have shown."""

    member: Member
    end_offset: int
    """It holds everything below."""
    fetched_at_ms: int
    caught_up_at_ms: int
    leader_end_offset: int
    """Where the leader's log ended at the follower's last fetch."""
    log_start_offset: int = -1
    """Where the follower's log started at its last fetch."""
    sent_high_watermark: int = -1
    """The high watermark in the last answer to it."""
    has_moved: bool = False
    """Whether the last fetch showed another end than the one before."""


class LeaderReplica:
    """Owned by the partition that leads; lives for one leader epoch."""

    __slots__ = (
        "_awaits_answer",
        "_epoch_began_at_ms",
        "_followers",
        "_log",
        "_own_offset",
        "_state",
        "epoch_start_offset",
        "in_sync",
        "me",
        "options",
    )

    def __init__(
        self,
        me: Member,
        state: PartitionState,
        options: ReplicationOptions,
        log: LeaderLog,
        *,
        now_ms: int,
        own_offset: int | None = None,
    ) -> None:
        """`own_offset` is where this replica counts up to, if that is not its end: under `commit` what is flushed."""
        invariant(me in state.in_sync, "REP-16: a leader is in its own in-sync set")
        self.me = me
        self.options = options
        self._log = log
        self.epoch_start_offset = log.end_offset
        self.in_sync: InSyncState = Settled(state.in_sync)
        self._state = state
        self._own_offset = log.end_offset if own_offset is None else own_offset
        self._followers: dict[BrokerId, FollowerProgress] = {}
        self._epoch_began_at_ms = now_ms
        self._awaits_answer = False

    @property
    def leader_epoch(self) -> int:
        return self._state.leader_epoch

    @property
    def effective_min_in_sync(self) -> int:
        """The minimum, or the number of replicas where that is smaller."""
        return min(self.options.min_in_sync, len(self._state.replicas))

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether records may be committed.

        Not while the store calls others eligible, even if the minimum was lowered meanwhile: they would lack what
        is committed from now on, and could still be elected.
        """
        return len(self.in_sync.committed) >= self.effective_min_in_sync and not self._state.has_eligible

    @property
    def high_watermark_is_current(self) -> bool:
        """Whether everything the leaders before acknowledged is below the high watermark for certain.

        Right after an election the new leader's high watermark may be older than its predecessor's.
        """
        return self._log.high_watermark >= self.epoch_start_offset

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.in_sync.committed) < len(self._state.replicas)

    def followers(self) -> Iterable[FollowerProgress]:
        """Those that have fetched in this epoch."""
        return self._followers.values()

    def follower(self, broker: BrokerId) -> FollowerProgress | None:
        """What the fetches of this broker's replica have shown in this epoch; None without any."""
        return self._followers.get(broker)

    def all_start_at(self, offset: int) -> bool:
        """Whether the logs of all replicas in sync start at `offset` or later, as far as they have said."""
        progress = [self._followers.get(member.broker) for member in self.in_sync.maximal if member != self.me]
        return all(one is not None and one.log_start_offset >= offset for one in progress)

    # --- what happened

    def check_enough_in_sync(self) -> None:
        """Refuse a publish that wants all replicas while too few are in sync."""
        if not self.has_enough_in_sync:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.in_sync.committed)} replicas are in sync, {self.effective_min_in_sync} are needed",
            )

    def own_offset_moved(self, offset: int) -> int:
        """This replica counts up to `offset` (its end, or what is flushed); returns what is committed now."""
        self._own_offset = max(self._own_offset, offset)
        return self.committed_offset()

    def fetched(self, member: Member, *, leader_epoch: int, fetch_offset: int, now_ms: int) -> FollowerProgress:
        """A follower fetches from `fetch_offset` on, so it holds everything below."""
        self.check_fetch(member, leader_epoch)
        end_offset = self._log.end_offset
        progress = self._followers.get(member.broker)
        if progress is None or progress.member != member:
            # Another start of that broker: what the earlier process had proves nothing.
            progress = FollowerProgress(member, 0, now_ms, self._epoch_began_at_ms, end_offset)
            self._followers[member.broker] = progress
            caught_up = fetch_offset >= end_offset
        else:
            caught_up = fetch_offset >= end_offset
            if not caught_up and fetch_offset >= progress.leader_end_offset:
                # It has now what there was at its last fetch, so it kept up until then.
                progress.caught_up_at_ms = max(progress.caught_up_at_ms, progress.fetched_at_ms)
        if caught_up:
            progress.caught_up_at_ms = now_ms
        progress.fetched_at_ms = now_ms
        progress.leader_end_offset = end_offset
        progress.has_moved = progress.end_offset != fetch_offset
        progress.end_offset = fetch_offset
        return progress

    def check_fetch(self, member: Member, leader_epoch: int) -> None:
        """Refuse the fetch of a process that is not a follower here or that names another epoch (REP-11)."""
        state, broker = self._state, member.broker
        if broker not in state.replicas or broker == self.me.broker:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker} is not a follower of this partition")
        if leader_epoch != state.leader_epoch:
            is_old = leader_epoch < state.leader_epoch
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def state_stored(self, state: PartitionState) -> None:
        """The store says this; older states are ignored. The leader epoch must be the one this machine lives for."""
        if state.partition_epoch <= self._state.partition_epoch:
            return
        invariant(state.leader_epoch == self.leader_epoch, "a leader's machine lives for one leader epoch")
        self._state = state
        self.in_sync = Settled(state.in_sync)
        self._awaits_answer = False
        for broker in [one for one in self._followers if one not in state.replicas]:
            del self._followers[broker]

    # --- changing the in-sync set

    def propose(self, now_ms: int, full: Collection[BrokerId] = ()) -> Proposal | None:
        """A better in-sync set than the stored one, or None; not while an answer is awaited.

        `full` are brokers whose disks are full: what one of them lacks it will not get soon.

        From here on until the outcome is known the union of all sets that may be stored counts (REP-4). After an answer
        that never came there is always something to propose, if only what is stored: once the store has taken
        anything, the lost proposal can no longer happen.
        """
        if self._awaits_answer:
            return None
        state = self.in_sync
        proposed = self._wanted(now_ms, full)
        if isinstance(state, Proposed):
            self.in_sync = Proposed(state.members, state.proposed | proposed, state.open_count + 1)
        elif proposed == state.members and not self._eligible_are_void:
            return None
        else:
            self.in_sync = Proposed(state.members, proposed)
        self._awaits_answer = True
        return Proposal(proposed, self._state.partition_epoch)

    @property
    def _eligible_are_void(self) -> bool:
        """Enough are in sync since the minimum was lowered: to store the set again makes the store forget them."""
        return self._state.has_eligible and len(self.in_sync.committed) >= self.effective_min_in_sync

    def proposal_refused(self) -> None:
        """The store did for certain not take the last proposal, and will not."""
        self._awaits_answer = False
        state = self.in_sync
        if isinstance(state, Proposed) and state.open_count > 1:
            # An earlier one may still happen.
            self.in_sync = replace(state, open_count=state.open_count - 1)
        else:
            self.in_sync = Settled(state.committed)

    def proposal_unanswered(self) -> None:
        """Whether the store has taken the last proposal, or still will, cannot be known."""
        self._awaits_answer = False

    def _wanted(self, now_ms: int, full: Collection[BrokerId]) -> Members:
        stuck = {progress.member for progress in self._followers.values() if self._is_stuck(progress, full)}
        present = self.in_sync.committed - stuck
        wanted = {member for member in present if member == self.me or self._keeps_up(member, now_ms)}
        for progress in self._followers.values():
            if progress.member not in stuck and self.may_join(progress):
                wanted = {member for member in wanted if member.broker != progress.member.broker} | {progress.member}
        return frozenset(wanted)

    def _is_stuck(self, progress: FollowerProgress, full: Collection[BrokerId]) -> bool:
        return progress.member.broker in full and progress.end_offset < self._own_offset

    def _keeps_up(self, member: Member, now_ms: int) -> bool:
        progress = self._followers.get(member.broker)
        if progress is None or progress.member != member:
            # It has not fetched in this epoch; it gets the same time as every follower.
            return now_ms - self._epoch_began_at_ms <= self.options.lag_time_max_ms
        if self._lags_too_far(progress):
            return False
        caught_up = progress.end_offset >= self._own_offset
        return caught_up or now_ms - progress.caught_up_at_ms <= self.options.lag_time_max_ms

    def may_join(self, progress: FollowerProgress) -> bool:
        """Whether a follower that is not in sync may be taken into the in-sync set (REP-13)."""
        if progress.member in self.in_sync.committed or self._lags_too_far(progress):
            return False
        return progress.end_offset >= max(self._log.high_watermark, self.epoch_start_offset)

    def wants_to_propose(self, progress: FollowerProgress) -> bool:
        """Whether this follower may join and no proposal that holds it is open."""
        return progress.member not in self.in_sync.maximal and self.may_join(progress)

    def _lags_too_far(self, progress: FollowerProgress) -> bool:
        allowed = self.options.lag_messages_max
        return allowed is not None and self._own_offset - progress.end_offset > allowed

    # --- what is committed

    def committed_offset(self) -> int:
        """Everything below is committed; never below the high watermark (REP-4, REP-6)."""
        high_watermark = self._log.high_watermark
        if not self.has_enough_in_sync:
            return high_watermark
        reached = self._own_offset
        for member in self.in_sync.maximal:
            if member != self.me:
                progress = self._followers.get(member.broker)
                # A member that has not fetched in this epoch has shown nothing.
                if progress is None or progress.member != member:
                    return high_watermark
                reached = min(reached, progress.end_offset)
        return max(high_watermark, reached)
