"""What a leader makes of appends, fetches, time and the store's answers."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Incarnation, Member
from martlet.replication.in_sync import Proposal
from martlet.replication.leader import FollowerProgress, LeaderReplica, PartitionState, ReplicationOptions

ONE, TWO, THREE = (Member(BrokerId(number), Incarnation(number)) for number in (1, 2, 3))
STATE = PartitionState((BrokerId(1), BrokerId(2), BrokerId(3)), 7, frozenset({ONE, TWO, THREE}), 100)
OPTIONS = ReplicationOptions(min_in_sync=2, lag_time_max_ms=1_000)


@dataclass
class Log:
    end_offset: int = 0
    high_watermark: int = 0


class Led:
    """A leader's machine with its log, of which this moves the high watermark as a partition does."""

    def __init__(self, state: PartitionState, options: ReplicationOptions, end_offset: int, own: int | None) -> None:
        self.log = Log(end_offset)
        self.machine = LeaderReplica(ONE, state, options, self.log, now_ms=0, own_offset=own)

    @property
    def high_watermark(self) -> int:
        self.log.high_watermark = max(self.log.high_watermark, self.machine.committed_offset())
        return self.log.high_watermark

    def own_offset_moved(self, offset: int) -> int:
        self.log.end_offset = max(self.log.end_offset, offset)
        self.machine.own_offset_moved(offset)
        return self.high_watermark

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, name)


def leader(
    state: PartitionState = STATE,
    options: ReplicationOptions = OPTIONS,
    *,
    end_offset: int = 0,
    own_offset: int | None = None,
) -> Led:
    return Led(state, options, end_offset, own_offset)


def fetch(replica: Led, member: Member, offset: int, *, end_offset: int, now_ms: int = 0) -> FollowerProgress:
    replica.log.end_offset = end_offset
    progress = replica.machine.fetched(member, leader_epoch=7, fetch_offset=offset, now_ms=now_ms)
    assert replica.high_watermark >= 0
    return progress


def test_rep_6_a_record_is_committed_once_every_member_in_sync_has_it() -> None:
    replica = leader()
    assert replica.own_offset_moved(10) == 0
    fetch(replica, TWO, 10, end_offset=10)
    assert replica.high_watermark == 0
    fetch(replica, THREE, 6, end_offset=10)
    assert replica.high_watermark == 6
    fetch(replica, THREE, 10, end_offset=10)
    assert replica.high_watermark == 10


def test_rep_6_the_high_watermark_stands_still_below_the_minimum() -> None:
    replica = leader(replace(STATE, in_sync=frozenset({ONE})))
    assert replica.own_offset_moved(10) == 0
    with pytest.raises(ApiError, match="1 replicas are in sync, 2 are needed") as refused:
        replica.check_enough_in_sync()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_single_replica_needs_only_itself_whatever_the_minimum() -> None:
    replica = leader(PartitionState((BrokerId(1),), 7, frozenset({ONE}), 100))
    replica.check_enough_in_sync()
    assert replica.own_offset_moved(3) == 3


def test_a_follower_that_does_not_catch_up_in_time_is_dropped() -> None:
    replica = leader()
    replica.own_offset_moved(5)
    fetch(replica, TWO, 5, end_offset=5, now_ms=900)
    fetch(replica, THREE, 1, end_offset=5, now_ms=900)
    assert replica.propose(1_000) is None
    assert replica.propose(1_001) == Proposal(frozenset({ONE, TWO}), 100)
    assert replica.propose(1_002) is None, "one proposal at a time"


def test_a_follower_that_has_what_there_was_at_its_last_fetch_keeps_up() -> None:
    replica = leader()
    for second in range(1, 6):
        end_offset = second * 10
        replica.own_offset_moved(end_offset)
        # Each fetch is behind the end that moved on, but has reached the end of the fetch before.
        fetch(replica, TWO, end_offset - 10, end_offset=end_offset, now_ms=second * 600)
        fetch(replica, THREE, end_offset - 10, end_offset=end_offset, now_ms=second * 600)
        assert replica.propose(second * 600) is None


def test_rep_13_a_follower_is_taken_back_when_it_has_all_that_is_committed_and_that_the_epoch_began_with() -> None:
    replica = leader(replace(STATE, in_sync=frozenset({ONE, TWO})), end_offset=8)
    fetch(replica, TWO, 8, end_offset=8)
    assert replica.high_watermark == 8
    fetch(replica, THREE, 7, end_offset=8)
    assert replica.propose(0) is None
    fetch(replica, THREE, 8, end_offset=8)
    assert replica.propose(0) == Proposal(frozenset({ONE, TWO, THREE}), 100)


def test_rep_13_a_follower_that_may_join_is_reported_until_a_proposal_holds_it() -> None:
    replica = leader(replace(STATE, in_sync=frozenset({ONE, TWO})), end_offset=8)
    assert not replica.wants_to_propose(fetch(replica, THREE, 7, end_offset=8))
    assert not replica.wants_to_propose(fetch(replica, TWO, 8, end_offset=8)), "it is in sync"
    caught_up = fetch(replica, THREE, 8, end_offset=8)
    assert replica.wants_to_propose(caught_up)
    assert replica.propose(0) is not None
    assert not replica.wants_to_propose(caught_up)


def test_all_replicas_in_sync_must_have_said_where_their_logs_start() -> None:
    replica = leader(replace(STATE, in_sync=frozenset({ONE, TWO})), end_offset=8)
    assert not replica.all_start_at(3)
    fetch(replica, TWO, 8, end_offset=8).log_start_offset = 3
    fetch(replica, THREE, 8, end_offset=8).log_start_offset = 0
    assert replica.all_start_at(3), "the third is not in sync"
    assert not replica.all_start_at(4)


def test_rep_4_while_a_proposal_is_open_both_sets_must_have_a_record() -> None:
    replica = leader(replace(STATE, in_sync=frozenset({ONE, TWO})))
    fetch(replica, THREE, 0, end_offset=0)
    assert replica.propose(0) is not None
    replica.own_offset_moved(5)
    fetch(replica, TWO, 5, end_offset=5)
    assert replica.high_watermark == 0
    replica.proposal_refused()
    assert replica.high_watermark == 5


def test_rep_4_an_answer_that_never_came_keeps_both_sets_until_the_store_moves_on() -> None:
    replica = leader(replace(STATE, in_sync=frozenset({ONE, TWO})))
    fetch(replica, THREE, 0, end_offset=0)
    assert replica.propose(0) is not None
    replica.proposal_unanswered()
    replica.own_offset_moved(5)
    fetch(replica, TWO, 5, end_offset=5)
    assert replica.high_watermark == 0
    again = replica.propose(0)
    assert again is not None, "something is proposed, so that the lost one can no longer happen"
    replica.proposal_refused()
    assert replica.high_watermark == 0, "the first proposal may still happen"
    replica.state_stored(replace(STATE, in_sync=frozenset({ONE, TWO}), partition_epoch=101))
    assert replica.high_watermark == 5


def test_rep_11_a_fetch_of_another_epoch_or_of_a_stranger_counts_for_nothing() -> None:
    replica = leader()
    replica.own_offset_moved(5)
    stranger = Member(BrokerId(9), Incarnation(9))
    for member, epoch, code in (
        (TWO, 6, ErrorCode.FENCED_LEADER_EPOCH),
        (TWO, 8, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (stranger, 7, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ONE, 7, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        with pytest.raises(ApiError) as refused:
            replica.fetched(member, leader_epoch=epoch, fetch_offset=5, now_ms=0)
        assert refused.value.code is code
    assert not list(replica.followers())


def test_a_restarted_follower_starts_from_nothing_and_replaces_its_old_entry() -> None:
    replica = leader()
    replica.own_offset_moved(5)
    fetch(replica, TWO, 5, end_offset=5)
    fetch(replica, THREE, 5, end_offset=5)
    assert replica.high_watermark == 5
    replica.own_offset_moved(6)
    restarted = Member(BrokerId(3), Incarnation(33))
    fetch(replica, TWO, 6, end_offset=6)
    fetch(replica, restarted, 6, end_offset=6)
    assert replica.high_watermark == 5, "the entry in the set names the process that is gone"
    assert replica.propose(0) == Proposal(frozenset({ONE, TWO, restarted}), 100)


def test_a_follower_that_lacks_something_and_has_no_space_for_it_is_dropped_at_once() -> None:
    replica = leader()
    replica.own_offset_moved(5)
    fetch(replica, TWO, 5, end_offset=5)
    fetch(replica, THREE, 4, end_offset=5)
    assert replica.propose(0) is None
    assert replica.propose(0, {BrokerId(2), BrokerId(3)}) == Proposal(frozenset({ONE, TWO}), 100)


def test_a_follower_without_space_is_taken_back_only_with_all_there_is() -> None:
    replica = leader(replace(STATE, in_sync=frozenset({ONE}), has_eligible=True))
    replica.own_offset_moved(5)
    fetch(replica, TWO, 0, end_offset=5)
    assert replica.high_watermark == 0, "it stands still while too few are in sync"
    assert replica.propose(0, {BrokerId(2)}) is None, "it would be dropped again at once"
    fetch(replica, TWO, 5, end_offset=5)
    assert replica.propose(0, {BrokerId(2)}) == Proposal(frozenset({ONE, TWO}), 100)


def test_a_limit_on_messages_drops_a_follower_that_lags_too_far() -> None:
    replica = leader(options=replace(OPTIONS, lag_messages_max=10))
    replica.own_offset_moved(11)
    fetch(replica, TWO, 1, end_offset=11)
    fetch(replica, THREE, 0, end_offset=11)
    assert replica.propose(0) == Proposal(frozenset({ONE, TWO}), 100)


def test_a_new_leaders_high_watermark_is_not_trusted_before_it_reaches_the_epochs_start() -> None:
    replica = leader(end_offset=8)
    assert not replica.high_watermark_is_current
    fetch(replica, TWO, 8, end_offset=8)
    fetch(replica, THREE, 8, end_offset=8)
    assert replica.high_watermark_is_current


def test_older_news_from_the_store_is_ignored() -> None:
    replica = leader()
    replica.state_stored(replace(STATE, in_sync=frozenset({ONE}), partition_epoch=99))
    assert replica.in_sync.committed == STATE.in_sync


def test_rep_6_a_lowered_minimum_counts_only_once_the_store_has_forgotten_the_eligible() -> None:
    alone = replace(STATE, in_sync=frozenset({ONE}), has_eligible=True)
    replica = leader(alone)
    replica.own_offset_moved(5)
    replica.machine.options = replace(OPTIONS, min_in_sync=1)
    assert replica.high_watermark == 0, "those that the store calls eligible do not have these records"
    assert replica.propose(0) == Proposal(frozenset({ONE}), 100)
    replica.state_stored(replace(alone, has_eligible=False, partition_epoch=101))
    assert replica.high_watermark == 5


def test_a_leader_that_counts_only_what_it_has_flushed_commits_no_more_than_that() -> None:
    state = replace(STATE, in_sync=frozenset({ONE, TWO}))
    replica = leader(state, end_offset=9, own_offset=4)
    fetch(replica, TWO, 9, end_offset=9)
    assert (replica.high_watermark, replica.high_watermark_is_current) == (4, False)
    assert replica.own_offset_moved(9) == 9
    assert replica.high_watermark_is_current


def test_a_partition_with_a_replica_out_of_sync_is_under_replicated() -> None:
    assert not leader().is_under_replicated
    assert leader(replace(STATE, in_sync=frozenset({ONE, TWO}))).is_under_replicated
