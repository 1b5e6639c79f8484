"""A plan is what a handler is about to return: it collects records, timers and answers while working on a draft.

Every record goes through `record`, which carries it out on the draft at once, so that the next step of the handler
sees its effect; the group itself is changed later, by `replay`.
"""

from martlet.base.errors import ErrorCode
from martlet.base.randomness import IdSource
from martlet.coordinator.result import Answer, CancelTimer, Result, SetTimer, TimerKey, WaitKey
from martlet.groups.classic import answers
from martlet.groups.classic.classic_events import ClassicEvent, MembersRemoved
from martlet.groups.classic.classic_group import ClassicGroup
from martlet.groups.classic.member import Member
from martlet.groups.ports import GroupsOptions
from martlet.groups.records import ClassicGroupStored

_ID_PREFIX_MAX = 255
"""Characters of a client or instance id that go into a member id; the id itself must fit on the wire."""


class Plan:
    """One handler's work on one group; `group` is the draft."""

    __slots__ = ("answers", "group", "ids", "now_ms", "options", "records", "timers")

    def __init__(self, group: ClassicGroup, options: GroupsOptions, ids: IdSource, now_ms: int) -> None:
        self.group = group
        self.options = options
        self.ids = ids
        self.now_ms = now_ms
        self.records: list[object] = []
        self.timers: list[SetTimer | CancelTimer] = []
        self.answers: list[Answer] = []

    def result(self, response: object = None) -> Result[object]:
        return Result(response, self.records, self.timers, self.answers)

    def record(self, record: ClassicEvent | ClassicGroupStored) -> None:
        """Note what happens, and let it happen to the draft."""
        if isinstance(record, ClassicGroupStored):
            self.group.restore(record)
        else:
            self.group.apply(record)
        self.records.append(record)

    def store(self, record: ClassicGroupStored) -> None:
        """Note the record with which the plan ends; the draft, of no use from here on, is left as it is."""
        self.records.append(record)

    def watch(self, member: Member, timeout_ms: int | None = None) -> None:
        """Time the member's session anew."""
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.timers.append(SetTimer(session_key(self.group.group_id, member.member_id), delay_ms))

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        self.timers.append(SetTimer(key, delay_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self.timers.append(CancelTimer(key))

    def refuse_waiting(self, member_id: str, code: ErrorCode, told_id: str = "") -> None:
        """Answer whatever the member has parked with this code, so that it does not wait forever."""
        if member_id in self.group.joining:
            refusal = answers.join_refused(code, told_id)
            self.answers.append(Answer(join_key(self.group.group_id, member_id), refusal))
        if member_id in self.group.syncing:
            self.refuse_sync(member_id, code)

    def refuse_sync(self, member_id: str, code: ErrorCode) -> None:
        """Answer the member's parked Sync with this code."""
        self.answers.append(Answer(sync_key(self.group.group_id, member_id), answers.sync_refused(code)))

    def remove(self, member_ids: list[str]) -> None:
        """Put members out, and those whose ids are pending."""
        group_id = self.group.group_id
        for member_id in member_ids:
            key = pending_key if member_id in self.group.pending else session_key
            self.cancel_timer(key(group_id, member_id))
            self.refuse_waiting(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self.record(MembersRemoved(group_id, tuple(member_ids)))

    def new_member_id(self, prefix: str) -> str:
        """A member id nobody has, which shows whose it is."""
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
