"""ApiVersions 0–4: what this broker serves, computed from the handlers.

- Works before anything else on a connection. A version we do not know is answered in the layout of v0 with error 35
  and the full table, so that the client can try again; the request's body is not read then.
- v3+: the client's software name and version must be plain words, else INVALID_REQUEST.
- v3+ features: `group.version` 1, the consumer protocol of KIP-848; transactions and queues will add theirs. In v3
  features whose lowest level is 0 are left out of the supported ones, because older Java clients choke on them.
"""

import re
from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.services import BrokerServices
from martlet.broker.serving.request import RequestContext
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

KEY: Final = ApiKey.API_VERSIONS
VERSIONS: Final = (0, 4)
REQUEST: Final = ApiVersionsRequest

_SOFTWARE_WORD: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")
_FIRST_VERSION_WITH_SOFTWARE: Final = 3
_FIRST_VERSION_WITH_LEVEL_0: Final = 4
_SUPPORTED: Final = (SupportedFeatureKey("group.version", 0, 1),)
_FINALIZED: Final = (FinalizedFeatureKey("group.version", 1, 1),)


def handle(broker: BrokerServices, request: ApiVersionsRequest | None, context: RequestContext) -> ApiVersionsResponse:
    """The table of APIs; `request` is None when its version is not one of ours."""
    keys = [
        ApiVersion(api_key=api.key, min_version=api.advertised.first, max_version=api.advertised.last)
        for _, api in sorted(broker.registry.items())
    ]
    code = ErrorCode.NONE
    if request is None:
        code = ErrorCode.UNSUPPORTED_VERSION
    elif context.version >= _FIRST_VERSION_WITH_SOFTWARE and not (
        _SOFTWARE_WORD.fullmatch(request.client_software_name)
        and _SOFTWARE_WORD.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        error_code=code,
        api_keys=keys,
        supported_features=[
            feature for feature in _SUPPORTED if feature.min_version or context.version >= _FIRST_VERSION_WITH_LEVEL_0
        ],
        finalized_features_epoch=broker.image.revision,
        finalized_features=list(_FINALIZED),
    )
