"""The kinds of things that have settings, and which of them a request names; shared by the configuration APIs."""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

_GROUP_BYTES_MAX: Final = 4_096


def parse_broker_name(me: BrokerId, name: str) -> BrokerId | None:
    """The broker a resource names: this one, or None for the cluster's defaults."""
    if not name:
        return None
    if name != str(me):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {me}; ask broker {name!r} for its settings")
    return me


def check_group_name(name: str) -> None:
    """Refuse the empty name: unlike brokers, groups have no defaults of their own that a tool can change."""
    if not name:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "a group needs a name; there are no defaults for all groups to change"
        )
    if len(name.encode()) > _GROUP_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a group's name has at most {_GROUP_BYTES_MAX} bytes")


def unknown_resource_type(resource_type: int) -> ApiError:
    """The error for a kind of resource that has no settings."""
    text = f"resource type {resource_type} has no settings here; 2 (topic), 4 (broker) and 32 (group) have"
    return ApiError(ErrorCode.INVALID_REQUEST, text)
