"""SyncGroup (key 14): the leader of a classic group hands in the assignments, every member fetches its own.

Versions 0–5. v1 adds throttling; v3 static members; v4 is the first flexible one; v5 adds protocol type and name in
both directions, so that a member can tell that it talks about the same generation.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class SyncGroupRequestAssignment:
    """What one member gets, in the words of the protocol."""

    member_id: str = ""
    assignment: bytes = b""


@message
class SyncGroupRequest:
    """A member of a generation; `assignments` is empty unless it leads."""

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None  # v3+
    protocol_type: str | None = None  # v5+
    protocol_name: str | None = None  # v5+
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)


@message
class SyncGroupResponse:
    """The assignment of the member that asked."""

    throttle_time_ms: int = 0  # v1+
    error_code: int = 0
    protocol_type: str | None = None  # v5+
    protocol_name: str | None = None  # v5+
    assignment: bytes = b""
