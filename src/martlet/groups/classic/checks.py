"""What a request of the classic protocol must satisfy before the group's state matters; each raises `ApiError`.

The order of the checks is the callers'; it is Kafka's, so that a request with two faults gets the same answer.
"""

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.classic.classic_group import ClassicGroup
from martlet.groups.classic.member import Protocols, protocols_bytes
from martlet.groups.ports import GroupsOptions
from martlet.wire.messages.join_group import JoinGroupRequest
from martlet.wire.messages.sync_group import SyncGroupRequest

GROUP_BYTES_MAX = 6 * 1_048_576
"""What the metadata of all members may take, and their assignments again: a group is stored as one record."""

_NAME_BYTES_MAX = 32_767
"""Of a text in the group's record; newer versions of the request could carry longer ones."""


def check_group_id(group_id: str, options: GroupsOptions) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    if len(group_id.encode()) > options.group_id_bytes_max:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, f"the group id is longer than {options.group_id_bytes_max} bytes")


def check_session_timeout(session_timeout_ms: int, options: GroupsOptions) -> None:
    if not options.min_session_timeout_ms <= session_timeout_ms <= options.max_session_timeout_ms:
        raise ApiError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"a session timeout of {session_timeout_ms} ms is not between"
            f" {options.min_session_timeout_ms} and {options.max_session_timeout_ms} ms",
        )


def check_metadata(request: JoinGroupRequest, protocols: Protocols, options: GroupsOptions) -> None:
    """What the member says about itself can be stored, name by name and as a whole."""
    names = [request.protocol_type, request.group_instance_id or "", *(name for name, _ in protocols)]
    if any(len(name.encode()) > _NAME_BYTES_MAX for name in names):
        detail = f"a protocol's or instance's name is longer than {_NAME_BYTES_MAX} bytes"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)
    size = protocols_bytes(protocols)
    if size > options.member_metadata_bytes_max:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the member's protocols take {size} bytes; at most {options.member_metadata_bytes_max} are allowed",
        )


def check_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> None:
    """The member is in the group, and its instance id is still its own."""
    if instance_id is not None:
        holder = group.instances.get(instance_id)
        if holder is None:
            detail = f"group {group.group_id!r} has no member with instance id {instance_id!r}"
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, detail)
        if holder != member_id:
            detail = f"instance id {instance_id!r} belongs to another member of group {group.group_id!r} by now"
            raise ApiError(ErrorCode.FENCED_INSTANCE_ID, detail)
    if member_id not in group.members:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id!r} has no member {member_id!r}")


def check_generation(group: ClassicGroup, generation: int) -> None:
    if generation != group.generation:
        detail = f"group {group.group_id!r} is at generation {group.generation}, not {generation}"
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, detail)


def check_protocol_named(request: SyncGroupRequest, version: int) -> None:
    """From v5 on a Sync says which protocol it is about."""
    if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol's type or name is missing")


def check_protocol_agrees(group: ClassicGroup, request: SyncGroupRequest) -> None:
    for asked, chosen in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol_name)):
        if asked is not None and chosen is not None and asked != chosen:
            detail = f"group {group.group_id!r} works with {chosen!r}, not {asked!r}"
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, detail)


def check_supported(group: ClassicGroup, protocol_type: str, protocols: Protocols) -> None:
    if not group.supports(protocol_type, protocols):
        detail = f"group {group.group_id!r} has no protocol in common with the member's {protocol_type!r} protocols"
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, detail)


def check_assignments(group: ClassicGroup, assignments: dict[str, bytes], options: GroupsOptions) -> None:
    sizes = [len(assignments.get(member_id, b"")) for member_id in group.members]
    if max(sizes, default=0) > options.member_metadata_bytes_max or sum(sizes) > GROUP_BYTES_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"an assignment may take {options.member_metadata_bytes_max} bytes, all together {GROUP_BYTES_MAX}",
        )
