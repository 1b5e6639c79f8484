"""When a group changes its protocol: what a classic group leaves behind, and how one begins with members.

The decision to change is made elsewhere (`groups/migration`); a classic group only knows how to go and how to come.
"""

from collections.abc import Mapping
from dataclasses import replace

from martlet.base.errors import ErrorCode
from martlet.coordinator.result import Answer, CancelTimer, Result, TimerKey
from martlet.groups.classic import answers
from martlet.groups.classic.events import MemberDescribed
from martlet.groups.classic.group import ClassicGroup
from martlet.groups.classic.member import Protocols
from martlet.groups.classic.plan import (
    Plan,
    join_key,
    pending_key,
    rebalance_key,
    session_key,
    sync_key,
    sync_phase_key,
)
from martlet.groups.classic.rebalance import prepare_rebalance
from martlet.groups.records import ClassicGroupStored


def dismissal(group: ClassicGroup, code: ErrorCode) -> tuple[list[Answer], list[CancelTimer]]:
    """Answers for everybody who waits, and the end of all timers of the group."""
    group_id = group.group_id
    parked = [Answer(join_key(group_id, who), answers.join_refused(code, who)) for who in group.joining]
    parked += [Answer(sync_key(group_id, who), answers.sync_refused(code)) for who in group.syncing]
    keys: list[TimerKey] = [session_key(group_id, member_id) for member_id in group.members]
    keys += [pending_key(group_id, member_id) for member_id in group.pending]
    keys += [rebalance_key(group_id), sync_phase_key(group_id)]
    return parked, [CancelTimer(key) for key in keys]


def adoption(
    plan: Plan, record: ClassicGroupStored, protocols: Mapping[str, Protocols], *, rebalance: bool
) -> Result[object]:
    """Begin with the members of the record, Stable, or at once with a rebalance."""
    group = plan.group
    plan.record(record)
    for member in list(group.members.values()):
        if member.member_id in protocols:
            plan.record(MemberDescribed(group.group_id, replace(member, protocols=protocols[member.member_id])))
        plan.watch(member)
    if rebalance:
        prepare_rebalance(plan)
    return plan.result()
