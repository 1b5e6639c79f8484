"""Who a connection speaks for, and what it may request before that is known.

A connection through a listener that authenticates begins UNAUTHENTICATED. A client whose session ends proves its
identity again over the same connection (KIP-368): meanwhile it may request nothing else.

Invariants: SRV-5 a connection is served only what its state allows (`may_serve`), and states follow each other only as
`_NEXT` says; SRV-6 no request is open while the principal changes: the requests that authenticate start when all
earlier ones are answered, and later ones start after them (SRV-2), so a request may read the principal at any time.

Proved by: tests/unit/broker/ground/test_session.py, tests/unit/broker/serving/test_connection_session.py
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from martlet.base.invariant import invariant
from martlet.base.principals import ANONYMOUS, Principal
from martlet.security.authorizer import Viewer
from martlet.security.sasl import SaslExchange
from martlet.wire.api_keys import ApiKey


class SessionState(Enum):
    """How far the authentication of a connection has come."""

    UNAUTHENTICATED = "not authenticated yet"
    AUTHENTICATED = "authenticated"
    REAUTHENTICATING = "authenticating again"
    FAILED = "refused"


_NEXT: Final = {
    SessionState.UNAUTHENTICATED: frozenset({SessionState.AUTHENTICATED, SessionState.FAILED}),
    SessionState.AUTHENTICATED: frozenset({SessionState.REAUTHENTICATING}),
    SessionState.REAUTHENTICATING: frozenset({SessionState.AUTHENTICATED, SessionState.FAILED}),
    SessionState.FAILED: frozenset[SessionState](),
}

_SERVED: Final = {
    SessionState.UNAUTHENTICATED: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}),
    SessionState.REAUTHENTICATING: frozenset({ApiKey.SASL_AUTHENTICATE}),
    SessionState.FAILED: frozenset[ApiKey](),
}
"""What may be requested in the states that do not allow everything."""
_PROVING: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_UNKNOWN_REQUESTS_MAX: Final = 12
"""Two for versions, two handshakes, eight rounds: more than any client needs."""


class Session:
    """Owned by a connection, reached by its requests through their `Link`."""

    __slots__ = (
        "_on_authenticated",
        "_requests_left",
        "authenticated_at_ms",
        "exchange",
        "expires_at_ms",
        "principal",
        "state",
        "viewer",
    )

    def __init__(
        self,
        state: SessionState = SessionState.AUTHENTICATED,
        on_authenticated: Callable[[], None] | None = None,
    ) -> None:
        """`on_authenticated` is called each time the client has proven who it is."""
        self.state = state
        self.principal = ANONYMOUS
        self.authenticated_at_ms = 0
        self.expires_at_ms: int | None = None
        """When the client must have proven again who it is, by the clock that never goes back."""
        self.exchange: SaslExchange | None = None
        self.viewer: Viewer | None = None
        """What the client may do; made by the access rules when they are first asked."""
        self._on_authenticated = on_authenticated
        self._requests_left = _UNKNOWN_REQUESTS_MAX

    def may_serve(self, api_key: int) -> bool:
        """Whether a request of that API may be served now."""
        served = _SERVED.get(self.state)
        return served is None or api_key in served

    def admits(self, api_key: int) -> bool:
        """The same for a request that has come; a client that must prove who it is has few of them."""
        self._requests_left -= 1
        return self._requests_left >= 0 and self.may_serve(api_key)

    def has_expired(self, now_ms: int, api_key: int) -> bool:
        """Whether the client should have proven again who it is before this request."""
        return self.expires_at_ms is not None and now_ms > self.expires_at_ms and api_key not in _PROVING

    def authenticated(self, principal: Principal, expires_at_ms: int | None = None, now_ms: int = 0) -> None:
        """The client has proven who it is."""
        self._enter(SessionState.AUTHENTICATED)
        self.identified(principal)
        self.expires_at_ms = expires_at_ms
        self.authenticated_at_ms = now_ms
        self._requests_left = _UNKNOWN_REQUESTS_MAX
        if self._on_authenticated is not None:
            self._on_authenticated()

    def identified(self, principal: Principal) -> None:
        """The client is known by other means than its requests, such as its certificate."""
        self.principal = principal
        self.viewer = None

    def begin_again(self) -> None:
        """The client is about to prove again who it is."""
        self._enter(SessionState.REAUTHENTICATING)

    def fail(self) -> None:
        """The client could not prove who it is; the connection serves nothing any more."""
        self._enter(SessionState.FAILED)

    def _enter(self, state: SessionState) -> None:
        invariant(state in _NEXT[self.state], "SRV-5: session states follow each other in their order only")
        self.state = state
