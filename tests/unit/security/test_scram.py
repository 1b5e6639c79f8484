"""SCRAM: the RFC's exchange, both machines against each other, and everything that must be refused."""

import contextlib
import hashlib
import hmac
import re
from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.base.randomness import SystemRandomness
from martlet.base.secret import Secret
from martlet.security.errors import AuthenticationRefused
from martlet.security.scram import (
    Decoys,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    credential_of,
    fresh_nonce,
    is_password_of,
)

PASSWORD = Secret("pencil")
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
DECOYS = Decoys(b"cluster secret", 4096)
BOTH = pytest.mark.parametrize("mechanism", list(ScramMechanism))
RANDOMNESS = SystemRandomness()


def credential(mechanism: ScramMechanism) -> ScramCredential:
    return credential_of(mechanism, PASSWORD, SALT, 4096)


def server_for(
    mechanism: ScramMechanism, users: tuple[str, ...] = ("user",), nonce: str = "servernonce0123456"
) -> ScramServer:
    return ScramServer(mechanism, lambda user: credential(mechanism) if user in users else None, DECOYS, nonce)


def test_the_exchange_of_rfc_7677_gives_its_very_bytes() -> None:
    server = server_for(ScramMechanism.SHA_256, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    client = ScramClient(ScramMechanism.SHA_256, "user", PASSWORD, "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = server.first(client.first())
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.final(first)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    answer = server.final(final)
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.finish(answer)
    assert server.user == "user"


@BOTH
@pytest.mark.parametrize("name", ["alice", "a=b,c", "Ünïcode", "with space"])
def test_client_and_server_agree_whatever_the_name(mechanism: ScramMechanism, name: str) -> None:
    server = server_for(mechanism, (name,), fresh_nonce(RANDOMNESS))
    client = ScramClient(mechanism, name, PASSWORD, fresh_nonce(RANDOMNESS))
    client.finish(server.final(client.final(server.first(client.first()))))
    assert server.user == name


@BOTH
def test_an_unknown_user_is_answered_like_a_known_one_until_the_proof(mechanism: ScramMechanism) -> None:
    shapes = set()
    for name in ("user", "nobody-knows"):
        server = server_for(mechanism)
        client = ScramClient(mechanism, name, Secret("wrong"), "n" * 20)
        first = server.first(client.first()).decode()
        salt = re.fullmatch(r"r=n+servernonce0123456,s=([^,]+),i=4096", first)
        assert salt is not None
        shapes.add(len(salt[1]))
        with pytest.raises(AuthenticationRefused):
            server.final(client.final(first.encode()))
        assert server.user is None
    assert len(shapes) == 1


def test_an_unknown_user_always_has_the_same_salt_and_another_than_the_next_user() -> None:
    salts = [DECOYS.credential(ScramMechanism.SHA_256, name).salt for name in ("eve", "eve", "mallory")]
    assert salts[0] == salts[1] != salts[2]
    assert DECOYS.credential(ScramMechanism.SHA_512, "eve").salt != salts[0]
    assert "cluster secret" not in repr(DECOYS)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,r=abc,n=user",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=admin,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user\x00,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=user,r=" + b"a" * 513,
        b"n,,n=" + b"u" * 3000 + b",r=abc",
        b"\xff\xfe",
    ],
)
def test_a_malformed_first_message_is_refused_and_ends_the_machine(message: bytes) -> None:
    server = server_for(ScramMechanism.SHA_256)
    with pytest.raises(AuthenticationRefused):
        server.first(message)
    with pytest.raises(AuthenticationRefused, match="out of turn"):
        server.first(b"n,,n=user,r=abc")


def proven(change: dict[str, str]) -> AuthenticationRefused:
    """What the server says to a proof of the right password in which some attributes are others."""
    server = server_for(ScramMechanism.SHA_256)
    client = ScramClient(ScramMechanism.SHA_256, "user", PASSWORD, "clientnonce")
    final = client.final(server.first(client.first())).decode()
    attributes = dict(part.split("=", 1) for part in final.split(",")) | change
    with pytest.raises(AuthenticationRefused) as caught:
        server.final(",".join(f"{key}={value}" for key, value in attributes.items()).encode())
    assert server.user is None
    return caught.value


def test_a_short_replayed_or_foreign_nonce_is_refused() -> None:
    for nonce in ("servernonce0123456", "clientnonce", "othernonceservernonce0123456", "clientnonceservernonce012345"):
        assert "nonce" in str(proven({"r": nonce}))


def test_the_doubled_nonce_of_old_librdkafka_is_taken_with_a_proof_over_it_only() -> None:
    assert "wrong password" in str(proven({"r": "clientnonceclientnonceservernonce0123456"}))
    server = server_for(ScramMechanism.SHA_256)
    first = server.first(b"n,,n=user,r=clientnonce").decode()
    without_proof = "c=biws,r=clientnonceclientnonceservernonce0123456"
    transcript = f"n=user,r=clientnonce,{first},{without_proof}".encode()
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), transcript, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    server.final(f"{without_proof},p={b64encode(proof).decode()}".encode())
    assert server.user == "user"


def test_another_channel_binding_or_a_bad_proof_is_refused() -> None:
    assert "binding" in str(proven({"c": "eSws"}))
    for proof in ("AAAA", "????", b64encode(bytes(32)).decode(), b64encode(bytes(64)).decode()):
        proven({"p": proof})


def test_a_recorded_exchange_does_not_let_anyone_in_again() -> None:
    server = server_for(ScramMechanism.SHA_256, nonce="first-server-nonce")
    client = ScramClient(ScramMechanism.SHA_256, "user", PASSWORD, "clientnonce")
    recorded_final = client.final(server.first(client.first()))
    server.final(recorded_final)
    another = server_for(ScramMechanism.SHA_256, nonce="second-server-nonce")
    another.first(client.first())
    with pytest.raises(AuthenticationRefused, match="nonce"):
        another.final(recorded_final)


@pytest.mark.parametrize(
    ("server_first", "reason"),
    [
        ("r=clientnonce,s=AAAA,i=4096", "nonce"),
        ("r=other0123456789012345,s=AAAA,i=4096", "nonce"),
        ("r=clientnonce0123456789abcdef,s=AAAA,i=4095", "iterations"),
        ("r=clientnonce0123456789abcdef,s=AAAA,i=100001", "iterations"),
        ("r=clientnonce0123456789abcdef,s=AAAA,i=0", "malformed"),
        ("r=clientnonce0123456789abcdef,s=A,i=4096", "base64"),
        ("i=4096,s=AAAA,r=clientnonce0123456789abcdef", "malformed"),
        ("e=other-error", "malformed"),
    ],
)
def test_a_client_does_not_follow_a_hostile_server(server_first: str, reason: str) -> None:
    client = ScramClient(ScramMechanism.SHA_256, "user", PASSWORD, "clientnonce")
    with pytest.raises(AuthenticationRefused, match=reason):
        client.final(server_first.encode())


def test_a_client_notices_a_server_that_does_not_know_it() -> None:
    server = server_for(ScramMechanism.SHA_256)
    client = ScramClient(ScramMechanism.SHA_256, "user", PASSWORD, "clientnonce")
    client.final(server.first(client.first()))
    for answer in (b"", b"v=", b"v=" + b64encode(bytes(32)), b"e=invalid-proof"):
        with pytest.raises(AuthenticationRefused, match="did not prove"):
            client.finish(answer)


@BOTH
def test_a_stored_credential_knows_its_password_and_hides_its_keys(mechanism: ScramMechanism) -> None:
    stored = credential(mechanism)
    assert is_password_of(mechanism, stored, PASSWORD)
    assert not is_password_of(mechanism, stored, Secret("Pencil"))
    assert len(stored.stored_key) == len(stored.server_key) == mechanism.digest_bytes
    assert repr(stored) == "ScramCredential(iterations=4096)"


@settings(max_examples=300, deadline=None)
@given(first=st.binary(max_size=200), final=st.binary(max_size=200))
def test_any_bytes_are_answered_or_refused_and_let_no_client_in(first: bytes, final: bytes) -> None:
    server = ScramServer(ScramMechanism.SHA_256, lambda user: None, DECOYS, "nonce")
    for step, message in ((server.first, first), (server.final, final)):
        with contextlib.suppress(AuthenticationRefused):
            step(message)
    assert server.user is None
