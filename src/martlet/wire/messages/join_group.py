"""JoinGroup (key 11): a member of a classic group enters it, or comes back for the next generation.

Versions 0–9. v1 adds the rebalance timeout (in v0 it equals the session timeout); v2 throttling; from v4 on a new
member's first attempt is refused with MEMBER_ID_REQUIRED and the id to come back with; v5 adds static members; v6 is
the first flexible one; v7 adds the protocol type to the answer and allows null for the protocol; v8 a reason; v9 lets
the coordinator tell the leader to keep the assignment there is.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class JoinGroupRequestProtocol:
    """One assignor the member knows, with what that assignor needs to know of the member."""

    name: str = ""
    metadata: bytes = b""


@message
class JoinGroupRequest:
    """Who wants in, to which group, with which protocols (best first); an empty member id is a new member."""

    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1  # v1+
    member_id: str = ""
    group_instance_id: str | None = None  # v5+
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: str | None = None  # v8+


@message
class JoinGroupResponseMember:
    """One member of the generation, with its metadata for the chosen protocol."""

    member_id: str = ""
    group_instance_id: str | None = None  # v5+
    metadata: bytes = b""


@message
class JoinGroupResponse:
    """The generation that begins; `members` is filled for the leader only. Null as protocol needs v7."""

    throttle_time_ms: int = 0  # v2+
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None  # v7+
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False  # v9+
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)
