"""IncrementalAlterConfigs (key 44): change single configuration values.

Versions 0–1; v1 is the first flexible one. Operations: 0 set, 1 delete, 2 append, 3 subtract.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class AlterableConfig:
    """One change."""

    name: str = ""
    config_operation: int = 0
    value: str | None = None


@message
class AlterConfigsResource:
    """The changes to one resource; types as in DescribeConfigs."""

    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field(default_factory=list)


@message
class IncrementalAlterConfigsRequest:
    """Changes to make, or with `validate_only` to check."""

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
class IncrementalAlterConfigsResponse:
    """The results, one per resource."""

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)
