"""The features of the cluster, as ApiVersions names them and UpdateFeatures would change them.

Each runs at one level, which is the lowest and the highest supported and the one in force, so there is nothing to
change. `metadata.version` is there for tools that want one: the metadata have a format of our own, and 30 (4.3-IV0) is
the level of the Kafka whose protocol is spoken here.
"""

from collections.abc import Mapping
from typing import Final

from martlet.base.errors import ApiError, ErrorCode

LEVELS: Final[Mapping[str, int]] = {
    "group.version": 1,  # the consumer protocol of KIP-848
    "metadata.version": 30,
    "share.version": 1,  # share groups (KIP-932)
    "transaction.version": 2,  # partitions are added by the publish itself, every end raises the epoch (KIP-890)
}


def check_level(feature: str, level: int) -> None:
    """Raise INVALID_UPDATE_VERSION unless the feature runs at this level."""
    if feature not in LEVELS:
        known = ", ".join(LEVELS)
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"there is no feature {feature[:249]!r} here, only {known}")
    if level != LEVELS[feature]:
        detail = f"{feature} cannot run at level {level}: only {LEVELS[feature]} is supported"
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, detail)
