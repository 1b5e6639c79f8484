"""SaslHandshake (key 17): the client names the mechanism by which it will prove who it is.

Versions 0–1, never flexible. v0 is followed by bare tokens instead of SaslAuthenticate requests.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class SaslHandshakeRequest:
    """The mechanism chosen."""

    mechanism: str = ""


@message
class SaslHandshakeResponse:
    """Whether it is offered, and all that are."""

    error_code: int = 0
    mechanisms: list[str] = field(default_factory=list)
