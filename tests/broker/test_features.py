"""The features of the cluster: that they are announced, and what becomes of the wish to change them."""

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.raw_client import RawClient

LEVELS = {"group.version": 1, "metadata.version": 30, "share.version": 1, "transaction.version": 2}
AS_IT_IS = [FeatureUpdateKey(name, level) for name, level in LEVELS.items()]
REFUSED = [
    ("group.version", 0, "group.version cannot run at level 0: only 1 is supported"),
    ("group.version", -3, "group.version cannot run at level -3: only 1 is supported"),
    ("metadata.version", 31, "metadata.version cannot run at level 31: only 30 is supported"),
    ("metadata.version", 29, "metadata.version cannot run at level 29: only 30 is supported"),
    (
        "kraft.version",
        1,
        "there is no feature 'kraft.version' here, only group.version, metadata.version, share.version,"
        " transaction.version",
    ),
]


@pytest.mark.parametrize("version", [3, 4])
def test_each_feature_is_announced_at_the_one_level_it_runs_at(client: RawClient, version: int) -> None:
    response = client.api_versions(version)
    assert response.finalized_features_epoch > 0
    levels = {each.name: (each.min_version_level, each.max_version_level) for each in response.finalized_features}
    assert levels == {name: (level, level) for name, level in LEVELS.items()}
    assert {each.name: (each.min_version, each.max_version) for each in response.supported_features} == levels


@pytest.mark.parametrize("version", range(3))
def test_the_levels_in_force_are_accepted(client: RawClient, version: int) -> None:
    response = client.call(UpdateFeaturesRequest(feature_updates=AS_IT_IS), version)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    results = [(each.feature, each.error_code, each.error_message) for each in response.results]
    expected = [(name, 0, "NONE") for name in LEVELS]
    assert results == (expected if version < 2 else [])


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("feature", "level", "reason"), REFUSED)
def test_another_level_is_refused_for_the_whole_request_with_the_reason(
    client: RawClient, version: int, feature: str, level: int, reason: str
) -> None:
    changes = [*AS_IT_IS, FeatureUpdateKey(feature, level, allow_downgrade=True, upgrade_type=2)]
    response = client.call(UpdateFeaturesRequest(feature_updates=changes), version)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message == f"no feature was changed: {reason}"
    assert response.results == []


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_kind_of_change_is_refused(client: RawClient, version: int) -> None:
    changes = [FeatureUpdateKey("group.version", 1, upgrade_type=9)]
    response = client.call(UpdateFeaturesRequest(feature_updates=changes), version)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "9 is no upgrade type" in response.error_message
