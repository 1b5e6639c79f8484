"""Passwords in clear: right and wrong ones, what is remembered, and how many may wait."""

import asyncio

import pytest

from martlet.base.clock import SystemClock
from martlet.base.randomness import SystemRandomness
from martlet.base.secret import Secret
from martlet.broker.access.password_checks import PasswordChecks
from martlet.security.errors import AuthenticationRefused
from martlet.security.plain import PlainLogin
from martlet.security.scram import Decoys, ScramMechanism, credential_of

RIGHT = Secret("wonderland")
ALICE = {ScramMechanism.SHA_256: credential_of(ScramMechanism.SHA_256, RIGHT, b"salt", 4096)}
DECOYS = Decoys(b"secret", 4096)


def checks() -> PasswordChecks:
    return PasswordChecks(SystemClock(), SystemRandomness())


async def test_the_right_password_passes_and_others_do_not() -> None:
    passwords = checks()
    await passwords.check(PlainLogin("alice", RIGHT), ALICE, DECOYS)
    with pytest.raises(AuthenticationRefused, match="wrong password of user 'alice'"):
        await passwords.check(PlainLogin("alice", Secret("wrong")), ALICE, DECOYS)
    with pytest.raises(AuthenticationRefused, match="there is no user 'eve'"):
        await passwords.check(PlainLogin("eve", RIGHT), {}, DECOYS)


async def test_what_was_right_is_remembered_for_its_credential_only() -> None:
    passwords = checks()
    await passwords.check(PlainLogin("alice", RIGHT), ALICE, DECOYS)
    changed = {ScramMechanism.SHA_256: credential_of(ScramMechanism.SHA_256, Secret("new"), b"salt", 4096)}
    with pytest.raises(AuthenticationRefused):
        await passwords.check(PlainLogin("alice", RIGHT), changed, DECOYS)
    with pytest.raises(AuthenticationRefused):
        await passwords.check(PlainLogin("alic", Secret("ewonderland")), {}, DECOYS)


async def test_beyond_a_bound_clients_are_sent_away_instead_of_waiting() -> None:
    passwords = checks()
    logins = [PlainLogin("alice", Secret(f"wrong {number}")) for number in range(70)]
    outcomes = await asyncio.gather(
        *(passwords.check(login, ALICE, DECOYS) for login in logins), return_exceptions=True
    )
    texts = [str(outcome) for outcome in outcomes]
    assert texts.count("too many passwords wait to be checked") == 6
    assert texts.count("wrong password of user 'alice'") == 64
