"""ApiVersions (key 18): which APIs and versions the broker speaks; the first request of every client.

Versions 0–4. v3 adds the client's name and version to the request and the feature levels to the response; v4 lets the
response name features whose lowest level is 0. A request of a version the broker does not know is answered in the
layout of v0, and the response's header is always version 0: see `wire.headers`.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ApiVersionsRequest:
    """What the client says about itself; all versions before 3 are empty."""

    client_software_name: str = ""
    client_software_version: str = ""


@message
class ApiVersion:
    """The range of versions served for one API."""

    api_key: int = 0
    min_version: int = 0
    max_version: int = 0


@message
class SupportedFeatureKey:
    """The levels of one feature that this broker could run at."""

    name: str = ""
    min_version: int = 0
    max_version: int = 0


@message
class FinalizedFeatureKey:
    """The levels of one feature that the cluster has agreed on."""

    name: str = ""
    max_version_level: int = 0
    min_version_level: int = 0


@message
class ApiVersionsResponse:
    """The broker's offer; the feature fields are tagged, so at their defaults they take no bytes."""

    error_code: int = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: int = 0  # v1+
    supported_features: list[SupportedFeatureKey] = field(default_factory=list)  # v3+
    finalized_features_epoch: int = -1  # v3+
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list)  # v3+
    zk_migration_ready: bool = False  # v3+
