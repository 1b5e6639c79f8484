"""ListGroups (key 16): the groups that this broker coordinates.

Versions 0–5. v1 adds throttling; v3 is the first flexible one; v4 adds states and a filter by them; v5 types and a
filter by them.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ListGroupsRequest:
    """Which groups: an empty filter lets all of them pass."""

    states_filter: list[str] = field(default_factory=list)  # v4+
    types_filter: list[str] = field(default_factory=list)  # v5+


@message
class ListedGroup:
    """One group."""

    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""  # v4+
    group_type: str = ""  # v5+


@message
class ListGroupsResponse:
    """The groups."""

    throttle_time_ms: int = 0  # v1+
    error_code: int = 0
    groups: list[ListedGroup] = field(default_factory=list)
