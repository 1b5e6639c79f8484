"""How a rebalance begins and ends: the steps that joins, leaves and timers have in common.

How it works: `prepare_rebalance` sends every member back to Join. The join phase ends when all have come, or when its
timer runs out; `complete_join` then drops those who did not come and begins the generation. An empty group waits a
little longer at first (`InitialDelay`), so that members started together meet in one generation.
"""

from martlet.base.errors import ErrorCode
from martlet.groups.classic import answers
from martlet.groups.classic.classic_draft import ClassicDraft, join_key, rebalance_key, sync_phase_key
from martlet.groups.classic.classic_events import GenerationBegun, InitialDelay, InitialDelayExtended, RebalancePrepared
from martlet.groups.classic.classic_group import TRANSITIONS, ClassicState

_PROLONGED_MS_MIN = 1_000
"""A join phase to which no member came is prolonged by this at least: members may claim a rebalance timeout of zero."""


def rebalance_or_complete(draft: ClassicDraft) -> None:
    """Members have changed: begin a rebalance, or end the one under way if this was all it waited for."""
    group = draft.state
    if ClassicState.PREPARING_REBALANCE in TRANSITIONS[group.state]:
        prepare_rebalance(draft)
    else:
        complete_join_if_all_came(draft)


def prepare_rebalance(draft: ClassicDraft) -> None:
    """Send all members back to Join."""
    group = draft.state
    for member_id in list(group.syncing):
        draft.refuse_sync(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        draft.watch(group.members[member_id])
    draft.cancel_timers(sync_phase_key(group.group_id))
    if group.is_empty:
        _wait_for_first_members(draft)
        return
    draft.record(RebalancePrepared(group.group_id))
    if group.has_all_joined:
        complete_join(draft)
    else:
        draft.set_timer(rebalance_key(group.group_id), group.rebalance_timeout_ms)


def _wait_for_first_members(draft: ClassicDraft) -> None:
    group = draft.state
    delay_ms = draft.options.initial_rebalance_delay_ms
    remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    draft.record(RebalancePrepared(group.group_id, InitialDelay(delay_ms, remaining_ms)))
    draft.set_timer(rebalance_key(group.group_id), delay_ms)


def end_wait(draft: ClassicDraft) -> None:
    """The timer of the join phase has run out: wait on for more first members, or go on without laggards."""
    group = draft.state
    initial = group.initial
    if initial is None or not initial.has_newcomers or initial.remaining_ms == 0:
        complete_join(draft)
        return
    delay_ms = min(draft.options.initial_rebalance_delay_ms, initial.remaining_ms)
    remaining_ms = max(initial.remaining_ms - initial.delay_ms, 0)
    draft.record(InitialDelayExtended(group.group_id, InitialDelay(delay_ms, remaining_ms)))
    draft.set_timer(rebalance_key(group.group_id), delay_ms)


def complete_join_if_all_came(draft: ClassicDraft) -> None:
    """End the join phase early; that of an empty group always takes its time."""
    group = draft.state
    if group.state is ClassicState.PREPARING_REBALANCE and group.initial is None and group.has_all_joined:
        complete_join(draft)


def complete_join(draft: ClassicDraft) -> None:
    """End the join phase with those who are there; static members that are not may still come, and stay in."""
    group = draft.state
    laggards = [
        member_id
        for member_id, member in group.members.items()
        if member_id not in group.joining and not member.is_static
    ]
    if laggards:
        draft.remove(laggards)
    if not group.members:
        draft.cancel_timers(rebalance_key(group.group_id))
        draft.record_last(group.stored_empty(draft.now_ms))
        return
    leader = _joined_leader(draft)
    if leader is None:
        # Only static members are left, and none has come: their sessions decide when to give up on them.
        delay_ms = max(group.rebalance_timeout_ms, _PROLONGED_MS_MIN)
        draft.set_timer(rebalance_key(group.group_id), delay_ms)
        return
    draft.cancel_timers(rebalance_key(group.group_id))
    _begin_generation(draft, leader)


def _joined_leader(draft: ClassicDraft) -> str | None:
    """The leader, if it has come, or else the member that joined first of those who have."""
    group = draft.state
    if group.leader in group.joining:
        return group.leader
    return next((member_id for member_id in group.members if member_id in group.joining), None)


def _begin_generation(draft: ClassicDraft, leader: str) -> None:
    group = draft.state
    waiting = list(group.joining)
    draft.record(GenerationBegun(group.group_id, group.generation + 1, group.select_protocol(), leader))
    for member_id in waiting:
        draft.answer(join_key(group.group_id, member_id), answers.joined(group, member_id))
    for member in group.members.values():
        draft.watch(member)
    draft.set_timer(sync_phase_key(group.group_id), group.rebalance_timeout_ms)


def expire_sync_phase(draft: ClassicDraft) -> None:
    """The timer of the sync phase has run out: members that owe their Sync are out, the others join again."""
    draft.remove(list(draft.state.unsynced))
    prepare_rebalance(draft)


def expire_member(draft: ClassicDraft, member_id: str) -> None:
    """A member has been silent for too long."""
    draft.remove([member_id])
    group = draft.state
    if group.state is ClassicState.PREPARING_REBALANCE:
        if group.has_all_joined:
            complete_join(draft)
    elif not group.is_empty:
        prepare_rebalance(draft)


def expire_pending_member(draft: ClassicDraft, member_id: str) -> None:
    """No member came back with this id."""
    draft.remove([member_id])
    group = draft.state
    if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined:
        complete_join(draft)


def watch_loaded_members(draft: ClassicDraft) -> None:
    """After loading, every member gets a full session to show itself; groups that cannot stay as they are rebalance."""
    group = draft.state
    for member in group.members.values():
        draft.watch(member)
    if group.is_unsettled or len(group.members) > draft.options.group_max_size:
        prepare_rebalance(draft)


def is_excused(draft: ClassicDraft, member_id: str) -> bool:
    """Whether the member need not send heartbeats: it waits for us. Not at its first Join, which may be abandoned."""
    group = draft.state
    return member_id not in group.fresh and (member_id in group.joining or member_id in group.syncing)
