"""UpdateFeatures (key 57): change the levels at which features of the cluster run.

Versions 0–2. v1 replaces the permission to downgrade by the kind of change and adds the wish to check only; v2 answers
for the whole request, without a result for each feature.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class FeatureUpdateKey:
    """One feature and the level wanted; 0 turns it off."""

    feature: str = ""
    max_version_level: int = 0
    allow_downgrade: bool = False  # v0
    upgrade_type: int = 1  # v1+: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade


@message
class UpdateFeaturesRequest:
    """The changes, carried out together or not at all."""

    timeout_ms: int = 60_000
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)
    validate_only: bool = False  # v1+


@message
class UpdatableFeatureResult:
    """What became of one feature."""

    feature: str = ""
    error_code: int = 0
    error_message: str | None = None


@message
class UpdateFeaturesResponse:
    """The outcome of the whole request."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    results: list[UpdatableFeatureResult] = field(default_factory=list)  # v0–v1
