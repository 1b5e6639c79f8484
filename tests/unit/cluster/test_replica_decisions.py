"""Who may lead a replicated partition, and who is in sync or eligible after a change."""

from dataclasses import replace

import pytest

from martlet.base.errors import InvariantViolation
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId
from martlet.cluster.records import BrokerRecord, PartitionRecord
from martlet.cluster.replica_decisions import elect_leader, live_member, store_in_sync


def member(broker: int, incarnation: int | None = None) -> Member:
    return Member(BrokerId(broker), Incarnation(incarnation if incarnation is not None else broker * 10))


def alive(*brokers: int) -> dict[BrokerId, BrokerRecord]:
    return {one: BrokerRecord(one, member(one).incarnation) for one in map(BrokerId, brokers)}


PARTITION = PartitionRecord(
    TopicId(bytes(16)),
    0,
    replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
    leader=BrokerId(1),
    leader_epoch=LeaderEpoch(5),
    isr=(member(1), member(2), member(3)),
)


def test_the_first_replica_in_sync_and_alive_leads_one_epoch_on() -> None:
    election = elect_leader(PARTITION, alive(2, 3), min_in_sync=2)
    assert not election.is_unclean
    assert (election.partition.leader, election.partition.leader_epoch) == (2, 6)
    assert election.partition.isr == (member(2), member(3))
    assert election.partition.elr == ()


def test_a_preferred_leader_is_chosen_where_it_may_lead() -> None:
    assert elect_leader(PARTITION, alive(2, 3), 2, preferred=BrokerId(3)).partition.leader == 3
    assert elect_leader(PARTITION, alive(2, 3), 2, preferred=BrokerId(1)).partition.leader == 2


def test_cls_40_who_leaves_while_too_few_are_in_sync_stays_eligible_and_may_lead() -> None:
    alone = elect_leader(PARTITION, alive(3), min_in_sync=2).partition
    assert (alone.leader, alone.isr) == (3, (member(3),))
    assert alone.elr == (member(1), member(2))
    later = elect_leader(alone, alive(2), min_in_sync=2).partition
    assert (later.leader, later.isr, later.elr) == (2, (member(2),), (member(1), member(3)))


def test_cls_40_no_replica_is_eligible_once_enough_are_in_sync_again() -> None:
    alone = replace(PARTITION, isr=(member(1),), elr=(member(2), member(3)))
    stored = store_in_sync(alone, {member(1), member(3)}, min_in_sync=2)
    assert (stored.isr, stored.elr, stored.leader_epoch) == ((member(1), member(3)), (), 5)


def test_a_restarted_process_counts_only_if_nothing_was_lost() -> None:
    lossy = {BrokerId(2): BrokerRecord(BrokerId(2), Incarnation(99))}
    assert elect_leader(PARTITION, lossy, 2).partition.leader is None
    clean = {BrokerId(2): BrokerRecord(BrokerId(2), Incarnation(99), clean_since=Incarnation(20))}
    election = elect_leader(PARTITION, clean, 2)
    assert election.partition.leader == 2
    assert election.partition.isr == (member(2, 99),)
    assert live_member(member(2), clean) == member(2, 99)
    assert live_member(member(3), clean) is None


def test_without_a_complete_replica_none_leads_and_the_sets_are_kept() -> None:
    election = elect_leader(PARTITION, {}, 2)
    assert (election.partition.leader, election.partition.leader_epoch) == (None, 6)
    assert election.partition.isr == PARTITION.isr
    assert elect_leader(election.partition, {}, 2).partition == election.partition
    assert elect_leader(election.partition, alive(3), 2).partition.leader == 3


def test_an_unclean_election_happens_only_where_allowed_and_says_so() -> None:
    lossy = {BrokerId(3): BrokerRecord(BrokerId(3), Incarnation(99))}
    assert elect_leader(PARTITION, lossy, 2).partition.leader is None
    election = elect_leader(PARTITION, lossy, 2, unclean_allowed=True)
    assert election.is_unclean
    assert (election.partition.leader, election.partition.isr) == (3, (member(3, 99),))


def restarted(broker: int, *, has_logs: bool) -> dict[BrokerId, BrokerRecord]:
    since = member(broker).incarnation if has_logs else None
    return {BrokerId(broker): BrokerRecord(BrokerId(broker), Incarnation(99), same_logs_since=since)}


def test_an_unclean_election_ranks_candidates_by_what_they_probably_hold() -> None:
    alone = replace(PARTITION, isr=(member(1),), last_in_sync=(member(3), member(2)))
    everybody = restarted(1, has_logs=True) | restarted(2, has_logs=True) | restarted(3, has_logs=True)

    def choose(live: dict[BrokerId, BrokerRecord]) -> BrokerId | None:
        return elect_leader(alone, live, 2, unclean_allowed=True).partition.leader

    assert choose(everybody) == 1, "the last one that was complete"
    wiped = everybody | restarted(1, has_logs=False)
    assert choose(wiped) == 3, "the last one to leave"
    assert choose(wiped | restarted(3, has_logs=False)) == 2
    assert choose(restarted(1, has_logs=False)) == 1, "an empty disk is better than no leader, where that is allowed"
    never = replace(alone, last_in_sync=())
    election = elect_leader(never, restarted(1, has_logs=False) | restarted(2, has_logs=True), 2, unclean_allowed=True)
    assert election.partition.leader == 2


def test_who_leaves_the_in_sync_set_is_remembered_until_it_is_back() -> None:
    two = store_in_sync(PARTITION, {member(1), member(3)}, min_in_sync=1)
    assert (two.elr, two.last_in_sync) == ((), (member(2),))
    one = elect_leader(two, alive(3), min_in_sync=1).partition
    assert (one.isr, one.last_in_sync) == ((member(3),), (member(1), member(2)))
    back = store_in_sync(one, {member(3), member(1, 99)}, min_in_sync=1)
    assert back.last_in_sync == (member(2),)
    assert store_in_sync(back, {member(3), member(1, 99), member(2)}, min_in_sync=1).last_in_sync == ()


def test_cls_39_an_in_sync_set_without_the_leader_is_never_stored() -> None:
    with pytest.raises(InvariantViolation, match="CLS-39"):
        store_in_sync(PARTITION, {member(2)}, 2)
