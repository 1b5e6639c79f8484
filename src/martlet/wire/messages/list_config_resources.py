"""ListConfigResources (key 74): which things have settings of their own; v0 asked for client metrics only.

Versions 0–1, both flexible. Resource types as in DescribeConfigs.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ListConfigResourcesRequest:
    """The kinds asked for; the empty list asks for all."""

    resource_types: list[int] = field(default_factory=list)  # v1+


@message
class ConfigResource:
    """One thing that has, or may have, settings."""

    resource_name: str = ""
    resource_type: int = 16  # v1+


@message
class ListConfigResourcesResponse:
    """The things of these kinds."""

    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: list[ConfigResource] = field(default_factory=list)
