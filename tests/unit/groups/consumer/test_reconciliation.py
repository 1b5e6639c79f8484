"""One member's way to its target, step by step."""

from martlet.base.ids import TopicId
from martlet.groups.consumer.reconciliation import reconcile, waits_for_others
from martlet.groups.records import NO_PARTITIONS, CurrentAssigned, MemberState, Partitions

TOPIC = TopicId(b"t" * 16)


def parts(*numbers: int) -> Partitions:
    return frozenset((TOPIC, number) for number in numbers)


def member(
    epoch: int, state: MemberState, assigned: Partitions, pending: Partitions = NO_PARTITIONS
) -> CurrentAssigned:
    return CurrentAssigned("g", "m", epoch, epoch - 1, state, assigned, pending)


def test_a_member_at_its_target_stays_the_same_object() -> None:
    current = member(3, MemberState.STABLE, parts(1))
    assert reconcile(current, target=parts(1), target_epoch=3, owned=parts(1), owners={}) is current


def test_what_is_free_is_added_at_once_and_the_epoch_moves() -> None:
    after = reconcile(
        member(3, MemberState.STABLE, parts(1)), target=parts(1, 2), target_epoch=4, owned=None, owners={}
    )
    assert (after.epoch, after.previous_epoch, after.state) == (4, 3, MemberState.STABLE)
    assert after.assigned == parts(1, 2)


def test_what_others_hold_is_waited_for() -> None:
    owners = {(TOPIC, 2): "other"}
    after = reconcile(
        member(3, MemberState.STABLE, parts(1)), target=parts(1, 2), target_epoch=4, owned=None, owners=owners
    )
    assert (after.epoch, after.state, after.assigned) == (4, MemberState.UNRELEASED_PARTITIONS, parts(1))
    assert waits_for_others(after, parts(1, 2), owners)
    assert not waits_for_others(after, parts(1, 2), {})


def test_a_wait_without_news_changes_nothing() -> None:
    current = member(4, MemberState.UNRELEASED_PARTITIONS, parts(1))
    owners = {(TOPIC, 2): "other"}
    assert reconcile(current, target=parts(1, 2), target_epoch=4, owned=None, owners=owners) is current


def test_surplus_is_asked_back_in_the_old_epoch() -> None:
    after = reconcile(
        member(3, MemberState.STABLE, parts(1, 2)), target=parts(2, 3), target_epoch=4, owned=parts(1, 2), owners={}
    )
    assert (after.epoch, after.previous_epoch, after.state) == (3, 2, MemberState.UNREVOKED_PARTITIONS)
    assert (after.assigned, after.pending_revocation) == (parts(2), parts(1))


def test_surplus_that_is_not_owned_needs_no_round_of_its_own() -> None:
    after = reconcile(
        member(3, MemberState.STABLE, parts(1, 2)), target=parts(2), target_epoch=4, owned=parts(2), owners={}
    )
    assert (after.epoch, after.state, after.pending_revocation) == (4, MemberState.STABLE, NO_PARTITIONS)


def test_a_member_that_does_not_say_what_it_owns_makes_no_progress() -> None:
    current = member(3, MemberState.UNREVOKED_PARTITIONS, parts(2), parts(1))
    assert reconcile(current, target=parts(2), target_epoch=4, owned=None, owners={}) is current
    assert reconcile(current, target=parts(2), target_epoch=4, owned=parts(1, 2), owners={}) is current


def test_a_newer_target_may_ask_for_more_after_a_revocation() -> None:
    current = member(3, MemberState.UNREVOKED_PARTITIONS, parts(2, 3), parts(1))
    after = reconcile(current, target=parts(2), target_epoch=9, owned=parts(2, 3), owners={})
    assert (after.epoch, after.state) == (4, MemberState.UNREVOKED_PARTITIONS)
    assert (after.assigned, after.pending_revocation) == (parts(2), parts(3))


def test_what_a_member_has_just_given_back_can_be_its_own_again() -> None:
    current = member(3, MemberState.UNREVOKED_PARTITIONS, parts(2), parts(1))
    owners = {(TOPIC, 1): "m", (TOPIC, 2): "m"}
    after = reconcile(current, target=parts(1, 2), target_epoch=5, owned=parts(2), owners=owners)
    assert (after.epoch, after.state, after.assigned) == (5, MemberState.STABLE, parts(1, 2))


def test_the_previous_epoch_moves_only_with_the_epoch() -> None:
    waiting = CurrentAssigned("g", "m", 4, 2, MemberState.UNRELEASED_PARTITIONS, parts(1))
    after = reconcile(waiting, target=parts(1, 2), target_epoch=4, owned=None, owners={})
    assert (after.epoch, after.previous_epoch, after.assigned) == (4, 2, parts(1, 2))
