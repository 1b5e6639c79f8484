"""DescribeConfigs (key 32): configuration values in effect and where they come from.

Versions 1–4. v3 adds types and documentation; v4 is the first flexible one. Resource types: 2 topic, 4 broker,
8 logger, 16 client metrics, 32 group.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class DescribeConfigsResource:
    """One resource; None for the keys asks for all of them, and so, as in Kafka, does the empty list."""

    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = field(default_factory=list)


@message
class DescribeConfigsRequest:
    """The resources asked for."""

    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = False  # v3+


@message
class DescribeConfigsSynonym:
    """A value that would apply if the ones before it were unset."""

    name: str = ""
    value: str | None = None
    source: int = 0


@message
class DescribeConfigsResourceResult:
    """One configuration value."""

    name: str = ""
    value: str | None = None
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: int = 0  # v3+
    documentation: str | None = None  # v3+


@message
class DescribeConfigsResult:
    """The configuration of one resource."""

    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)


@message
class DescribeConfigsResponse:
    """The results, one per resource asked for."""

    throttle_time_ms: int = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)
