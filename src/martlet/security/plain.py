"""PLAIN (RFC 4616): a name and a password in clear, so only over TLS, or on loopback where an operator says so.

Proved by: tests/unit/security/test_plain.py
"""

from typing import Final, NamedTuple

from martlet.base.secret import Secret
from martlet.security.errors import AuthenticationRefused

_MESSAGE_BYTES_MAX: Final = 2_048


class PlainLogin(NamedTuple):
    """What a client claims."""

    user: str
    password: Secret


def parse_plain(message: bytes) -> PlainLogin:
    """`authzid NUL user NUL password`; a client may speak for itself only."""
    if len(message) > _MESSAGE_BYTES_MAX:
        raise AuthenticationRefused("the PLAIN message is too long")
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise AuthenticationRefused("the PLAIN message is not UTF-8") from None
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise AuthenticationRefused("the PLAIN message is malformed")
    authorize_as, user, password = parts
    if authorize_as and authorize_as != user:
        raise AuthenticationRefused("a client may speak for itself only")
    if any(character < " " or character == "\x7f" for character in user):
        raise AuthenticationRefused("the user's name holds control characters")
    return PlainLogin(user, Secret(password))


def make_plain(user: str, password: Secret) -> bytes:
    """The client's one message."""
    return f"\0{user}\0{password.reveal()}".encode()
