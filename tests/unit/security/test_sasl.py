"""The SASL machine: every mechanism, what comes out of turn, and authentication over again."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from martlet.base.randomness import SystemRandomness
from martlet.base.secret import Secret
from martlet.security.bearer import make_bearer
from martlet.security.errors import AuthenticationRefused
from martlet.security.plain import make_plain
from martlet.security.sasl import Challenge, CheckPassword, CheckToken, Mechanism, Proven, SaslExchange, SaslPorts
from martlet.security.scram import Decoys, ScramClient, ScramMechanism, credential_of

PASSWORD = Secret("wonderland")
USERS = {
    name: {variant: credential_of(variant, PASSWORD, b"salt" * 4, 4096) for variant in ScramMechanism}
    for name in ("alice", "bob")
}
USERS["half"] = {ScramMechanism.SHA_256: USERS["alice"][ScramMechanism.SHA_256]}
PORTS = SaslPorts(lambda user: USERS.get(user, {}), Decoys(b"secret", 4096), SystemRandomness())


def exchange(*offered: Mechanism) -> SaslExchange:
    return SaslExchange(offered or tuple(Mechanism), PORTS)


def log_in(sasl: SaslExchange, user: str = "alice", mechanism: Mechanism = Mechanism.SCRAM_SHA_512) -> Proven:
    variant = mechanism.scram
    assert variant is not None
    client = ScramClient(variant, user, PASSWORD, "clientnonce")
    sasl.choose(mechanism.value)
    challenge = sasl.step(client.first())
    assert isinstance(challenge, Challenge)
    proven = sasl.step(client.final(challenge.answer))
    assert isinstance(proven, Proven)
    client.finish(proven.answer)
    return proven


@pytest.mark.parametrize("mechanism", [Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512])
def test_scram_proves_the_user_in_two_rounds(mechanism: Mechanism) -> None:
    sasl = exchange()
    assert log_in(sasl, mechanism=mechanism).user == "alice"
    assert (sasl.user, sasl.mechanism, sasl.is_under_way) == ("alice", mechanism, False)


def test_plain_and_tokens_are_checked_outside() -> None:
    sasl = exchange()
    sasl.choose("PLAIN")
    check = sasl.step(make_plain("alice", PASSWORD))
    assert isinstance(check, CheckPassword)
    assert "wonderland" not in repr(check)
    sasl.accept("alice")
    assert sasl.user == "alice"
    bearer = exchange()
    bearer.choose("OAUTHBEARER")
    assert isinstance(bearer.step(make_bearer(Secret("a.b.c"))), CheckToken)


def test_a_refused_token_is_said_in_a_round_of_its_own_and_then_refused() -> None:
    sasl = exchange()
    sasl.choose("OAUTHBEARER")
    sasl.step(make_bearer(Secret("a.b.c")))
    assert sasl.token_refused().answer == b'{"status":"invalid_token"}'
    with pytest.raises(AuthenticationRefused, match="token was refused"):
        sasl.step(b"\x01")


def test_a_mechanism_that_is_not_offered_is_refused_and_ends_the_exchange() -> None:
    for name in ("PLAIN", "scram-sha-512", "", "GSSAPI"):
        sasl = exchange(Mechanism.SCRAM_SHA_512)
        with pytest.raises(AuthenticationRefused, match="not offered"):
            sasl.choose(name)
        with pytest.raises(AuthenticationRefused):
            sasl.choose("SCRAM-SHA-512")


def test_a_credential_of_one_mechanism_does_not_serve_another() -> None:
    with pytest.raises(AuthenticationRefused, match=r"no user 'half' with a credential for SCRAM-SHA-512"):
        log_in(exchange(), "half")


def test_rounds_without_a_handshake_and_handshakes_in_between_are_refused() -> None:
    with pytest.raises(AuthenticationRefused, match="out of turn"):
        exchange().step(b"n,,n=alice,r=abc")
    sasl = exchange()
    sasl.choose("SCRAM-SHA-512")
    with pytest.raises(AuthenticationRefused, match="out of turn"):
        sasl.choose("SCRAM-SHA-512")


def test_a_second_password_is_not_taken_while_the_first_is_checked() -> None:
    sasl = exchange()
    sasl.choose("PLAIN")
    sasl.step(make_plain("alice", PASSWORD))
    with pytest.raises(AuthenticationRefused, match="out of turn"):
        sasl.step(make_plain("bob", PASSWORD))


def test_the_same_user_may_authenticate_again_and_again() -> None:
    sasl = exchange()
    for _ in range(3):
        log_in(sasl)
    assert sasl.user == "alice"


def test_another_user_or_another_mechanism_the_second_time_is_refused() -> None:
    sasl = exchange()
    log_in(sasl)
    with pytest.raises(AuthenticationRefused, match="another user"):
        log_in(sasl, "bob")
    sasl = exchange()
    log_in(sasl)
    with pytest.raises(AuthenticationRefused, match="another mechanism"):
        log_in(sasl, mechanism=Mechanism.SCRAM_SHA_256)


@given(
    moves=st.lists(
        st.one_of(
            st.sampled_from([mechanism.value for mechanism in Mechanism]),
            st.binary(max_size=60),
            st.sampled_from([b"n,,n=alice,r=abc", b"\0alice\0wrong", b"\x01", b"c=biws,r=abc,p=AAAA"]),
        ),
        max_size=6,
    )
)
def test_no_sequence_of_messages_without_the_password_proves_anything(moves: list[str | bytes]) -> None:
    sasl = exchange()
    for move in moves:
        with contextlib.suppress(AuthenticationRefused):
            if isinstance(move, str):
                sasl.choose(move)
            else:
                assert not isinstance(sasl.step(move), Proven)
    assert sasl.user is None
