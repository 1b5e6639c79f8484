"""Leads one member from what it owns to what its target gives it, one heartbeat at a time.

How it works: what it owns and shall not own any more it must give back first; until then it stays in its epoch. Then it
moves to the target's epoch and gets what is free; what other members still hold follows as they give it back.

    STABLE ──new target takes something away──► UNREVOKED_PARTITIONS ──a heartbeat without it──► (decided again)
    STABLE ──new target──► STABLE, or UNRELEASED_PARTITIONS while others hold some of it ──► STABLE

Invariants: GRP-7, because nothing is added that the index of owners gives to another member, and nothing leaves that
index before its holder has said that it no longer owns it.

Proved by: tests/unit/groups/consumer/test_reconciliation.py, tests/properties/test_consumer_group.py
"""

from collections.abc import Mapping
from dataclasses import replace

from martlet.base.ids import TopicId
from martlet.groups.records import NO_PARTITIONS, CurrentAssigned, MemberState, Partitions


def reconcile(
    current: CurrentAssigned,
    *,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    owners: Mapping[tuple[TopicId, int], str],
) -> CurrentAssigned:
    """Where the member stands after a heartbeat that said it owns `owned` (None: it did not say)."""
    if current.state is MemberState.STABLE and current.epoch == target_epoch:
        return current
    if current.state is MemberState.UNREVOKED_PARTITIONS and (owned is None or owned & current.pending_revocation):
        return current
    kept = current.assigned & target
    surplus = current.assigned - kept
    if surplus and (owned is None or owned & surplus):
        epoch = current.epoch
        if current.state is MemberState.UNREVOKED_PARTITIONS:
            # It has done what the step before asked for: a new epoch gives it a new deadline for the next one.
            epoch = min(epoch + 1, target_epoch)
        return _step(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, surplus)
    free = frozenset(
        partition for partition in target - kept if owners.get(partition, current.member_id) == current.member_id
    )
    assigned = kept | free
    state = MemberState.STABLE if len(assigned) == len(target) else MemberState.UNRELEASED_PARTITIONS
    return _step(current, target_epoch, state, assigned, NO_PARTITIONS)


def waits_for_others(current: CurrentAssigned, target: Partitions, owners: Mapping[tuple[TopicId, int], str]) -> bool:
    """Whether everything the member still lacks is in other hands."""
    return all(owners.get(partition, current.member_id) != current.member_id for partition in target - current.assigned)


def _step(
    current: CurrentAssigned, epoch: int, state: MemberState, assigned: Partitions, pending: Partitions
) -> CurrentAssigned:
    """The next state; the very same object when nothing changes.

    The previous epoch moves only with the epoch, so that a member whose answers got lost several times in a row is
    still known by the epoch it last heard of.
    """
    previous = current.previous_epoch if epoch == current.epoch else current.epoch
    after = replace(
        current,
        epoch=epoch,
        previous_epoch=previous,
        state=state,
        assigned=current.assigned if assigned == current.assigned else assigned,
        pending_revocation=pending,
    )
    return current if after == current else after
