"""The kinds of things that have settings, and which of them a request names; shared by the three configuration APIs."""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.broker.services import BrokerServices

TOPIC: Final = 2
BROKER: Final = 4


def parse_broker_name(broker: BrokerServices, name: str) -> BrokerId | None:
    """The broker a resource names: this one, or None for the cluster's defaults."""
    if not name:
        return None
    if name != str(broker.broker_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"this is broker {broker.broker_id}; ask broker {name!r} for its settings"
        )
    return broker.broker_id


def unknown_resource_type(resource_type: int) -> ApiError:
    """The error for a kind of resource that has no settings."""
    text = f"resource type {resource_type} has no settings here; 2 (topic) and 4 (broker) have"
    return ApiError(ErrorCode.INVALID_REQUEST, text)
