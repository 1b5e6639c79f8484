"""DescribeSubscriptions (key 12113, our own): what subscriptions there are and what they set.

Version 0, flexible. Any broker.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from martlet.wire.field_table import Field, Table
from martlet.wire.message import message


@message
class DescribeSubscriptionsRequest:
    """Which."""

    names: list[str] | None = None
    """None: all."""


@message
class SetValue:
    """One setting of a subscription."""

    name: str = ""
    value: str = ""


@message
class DescribedSubscription:
    """As it stands in the metadata."""

    name: str = ""
    error_code: int = 0
    error_message: str | None = None
    id: str = ""
    topics: list[str] = dataclasses.field(default_factory=list)
    patterns: list[str] = dataclasses.field(default_factory=list)
    covered: list[str] = dataclasses.field(default_factory=list)
    """The topics that it covers now."""
    settings: list[SetValue] = dataclasses.field(default_factory=list)
    created_at_ms: int = 0
    is_paused: bool = False


@message
class DescribeSubscriptionsResponse:
    """By name."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    subscriptions: list[DescribedSubscription] = dataclasses.field(default_factory=list)


_SET_VALUE: Final = Table(SetValue, Field("name", "string"), Field("value", "string"))
_DESCRIBED_SUBSCRIPTION: Final = Table(
    DescribedSubscription,
    Field("name", "string"),
    Field("error_code", "h"),
    Field("error_message", "string", is_nullable=True),
    Field("id", "string"),
    Field("topics", "string", is_array=True),
    Field("patterns", "string", is_array=True),
    Field("covered", "string", is_array=True),
    Field("settings", _SET_VALUE, is_array=True),
    Field("created_at_ms", "q"),
    Field("is_paused", "?"),
)

TABLES: Final[Mapping[type[Any], Table]] = {
    DescribeSubscriptionsRequest: Table(
        DescribeSubscriptionsRequest, Field("names", "string", is_array=True, is_nullable=True)
    ),
    DescribeSubscriptionsResponse: Table(
        DescribeSubscriptionsResponse,
        Field("throttle_time_ms", "i"),
        Field("error_code", "h"),
        Field("error_message", "string", is_nullable=True),
        Field("subscriptions", _DESCRIBED_SUBSCRIPTION, is_array=True),
    ),
}
