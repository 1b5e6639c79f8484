"""What a follower asks for and what it makes of the answers."""

from dataclasses import dataclass, field

import pytest

from martlet.base.errors import ErrorCode
from martlet.log.epoch_cache import EpochCache
from martlet.replication.follower import (
    Append,
    EpochEnd,
    FetchAgain,
    FetchAnswer,
    FetchPosition,
    FollowerReplica,
    StartAt,
    Step,
    Stop,
    TruncateTo,
    high_watermark_after,
)


@dataclass
class Log:
    """Epochs and where they start; the log's end."""

    end_offset: int = 0
    epochs: EpochCache = field(default_factory=EpochCache)
    log_start_offset: int = 0
    high_watermark: int = 0

    @property
    def last_epoch(self) -> int:
        return self.epochs.epoch_at(self.end_offset - 1) if self.end_offset else -1

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        return EpochEnd(*self.epochs.end_offset_for(epoch, log_end_offset=self.end_offset))


def take(answer: FetchAnswer, log: Log, high_watermark: int = 0) -> Step:
    log.high_watermark = high_watermark
    follower = FollowerReplica(leader_epoch=9)
    return follower.step_for(answer, follower.next_fetch(log), log)


def test_a_fetch_names_the_end_and_the_epoch_of_the_last_record() -> None:
    log = Log(12, EpochCache([(3, 0), (5, 10)]))
    assert FollowerReplica(9).next_fetch(log) == FetchPosition(12, 9, 5, 0)
    assert FollowerReplica(9).next_fetch(Log()) == FetchPosition(0, 9, -1, 0)


def test_records_are_appended_and_the_high_watermark_follows_as_far_as_the_log_reaches() -> None:
    log = Log(12, EpochCache([(3, 0)]))
    follower = FollowerReplica(9)
    step = follower.step_for(FetchAnswer(high_watermark=20, log_start_offset=1), follower.next_fetch(log), log)
    assert step == Append(20, 1)
    log.end_offset = 15
    log.high_watermark = high_watermark_after(20, log)
    assert log.high_watermark == 15
    assert high_watermark_after(3, log) == 15, "it never goes back"


def test_rep_3_the_log_is_cut_where_the_leaders_epoch_ended() -> None:
    log = Log(20, EpochCache([(3, 0), (5, 10)]))
    assert take(FetchAnswer(diverging=EpochEnd(5, 14)), log) == TruncateTo(14, loses_committed=False)


def test_rep_3_an_epoch_only_the_leader_knows_is_cut_at_the_last_common_one() -> None:
    log = Log(20, EpochCache([(3, 0), (5, 10)]))
    # The leader's history has epoch 4 where ours has 5: only epoch 3 can be common.
    assert take(FetchAnswer(diverging=EpochEnd(4, 30)), log) == TruncateTo(10, loses_committed=False)


def test_a_cut_below_the_high_watermark_says_so() -> None:
    log = Log(20, EpochCache([(3, 0), (5, 10)]))
    assert take(FetchAnswer(diverging=EpochEnd(5, 14)), log, high_watermark=15) == TruncateTo(14, loses_committed=True)


def test_a_log_whose_next_record_is_gone_at_the_leader_starts_again() -> None:
    log = Log(20, EpochCache([(3, 0)]))
    assert take(FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=50), log) == StartAt(50)


def test_an_empty_log_that_ends_after_its_leaders_starts_again_too() -> None:
    log = Log(20, EpochCache())
    log.log_start_offset = 20
    assert take(FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=5), log) == StartAt(5)
    assert isinstance(take(FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=20), log), FetchAgain)
    assert isinstance(take(FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), log), FetchAgain)


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (ErrorCode.FENCED_LEADER_EPOCH, Stop),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Stop),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, FetchAgain),
        (ErrorCode.KAFKA_STORAGE_ERROR, FetchAgain),
        (ErrorCode.OFFSET_OUT_OF_RANGE, FetchAgain),
    ],
)
def test_errors_end_the_epoch_or_are_asked_about_again(error: ErrorCode, step: type[Step]) -> None:
    assert isinstance(take(FetchAnswer(error), Log(5, EpochCache([(1, 0)]))), step)


def test_an_answer_to_a_question_that_no_longer_stands_changes_nothing() -> None:
    log = Log(12, EpochCache([(3, 0)]))
    follower = FollowerReplica(9)
    asked = follower.next_fetch(log)
    log.end_offset = 13
    assert isinstance(follower.step_for(FetchAnswer(high_watermark=20), asked, log), FetchAgain)
    older = asked._replace(current_leader_epoch=8, fetch_offset=13)
    assert isinstance(follower.step_for(FetchAnswer(diverging=EpochEnd(1, 0)), older, log), FetchAgain)


def test_an_answer_to_a_history_that_was_cut_and_grown_again_since_changes_nothing() -> None:
    log = Log(10, EpochCache([(3, 0)]))
    follower = FollowerReplica(9)
    asked = follower.next_fetch(log)
    log.epochs = EpochCache([(3, 0), (9, 5)])
    late = FetchAnswer(diverging=EpochEnd(3, 5))
    assert follower.step_for(late, asked, log) == FetchAgain(ErrorCode.NONE), "what was copied since is not cut off"
