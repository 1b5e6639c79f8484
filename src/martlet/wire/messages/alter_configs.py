"""AlterConfigs (key 33): replace all configuration values of a resource; kept for old tools.

Versions 0–2; v2 is the first flexible one.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class AlterableConfig:
    """One value to set; values not named fall back to their defaults."""

    name: str = ""
    value: str | None = None


@message
class AlterConfigsResource:
    """The whole new configuration of one resource; types as in DescribeConfigs."""

    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field(default_factory=list)


@message
class AlterConfigsRequest:
    """Configurations to replace, or with `validate_only` to check."""

    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False


@message
class AlterConfigsResourceResponse:
    """What became of one resource."""

    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""


@message
class AlterConfigsResponse:
    """The results, one per resource."""

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
