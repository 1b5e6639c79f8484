"""DescribeUserScramCredentials 0: who has which credentials, by mechanism and iterations, never what is in them.

No users, or null, asks for all; one that there is not gets RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE.
"""

from collections import Counter
from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.cluster.records import UserRecord
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

KEY: Final = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
VERSIONS: Final = (0, 0)
REQUEST: Final = DescribeUserScramCredentialsRequest

CODES: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


def handle(
    broker: BrokerServices, request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Describe the users asked for."""
    users = broker.image.users()
    asked = Counter(user.name for user in request.users or ())
    results = [_describe(name, times, users.get(name)) for name, times in asked.items()]
    if not asked:
        results = [_describe(name, 1, users[name]) for name in sorted(users)]
    return DescribeUserScramCredentialsResponse(results=results)


def _describe(name: str, times: int, user: UserRecord | None) -> DescribeUserScramCredentialsResult:
    if times > 1:
        text = "the request names this user more than once"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, text)
    if user is None:
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, "there is no such user")
    infos = [
        CredentialInfo(CODES[mechanism], stored.iterations) for mechanism, stored in sorted(user.credentials.items())
    ]
    return DescribeUserScramCredentialsResult(name, credential_infos=infos)
