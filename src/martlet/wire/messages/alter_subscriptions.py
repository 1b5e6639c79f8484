"""AlterSubscriptions (key 12112, our own): subscriptions are made, altered, paused and deleted.

Version 0, flexible. Any broker; answered when the metadata has it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from martlet.wire.field_table import Field, Table
from martlet.wire.message import message


@message
class SubscriptionSetting:
    """One setting; without a value it is taken away."""

    name: str = ""
    value: str | None = None


@message
class AlteredSubscription:
    """What is to become of one; what is None stays as it is."""

    name: str = ""
    operation: int = 0
    """0 create, 1 alter, 2 delete."""
    topics: list[str] | None = None
    patterns: list[str] | None = None
    settings: list[SubscriptionSetting] = dataclasses.field(default_factory=list)
    paused: int = -1
    """-1 as it is, 0 goes on, 1 paused."""


@message
class AlterSubscriptionsRequest:
    """Each stands for itself."""

    subscriptions: list[AlteredSubscription] = dataclasses.field(default_factory=list)
    validate_only: bool = False


@message
class AlteredSubscriptionResult:
    """In the order of the request."""

    name: str = ""
    error_code: int = 0
    error_message: str | None = None


@message
class AlterSubscriptionsResponse:
    """What became of each."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    results: list[AlteredSubscriptionResult] = dataclasses.field(default_factory=list)


_SUBSCRIPTION_SETTING: Final = Table(
    SubscriptionSetting, Field("name", "string"), Field("value", "string", is_nullable=True)
)
_ALTERED_SUBSCRIPTION: Final = Table(
    AlteredSubscription,
    Field("name", "string"),
    Field("operation", "h"),
    Field("topics", "string", is_array=True, is_nullable=True),
    Field("patterns", "string", is_array=True, is_nullable=True),
    Field("settings", _SUBSCRIPTION_SETTING, is_array=True),
    Field("paused", "h"),
)
_ALTERED_SUBSCRIPTION_RESULT: Final = Table(
    AlteredSubscriptionResult,
    Field("name", "string"),
    Field("error_code", "h"),
    Field("error_message", "string", is_nullable=True),
)

TABLES: Final[Mapping[type[Any], Table]] = {
    AlterSubscriptionsRequest: Table(
        AlterSubscriptionsRequest,
        Field("subscriptions", _ALTERED_SUBSCRIPTION, is_array=True),
        Field("validate_only", "?"),
    ),
    AlterSubscriptionsResponse: Table(
        AlterSubscriptionsResponse,
        Field("throttle_time_ms", "i"),
        Field("error_code", "h"),
        Field("error_message", "string", is_nullable=True),
        Field("results", _ALTERED_SUBSCRIPTION_RESULT, is_array=True),
    ),
}
