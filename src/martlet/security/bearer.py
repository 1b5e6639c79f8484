"""OAUTHBEARER (RFC 7628): how a token travels; what makes one valid is in `tokens.py`.

A refused token is answered with a JSON status in a successful round; the client then sends one byte, and only that is
refused.

Proved by: tests/unit/security/test_bearer.py
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from martlet.base.secret import Secret
from martlet.security.errors import AuthenticationRefused

TOKEN_BYTES_MAX: Final = 24_576
FAILURE_STATUS: Final = b'{"status":"invalid_token"}'
KVSEP: Final = b"\x01"
"""What a client sends to acknowledge that its token was refused."""

_MESSAGE: Final = re.compile(r"n,(?:a=([^,]*))?,\x01((?:[A-Za-z]+=[ -~\t\r\n]*\x01)+)\x01")
_BEARER: Final = re.compile(r"(?i:bearer) +([-._~+/A-Za-z0-9]+=*)")


class BearerLogin(NamedTuple):
    """What a client presents."""

    token: Secret
    authorize_as: str
    extensions: Mapping[str, str]
    """For the audit; they give no rights."""


def parse_bearer(message: bytes) -> BearerLogin:
    """`n,[a=name],^Aauth=Bearer TOKEN^A[key=value^A…]^A`."""
    if len(message) > TOKEN_BYTES_MAX:
        raise AuthenticationRefused("the OAUTHBEARER message is too long")
    try:
        match = _MESSAGE.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise AuthenticationRefused("the OAUTHBEARER message is malformed")
    pairs = [pair.split("=", 1) for pair in match[2].split("\x01")[:-1]]
    values = {pair[0]: pair[1] for pair in pairs}
    if len(values) != len(pairs):
        raise AuthenticationRefused("the OAUTHBEARER message names a key twice")
    token = _BEARER.fullmatch(values.pop("auth", ""))
    if token is None:
        raise AuthenticationRefused("the OAUTHBEARER message holds no bearer token")
    return BearerLogin(Secret(token[1]), match[1] or "", values)


def make_bearer(token: Secret, extensions: Mapping[str, str] | None = None) -> bytes:
    """The client's first message."""
    more = "".join(f"{key}={value}\x01" for key, value in (extensions or {}).items())
    return f"n,,\x01auth=Bearer {token.reveal()}\x01{more}\x01".encode()
