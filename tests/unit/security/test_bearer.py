"""OAUTHBEARER messages: what they carry, and what is refused."""

import pytest

from martlet.base.secret import Secret
from martlet.security.bearer import make_bearer, parse_bearer
from martlet.security.errors import AuthenticationRefused

TOKEN = "aGVh.Ym9k.c2ln"


def test_the_token_and_its_extensions_are_read() -> None:
    login = parse_bearer(b"n,a=alice,\x01auth=Bearer " + TOKEN.encode() + b"\x01traceId=12 3\x01\x01")
    assert (login.token.reveal(), login.authorize_as, login.extensions) == (TOKEN, "alice", {"traceId": "12 3"})
    assert TOKEN not in repr(login)


def test_what_a_client_makes_the_server_reads() -> None:
    login = parse_bearer(make_bearer(Secret(TOKEN), {"host": "one"}))
    assert login == (Secret(TOKEN), "", {"host": "one"})


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic YTpi\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc\x01auth=Bearer def\x01\x01",
        b"n,,\x01auth=Bearer abc\x01k1=v\x01\x01",
        b"n,,\x01auth=Bearer a\xffc\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 25_000 + b"\x01\x01",
    ],
)
def test_a_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationRefused):
        parse_bearer(message)
