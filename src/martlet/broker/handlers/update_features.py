"""UpdateFeatures 0–2: change the levels of features. Each feature has one level here, so a change is always refused.

- The level that is in force is accepted, as in Kafka; every other one and any other feature is INVALID_UPDATE_VERSION.
- One refusal refuses the request: the error stands for all of it and names the feature. v0–1 list the features, but
  only when all are accepted.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.administration.features import check_level
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

KEY: Final = ApiKey.UPDATE_FEATURES
VERSIONS: Final = (0, 2)
REQUEST: Final = UpdateFeaturesRequest

_UPGRADE_TYPES: Final = (1, 2, 3)


def handle(broker: BrokerServices, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Accept what is so already, refuse the rest."""
    try:
        for update in request.feature_updates:
            check_level(update.feature, update.max_version_level)
            if update.upgrade_type not in _UPGRADE_TYPES:
                detail = f"{update.upgrade_type} is no upgrade type: 1 upgrades, 2 and 3 downgrade"
                raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, detail)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=f"no feature was changed: {error.detail}")
    results = [
        UpdatableFeatureResult(feature=name, error_message=ErrorCode.NONE.name)
        for name in dict.fromkeys(update.feature for update in request.feature_updates)
    ]
    return UpdateFeaturesResponse(results=results)
