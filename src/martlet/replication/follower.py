"""The follower's side of replication for one partition: what to fetch next, and what to do with an answer.

Rules: pure. It reads the log through a narrow view and returns a step; the fetcher that owns it applies the step. The
high watermark is kept by the log.

How it works: every fetch names the end of the follower's log, its leader epoch, and the epoch of its last record. A
leader whose history differs says where that epoch ended in its log. The follower truncates its log there, or where its
own history ends that epoch, and fetches again; after at most as many rounds as there are epochs in between, both agree.

Invariants:
REP-3 after a truncation, both logs are the same up to it; nothing is appended before the leader agrees with the
   history;
REP-6 the follower's high watermark never goes back and never passes its end; a truncation below it loses something
   acknowledged, and says so.

Proved by: tests/unit/replication/test_follower.py, tests/properties/test_replication.py
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from martlet.base.errors import ErrorCode
from martlet.base.ids import NO_LEADER_EPOCH


class FetchPosition(NamedTuple):
    """What a follower fetches from its leader."""

    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


class EpochEnd(NamedTuple):
    """Where an epoch ends in one log: the largest epoch known there that is not above the one asked for."""

    epoch: int
    end_offset: int


class FollowerLog(Protocol):
    """The follower's log, as far as its rules read it."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, -1 without any."""
        ...

    def end_of_epoch(self, epoch: int) -> EpochEnd: ...


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """The leader's answer for this partition."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    has_records: bool = False


class Append(NamedTuple):
    """Append the records of the answer, if any; then these are the leader's high watermark and log start."""

    high_watermark: int
    log_start_offset: int


class TruncateTo(NamedTuple):
    """Truncate the log so that it ends here, then fetch again."""

    end_offset: int
    loses_committed: bool
    """Whether records below the high watermark go: only after an unclean election may that happen."""


class StartAt(NamedTuple):
    """Forget the whole log and begin at this offset: the leader no longer has what would come next."""

    offset: int


class FetchAgain(NamedTuple):
    """Nothing to do now; fetch again after a pause, because of this error."""

    error: ErrorCode


class Stop(NamedTuple):
    """This leader, or this epoch, is over: wait for an update from the metadata store."""

    error: ErrorCode


Step: TypeAlias = Append | TruncateTo | StartAt | FetchAgain | Stop


class FollowerReplica:
    """Owned by the partition that follows; lives for one leader epoch."""

    __slots__ = ("leader_epoch", "leader_high_watermark")

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.leader_high_watermark = 0
        """The largest that the leader has named."""

    def lag(self, log: FollowerLog) -> int:
        """How many committed messages the log lacks, as far as the leader has named them."""
        return max(0, self.leader_high_watermark - log.end_offset)

    def next_fetch(self, log: FollowerLog) -> FetchPosition:
        """What to fetch now."""
        return FetchPosition(log.end_offset, self.leader_epoch, log.last_epoch, log.log_start_offset)

    def step_for(self, answer: FetchAnswer, fetched: FetchPosition, log: FollowerLog) -> Step:
        """What the answer to a fetch from `fetched` means for the log."""
        self.leader_high_watermark = max(self.leader_high_watermark, answer.high_watermark)
        is_of_now = fetched.fetch_offset == log.end_offset and fetched.last_fetched_epoch == log.last_epoch
        if fetched.current_leader_epoch != self.leader_epoch or not is_of_now:
            return FetchAgain(ErrorCode.NONE)  # the log or the epoch has changed since the fetch
        if answer.error is not ErrorCode.NONE:
            return self._step_for_error(answer, log)
        if answer.diverging is not None:
            return _truncate(answer.diverging, log)
        return Append(answer.high_watermark, answer.log_start_offset)

    def _step_for_error(self, answer: FetchAnswer, log: FollowerLog) -> Step:
        error = answer.error
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            start_offset = answer.log_start_offset
            # An empty log names no epoch by which the leader could tell that it ends too late (after an unclean
            # election), and has nothing to lose by starting over.
            is_empty = log.log_start_offset == log.end_offset and start_offset >= 0
            if start_offset > log.end_offset or (is_empty and start_offset != log.end_offset):
                self.leader_high_watermark = 0  # what it named belongs to another history
                return StartAt(start_offset)
        if error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID):
            return Stop(error)
        # UNKNOWN_LEADER_EPOCH: the leader has not heard of its election yet. Others pass or need an operator.
        return FetchAgain(error)


def high_watermark_after(leader_high_watermark: int, log: FollowerLog) -> int:
    """After an append: the follower's high watermark, as far as the leader's and its log reach (REP-6)."""
    return max(log.high_watermark, min(leader_high_watermark, log.end_offset))


def _truncate(leaders: EpochEnd, log: FollowerLog) -> TruncateTo:
    if leaders.epoch == NO_LEADER_EPOCH:
        # The leader remembers nothing that old; what it still has begins at its log's start.
        end_offset = max(leaders.end_offset, log.log_start_offset)
    else:
        own = log.end_of_epoch(leaders.epoch)
        # Where this log knows the epoch, the shorter of both ends counts; where it does not, the last epoch below
        # is as far as both can agree, and the next round compares that one.
        end_offset = min(own.end_offset, leaders.end_offset) if own.epoch == leaders.epoch else own.end_offset
        if own.epoch == NO_LEADER_EPOCH:
            end_offset = log.log_start_offset
    end_offset = min(max(end_offset, log.log_start_offset), log.end_offset)
    return TruncateTo(end_offset, loses_committed=end_offset < log.high_watermark)
