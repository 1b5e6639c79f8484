"""How a rebalance begins and ends: the steps that joins, leaves and timers have in common.

How it works: `prepare_rebalance` sends everybody back to Join. The join phase ends when all have come, or when its
timer runs out; `complete_join` then drops those who did not come and begins the generation. An empty group waits a
little longer at first (`InitialDelay`), so that members started together meet in one generation.
"""

from martlet.base.errors import ErrorCode
from martlet.coordinator.result import Answer
from martlet.groups.classic import answers
from martlet.groups.classic.classic_events import GenerationBegun, InitialDelay, InitialDelayExtended, RebalancePrepared
from martlet.groups.classic.classic_group import TRANSITIONS, ClassicState
from martlet.groups.classic.plan import Plan, join_key, rebalance_key, sync_phase_key

_PROLONGED_MS_MIN = 1_000
"""A join phase to which nobody came is prolonged by this at least: members may claim a rebalance timeout of zero."""


def rebalance_or_complete(plan: Plan) -> None:
    """Members have changed: begin a rebalance, or end the one under way if this was all it waited for."""
    if ClassicState.PREPARING_REBALANCE in TRANSITIONS[plan.group.state]:
        prepare_rebalance(plan)
    else:
        complete_join_if_all_came(plan)


def prepare_rebalance(plan: Plan) -> None:
    """Send all members back to Join."""
    group = plan.group
    for member_id in list(group.syncing):
        plan.refuse_sync(member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        plan.watch(group.members[member_id])
    plan.cancel_timer(sync_phase_key(group.group_id))
    if group.is_empty:
        _wait_for_first_members(plan)
        return
    plan.record(RebalancePrepared(group.group_id))
    if group.has_all_joined:
        complete_join(plan)
    else:
        plan.set_timer(rebalance_key(group.group_id), group.rebalance_timeout_ms)


def _wait_for_first_members(plan: Plan) -> None:
    group = plan.group
    delay_ms = plan.options.initial_rebalance_delay_ms
    remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    plan.record(RebalancePrepared(group.group_id, InitialDelay(delay_ms, remaining_ms)))
    plan.set_timer(rebalance_key(group.group_id), delay_ms)


def end_wait(plan: Plan) -> None:
    """The timer of the join phase has run out: wait on for more first members, or go on without laggards."""
    group = plan.group
    initial = group.initial
    if initial is None or not initial.has_newcomers or initial.remaining_ms == 0:
        complete_join(plan)
        return
    delay_ms = min(plan.options.initial_rebalance_delay_ms, initial.remaining_ms)
    remaining_ms = max(initial.remaining_ms - initial.delay_ms, 0)
    plan.record(InitialDelayExtended(group.group_id, InitialDelay(delay_ms, remaining_ms)))
    plan.set_timer(rebalance_key(group.group_id), delay_ms)


def complete_join_if_all_came(plan: Plan) -> None:
    """End the join phase early; that of an empty group always takes its time."""
    group = plan.group
    if group.state is ClassicState.PREPARING_REBALANCE and group.initial is None and group.has_all_joined:
        complete_join(plan)


def complete_join(plan: Plan) -> None:
    """End the join phase with those who are there; static members that are not may still come, and stay in."""
    group = plan.group
    laggards = [
        member_id
        for member_id, member in group.members.items()
        if member_id not in group.joining and not member.is_static
    ]
    if laggards:
        plan.remove(laggards)
    if not group.members:
        plan.cancel_timer(rebalance_key(group.group_id))
        plan.store(group.stored_empty(plan.now_ms))
        return
    leader = _joined_leader(plan)
    if leader is None:
        # Only static members are left, and none has come: their sessions decide when to give up on them.
        delay_ms = max(group.rebalance_timeout_ms, _PROLONGED_MS_MIN)
        plan.set_timer(rebalance_key(group.group_id), delay_ms)
        return
    plan.cancel_timer(rebalance_key(group.group_id))
    _begin_generation(plan, leader)


def _joined_leader(plan: Plan) -> str | None:
    """The leader, if it has come, or else the member that joined first of those who have."""
    group = plan.group
    if group.leader in group.joining:
        return group.leader
    return next((member_id for member_id in group.members if member_id in group.joining), None)


def _begin_generation(plan: Plan, leader: str) -> None:
    group = plan.group
    waiting = list(group.joining)
    plan.record(GenerationBegun(group.group_id, group.generation + 1, group.select_protocol(), leader))
    for member_id in waiting:
        plan.answers.append(Answer(join_key(group.group_id, member_id), answers.joined(group, member_id)))
    for member in group.members.values():
        plan.watch(member)
    plan.set_timer(sync_phase_key(group.group_id), group.rebalance_timeout_ms)


def expire_sync_phase(plan: Plan) -> None:
    """The timer of the sync phase has run out: members that owe their Sync are out, the others join again."""
    plan.remove(list(plan.group.unsynced))
    prepare_rebalance(plan)


def expire_member(plan: Plan, member_id: str) -> None:
    """A member has been silent for too long."""
    plan.remove([member_id])
    if plan.group.state is ClassicState.PREPARING_REBALANCE:
        if plan.group.has_all_joined:
            complete_join(plan)
    elif not plan.group.is_empty:
        prepare_rebalance(plan)


def expire_pending_member(plan: Plan, member_id: str) -> None:
    """Nobody came back with this member id."""
    plan.remove([member_id])
    if plan.group.state is ClassicState.PREPARING_REBALANCE and plan.group.has_all_joined:
        complete_join(plan)


def watch_loaded_members(plan: Plan) -> None:
    """After loading, every member gets a full session to show itself; groups that cannot stay as they are rebalance."""
    group = plan.group
    for member in group.members.values():
        plan.watch(member)
    if group.is_unsettled or len(group.members) > plan.options.group_max_size:
        prepare_rebalance(plan)


def is_excused(plan: Plan, member_id: str) -> bool:
    """Whether the member need not send heartbeats: it waits for us. Not at its first Join, which may be abandoned."""
    group = plan.group
    return member_id not in group.fresh and (member_id in group.joining or member_id in group.syncing)
