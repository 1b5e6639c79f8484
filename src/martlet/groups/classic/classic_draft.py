"""A handler's work on one classic group: a `Draft` with what the steps of joins, leaves and timers have in common.

The keys of the group's timers and of the requests it parks are here too.
"""

from martlet.base.errors import ErrorCode
from martlet.base.randomness import IdSource
from martlet.coordinator.draft import Draft
from martlet.coordinator.result import TimerKey, WaitKey
from martlet.groups.classic import answers
from martlet.groups.classic.classic_events import MembersRemoved
from martlet.groups.classic.classic_group import ClassicGroup, ClassicRecord
from martlet.groups.classic.member import Member
from martlet.groups.ports import GroupsOptions

_ID_PREFIX_MAX = 255
"""Characters of a client or instance id that go into a member id; the id itself must fit on the wire."""


class ClassicDraft(Draft[ClassicGroup, ClassicRecord]):
    """One handler's work on one classic group."""

    __slots__ = ("ids", "options")

    def __init__(self, group: ClassicGroup, options: GroupsOptions, ids: IdSource, now_ms: int) -> None:
        super().__init__(group, now_ms)
        self.options = options
        self.ids = ids

    def watch(self, member: Member, timeout_ms: int | None = None) -> None:
        """Start the member's session timer again."""
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.set_timer(session_key(self.state.group_id, member.member_id), delay_ms)

    def refuse_waiting(self, member_id: str, code: ErrorCode, named_id: str = "") -> None:
        """Answer whatever the member has parked with this code, so that it does not wait forever."""
        if member_id in self.state.joining:
            self.answer(join_key(self.state.group_id, member_id), answers.join_refused(code, named_id))
        if member_id in self.state.syncing:
            self.refuse_sync(member_id, code)

    def refuse_sync(self, member_id: str, code: ErrorCode) -> None:
        """Answer the member's parked Sync with this code."""
        self.answer(sync_key(self.state.group_id, member_id), answers.sync_refused(code))

    def remove(self, member_ids: list[str]) -> None:
        """Remove members, and those whose ids are pending."""
        group_id = self.state.group_id
        for member_id in member_ids:
            key = pending_key if member_id in self.state.pending else session_key
            self.cancel_timers(key(group_id, member_id))
            self.refuse_waiting(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self.record(MembersRemoved(group_id, tuple(member_ids)))

    def new_member_id(self, prefix: str) -> str:
        """A member id that no other member has, and that shows whose it is."""
        digits = self.ids.topic_id().hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return f"{prefix[:_ID_PREFIX_MAX]}-{'-'.join(parts)}"


def session_key(group_id: str, member_id: str) -> TimerKey:
    return ("session", group_id, member_id)


def pending_key(group_id: str, member_id: str) -> TimerKey:
    return ("pending", group_id, member_id)


def rebalance_key(group_id: str) -> TimerKey:
    return ("rebalance", group_id)


def sync_phase_key(group_id: str) -> TimerKey:
    return ("sync", group_id)


def join_key(group_id: str, member_id: str) -> WaitKey:
    return ("join", group_id, member_id)


def sync_key(group_id: str, member_id: str) -> WaitKey:
    return ("sync", group_id, member_id)
