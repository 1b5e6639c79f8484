"""AlterUserScramCredentials 0: gives users SCRAM credentials, or takes them away.

- The client sends the password salted and stretched; what proves it is derived here and the rest forgotten.
- Each user succeeds or fails as a whole; a user and mechanism named twice get DUPLICATE_RESOURCE.
- Iterations outside 4,096–16,384, no salt, or a name that cannot be: UNACCEPTABLE_CREDENTIAL. A mechanism nobody knows:
  UNSUPPORTED_SASL_MECHANISM. Taking away what is not there: RESOURCE_NOT_FOUND.
- Sessions of a changed user end at once on every broker that hears of it.
"""

from collections import Counter
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import RequestContext, outcome_of
from martlet.broker.services import BrokerServices
from martlet.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
)
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)

KEY: Final = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS: Final = (0, 0)
REQUEST: Final = AlterUserScramCredentialsRequest

_MECHANISMS: Final = {1: ScramMechanism.SHA_256, 2: ScramMechanism.SHA_512}


async def handle(
    broker: BrokerServices, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Change the users one after the other."""
    names = dict.fromkeys([gone.name for gone in request.deletions] + [new.name for new in request.upsertions])
    results = []
    for name in names:
        code, text = await outcome_of(_change(broker, request, name))
        results.append(AlterUserScramCredentialsResult(name, code, text))
        if code is ErrorCode.NONE:
            broker.access.audit.changed(context.link, f"the credentials of user {name!r}")
    return AlterUserScramCredentialsResponse(results=results)


async def _change(broker: BrokerServices, request: AlterUserScramCredentialsRequest, name: str) -> None:
    deletions = [gone.mechanism for gone in request.deletions if gone.name == name]
    upsertions = [new for new in request.upsertions if new.name == name]
    named = Counter([*deletions, *(new.mechanism for new in upsertions)])
    if max(named.values()) > 1:
        raise ApiError(ErrorCode.DUPLICATE_RESOURCE, "the request names a mechanism of this user more than once")
    removed = [_mechanism(code) for code in deletions]
    given = dict(_credential(new) for new in upsertions)
    await broker.access.user_admin.change(name, removed, given)


def _mechanism(code: int) -> ScramMechanism:
    mechanism = _MECHANISMS.get(code)
    if mechanism is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"mechanism {code} is not 1 (SHA-256) or 2 (SHA-512)")
    return mechanism


def _credential(new: ScramCredentialUpsertion) -> tuple[ScramMechanism, ScramCredential]:
    mechanism = _mechanism(new.mechanism)
    if not ITERATIONS_MIN <= new.iterations <= ITERATIONS_MAX:
        text = f"{new.iterations} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    if not new.salt or len(new.salt) > 1_024 or len(new.salted_password) != mechanism.digest_bytes:
        text = f"a credential has a salt, and a salted password of {mechanism.digest_bytes} bytes"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)
    return mechanism, credential_of_salted(mechanism, new.salted_password, new.salt, new.iterations)
