"""ApiVersions without two of the four tagged fields."""

from dataclasses import dataclass


@dataclass(slots=True)
class ApiVersionsResponse:
    """Keeps the tagged fields 1 and 3."""

    finalized_features_epoch: int = -1
    zk_migration_ready: bool = False
