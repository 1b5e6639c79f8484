"""ApiVersions 0–4: what this broker serves, computed from the handlers.

- Works before anything else on a connection. A version we do not know is answered in the layout of v0 with error 35
  and, as in Kafka, our versions of this one API, so that the client can try again; the request's body is not read then.
- v3+: the client's software name and version must be plain words, else INVALID_REQUEST.
- Our own APIs are listed for our own clients only, known by their name: kafka-python ends at a key it does not know.
- v3+: the features (`administration/features.py`). None has a lowest level of 0, which older Java clients choke on in
  v3. The epoch is the revision of the metadata that this broker has reached; DescribeQuorum asks other brokers for it.
"""

import re
from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.administration.features import LEVELS
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import FIRST_OWN_KEY, ApiKey
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
_OWN_CLIENT: Final = "martlet"


def handle(broker: BrokerServices, request: ApiVersionsRequest | None, context: RequestContext) -> ApiVersionsResponse:
    """The table of APIs; `request` is None when its version is not one of ours."""
    keys = [
        ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
        for key, versions in sorted(broker.api_versions.items())
    ]
    if request is None:
        own = [entry for entry in keys if entry.api_key == KEY]
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)
    if context.version >= _FIRST_VERSION_WITH_SOFTWARE and not (
        _SOFTWARE_WORD.fullmatch(request.client_software_name)
        and _SOFTWARE_WORD.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if context.version < _FIRST_VERSION_WITH_SOFTWARE or request.client_software_name != _OWN_CLIENT:
        keys = [entry for entry in keys if entry.api_key < FIRST_OWN_KEY]
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=[SupportedFeatureKey(name, level, level) for name, level in LEVELS.items()],
        finalized_features_epoch=broker.image.revision,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in LEVELS.items()],
    )
