"""SaslAuthenticate (key 36): one round of the mechanism that the handshake has chosen.

Versions 0–2. v1 adds the time for which the session lasts; v2 is the first flexible one.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class SaslAuthenticateRequest:
    """What the mechanism sends; never shown, because it may hold a password."""

    auth_bytes: bytes = field(default=b"", repr=False)


@message
class SaslAuthenticateResponse:
    """What the mechanism answers."""

    error_code: int = 0
    error_message: str | None = None
    auth_bytes: bytes = field(default=b"", repr=False)
    session_lifetime_ms: int = 0  # v1+
