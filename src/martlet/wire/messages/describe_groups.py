"""DescribeGroups (key 15): state, protocol and members of classic groups.

Versions 0–6. v1 adds throttling; v3 authorized operations; v4 static members; v5 is the first flexible one; v6 answers
GROUP_ID_NOT_FOUND with a text for a group that does not exist, where older ones describe a group that is Dead.
"""

from dataclasses import field

from martlet.wire.message import message
from martlet.wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED


@message
class DescribeGroupsRequest:
    """The groups wanted."""

    groups: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False  # v3+


@message
class DescribedGroupMember:
    """One member; its metadata and assignment are in the words of the protocol."""

    member_id: str = ""
    group_instance_id: str | None = None  # v4+
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@message
class DescribedGroup:
    """One group; `protocol_data` is the name of the protocol its members agreed on."""

    error_code: int = 0
    error_message: str | None = None  # v6+
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: int = OPERATIONS_NOT_REQUESTED  # v3+


@message
class DescribeGroupsResponse:
    """The answers, one per group."""

    throttle_time_ms: int = 0  # v1+
    groups: list[DescribedGroup] = field(default_factory=list)
