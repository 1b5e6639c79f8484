"""SaslHandshake 1: the client names the mechanism by which it proves who it is.

- A mechanism that is not offered gets UNSUPPORTED_SASL_MECHANISM with those that are, and the connection ends.
- A client that is authenticated may begin again over the same connection (KIP-368), once a second at most.
- Through a listener without SASL, or out of turn: ILLEGAL_SASL_STATE.
Deviation: version 0, after which bare tokens follow, is not served; it is advertised, because librdkafka up to 2.0
takes SASL for missing otherwise, and then sends version 1 all the same.
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.ground.session import SessionState
from martlet.broker.services import BrokerServices
from martlet.security.errors import AuthenticationRefused
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

KEY: Final = ApiKey.SASL_HANDSHAKE
VERSIONS: Final = (1, 1)
ADVERTISED: Final = (0, 1)
REQUEST: Final = SaslHandshakeRequest

_AGAIN_MS_MIN: Final = 1_000


def handle(broker: BrokerServices, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Choose, or refuse."""
    link = context.link
    session = link.session
    if not link.listener.protocol.authenticates:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
    names = [mechanism.value for mechanism in broker.access.authentication.offered(link.listener)]
    if session.state is SessionState.AUTHENTICATED:
        if broker.clock.monotonic_ms() - session.authenticated_at_ms < _AGAIN_MS_MIN:
            return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)
        session.begin_again()
    try:
        broker.access.authentication.exchange(link).choose(request.mechanism)
    except AuthenticationRefused as refusal:
        broker.access.authentication.note_refusal(link, refusal)
        session.fail()
        is_offered = request.mechanism in names
        code = ErrorCode.ILLEGAL_SASL_STATE if is_offered else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(code, names)
    return SaslHandshakeResponse(mechanisms=names)
