"""SaslAuthenticate 0–2: one round of the mechanism that the handshake has chosen.

- v1+: the last answer says for how long the session lasts; 0 for as long as the connection.
- A refusal is SASL_AUTHENTICATION_FAILED with one text for all reasons, after a while, and ends the connection.
- An authenticated client that has not begun again with a handshake gets ILLEGAL_SASL_STATE and goes on.
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.ground.session import SessionState
from martlet.broker.services import BrokerServices
from martlet.security.errors import REFUSED_TEXT, AuthenticationRefused
from martlet.security.sasl import Proven
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

KEY: Final = ApiKey.SASL_AUTHENTICATE
VERSIONS: Final = (0, 2)
REQUEST: Final = SaslAuthenticateRequest


async def handle(
    broker: BrokerServices, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Take the round further."""
    link = context.link
    session = link.session
    if session.state is SessionState.AUTHENTICATED:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "a handshake comes first")
    try:
        step = await broker.access.authentication.step(link, request.auth_bytes)
    except AuthenticationRefused as refusal:
        await broker.access.authentication.refused(link, refusal)
        session.fail()
        return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, REFUSED_TEXT)
    lifetime_ms = broker.access.authentication.lifetime_ms(link) if isinstance(step, Proven) else 0
    return SaslAuthenticateResponse(auth_bytes=step.answer, session_lifetime_ms=lifetime_ms)
