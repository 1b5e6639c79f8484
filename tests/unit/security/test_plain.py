"""PLAIN messages: what they carry, and what is refused."""

import pytest

from martlet.base.secret import Secret
from martlet.security.errors import AuthenticationRefused
from martlet.security.plain import make_plain, parse_plain


@pytest.mark.parametrize("message", [b"\0alice\0wonder land", b"alice\0alice\0wonder land"])
def test_name_and_password_are_read(message: bytes) -> None:
    login = parse_plain(message)
    assert (login.user, login.password.reveal()) == ("alice", "wonder land")
    assert "wonder" not in repr(login)


def test_what_a_client_makes_the_server_reads() -> None:
    assert parse_plain(make_plain("Ünïcode", Secret("pä=s,s"))) == ("Ünïcode", Secret("pä=s,s"))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"\0alice",
        b"\0alice\0",
        b"\0\0secret",
        b"admin\0alice\0secret",
        b"\0alice\0secret\0more",
        b"\0al\nice\0secret",
        b"\0alice\xff\0secret",
        b"\0alice\0" + b"x" * 3000,
    ],
)
def test_a_malformed_message_is_refused_without_repeating_it(message: bytes) -> None:
    with pytest.raises(AuthenticationRefused) as caught:
        parse_plain(message)
    assert "secret" not in str(caught.value)
