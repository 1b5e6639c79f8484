"""LeaveGroup (key 13): members of a group leave, or an administrator removes them.

Versions 0–5. v1 adds throttling; v3 names several members at once, also static ones by their instance id, and answers
for each; v4 is the first flexible one; v5 adds a reason.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class MemberIdentity:
    """One member that leaves; with an empty member id the instance id says which."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None  # v5+


@message
class LeaveGroupRequest:
    """Who leaves: `member_id` until v2, `members` from v3 on."""

    group_id: str = ""
    member_id: str = ""  # until v2
    members: list[MemberIdentity] = field(default_factory=list)  # v3+


@message
class MemberResponse:
    """The answer for one member."""

    member_id: str = ""
    group_instance_id: str | None = None
    error_code: int = 0


@message
class LeaveGroupResponse:
    """The answers: an error of the class itself concerns the whole request (until v2: the one member)."""

    throttle_time_ms: int = 0  # v1+
    error_code: int = 0
    members: list[MemberResponse] = field(default_factory=list)  # v3+
