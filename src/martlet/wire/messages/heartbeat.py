"""Heartbeat (key 12): a member of a classic group says that it is alive and learns whether a rebalance is under way.

Versions 0–4. v1 adds throttling; v3 static members; v4 is the first flexible one.
"""

from martlet.wire.message import message


@message
class HeartbeatRequest:
    """A member of a generation."""

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None  # v3+


@message
class HeartbeatResponse:
    """Zero while there is nothing to do; REBALANCE_IN_PROGRESS asks the member to join again."""

    throttle_time_ms: int = 0  # v1+
    error_code: int = 0
