"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) for both sides, without I/O.

The server keeps no password and never derives one: it stores what proves that a client knows it. An unknown user is
answered with a decoy credential, so that bytes and time are those of a known one until the proof is refused.

Invariants: SCR-1 nonce and header come back whole and exactly, and channel binding is never spoken of (`n,`); SCR-2 a
machine that met an error, or has ended, takes nothing more; SCR-3 `user` is set only by a proof that held.

librdkafka up to 2.0 (Debian's kcat) sends its own nonce twice before ours. That one form is taken too: it holds the
whole nonce, and the proof is over what was sent.

Proved by: tests/unit/security/test_scram.py
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from martlet.base.randomness import Randomness
from martlet.base.secret import Secret
from martlet.security.errors import AuthenticationRefused

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
"""What a stored credential may demand, as in Kafka."""
ITERATIONS_DEFAULT: Final = 8_192
SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 24
_CLIENT_ITERATIONS_MAX: Final = 100_000
"""What a client of ours works through when a server asks for it: a hostile one must not freeze it."""
_MESSAGE_BYTES_MAX: Final = 2_048
_BINDING: Final = "biws"
"""`n,,` in base64: no channel binding, no other identity."""

_CLIENT_FIRST: Final = re.compile(
    r"n,(?:a=([^,]*))?,"
    r"(n=((?:[^,=\x00-\x1f\x7f]|=2C|=3D)+),r=([!-+\--~]{1,512})(?:(?:,[a-zA-Z]=[^,]*)*))"
)
_CLIENT_FINAL: Final = re.compile(r"(c=([^,]*),r=([!-+\--~]+)),p=([A-Za-z0-9+/=]+)")
_SERVER_FIRST: Final = re.compile(r"r=([!-+\--~]+),s=([A-Za-z0-9+/=]+),i=([1-9][0-9]{0,8})(?:,[a-zA-Z]=[^,]*)*")


class ScramMechanism(Enum):
    """The two variants by their SASL names."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """The hash as `hashlib` calls it."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def digest_bytes(self) -> int:
        """The size of keys and proofs."""
        return 32 if self is ScramMechanism.SHA_256 else 64


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What the server stores of one user for one mechanism."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


Credentials: TypeAlias = Callable[[str], ScramCredential | None]


def fresh_nonce(randomness: Randomness) -> str:
    """What makes one exchange differ from all others."""
    return b64encode(randomness.token(_NONCE_BYTES)).decode()


def credential_of_salted(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential of a password that was salted and stretched elsewhere."""
    algorithm = mechanism.hash_name
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    stored_key = hashlib.new(algorithm, client_key).digest()
    return ScramCredential(salt, iterations, stored_key, hmac.digest(salted_password, b"Server Key", algorithm))


def credential_of(mechanism: ScramMechanism, password: Secret, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password; takes milliseconds of processor time, so never on an event loop."""
    return credential_of_salted(mechanism, salt_password(mechanism, password, salt, iterations), salt, iterations)


def salt_password(mechanism: ScramMechanism, password: Secret, salt: bytes, iterations: int) -> bytes:
    """The password stretched, which is as good as the password for this salt; takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.reveal().encode(), salt, iterations)


def is_password_of(mechanism: ScramMechanism, credential: ScramCredential, password: Secret) -> bool:
    """Whether the password made the credential; takes milliseconds of processor time."""
    made = credential_of(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)


@dataclass(frozen=True, slots=True)
class Decoys:
    """Credentials of users that there are not: for one name always the same, and no password makes them."""

    secret: bytes = field(repr=False)
    iterations: int = ITERATIONS_DEFAULT

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """What this user is asked to prove, in vain."""
        name = f"{mechanism.value}\0{user}".encode()
        digest = hmac.digest(self.secret, name, mechanism.hash_name)
        salt = hmac.digest(self.secret, b"salt\0" + name, "sha256")[:SALT_BYTES]
        return ScramCredential(salt, self.iterations, digest, digest)


class _Step(Enum):
    FIRST = 1
    FINAL = 2
    ENDED = 3


class ScramServer:
    """The server's side of one exchange: `first`, then `final`."""

    def __init__(self, mechanism: ScramMechanism, credentials: Credentials, decoys: Decoys, nonce: str) -> None:
        """`nonce` comes from `fresh_nonce` and is used for this exchange only."""
        self._mechanism = mechanism
        self._credentials = credentials
        self._decoys = decoys
        self._own_nonce = nonce
        self._step = _Step.FIRST
        self._candidate = ""
        self._is_known = False
        self._credential = ScramCredential(b"", 0, b"", b"")
        self._nonce = self._doubled_nonce = self._binding = self._client_first = self._server_first = ""
        self.user: str | None = None

    @property
    def is_begun(self) -> bool:
        """Whether the first message has come."""
        return self._step is not _Step.FIRST

    def first(self, message: bytes) -> bytes:
        """Answer the client's first message with salt and iterations."""
        self._take_turn(_Step.FIRST, message)
        match = _CLIENT_FIRST.fullmatch(_text(message))
        if match is None:
            raise AuthenticationRefused("the first SCRAM message is malformed")
        authorize_as, self._client_first, name, client_nonce = match.groups()
        self._candidate = _unescape(name)
        if authorize_as and _unescape(authorize_as) != self._candidate:
            raise AuthenticationRefused("a client may speak for itself only")
        # The decoy is made for known users too, so that both take the same time.
        decoy = self._decoys.credential(self._mechanism, self._candidate)
        found = self._credentials(self._candidate)
        self._is_known = found is not None
        self._credential = credential = found or decoy
        self._nonce = client_nonce + self._own_nonce
        self._doubled_nonce = client_nonce + self._nonce
        self._server_first = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._binding = b64encode(f"n,a={authorize_as},".encode()).decode() if authorize_as is not None else _BINDING
        self._step = _Step.FINAL
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes:
        """Check the client's proof and answer with our own."""
        self._take_turn(_Step.FINAL, message)
        match = _CLIENT_FINAL.fullmatch(_text(message))
        if match is None:
            raise AuthenticationRefused("the last SCRAM message is malformed")
        without_proof, binding, nonce, proof_text = match.groups()
        algorithm, credential = self._mechanism.hash_name, self._credential
        proof = _from_base64(proof_text)
        transcript = f"{self._client_first},{self._server_first},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, transcript, algorithm)
        if len(proof) != len(signature):
            raise AuthenticationRefused("the SCRAM proof has a wrong size")
        holds = hmac.compare_digest(hashlib.new(algorithm, _xor(proof, signature)).digest(), credential.stored_key)
        same_nonce = hmac.compare_digest(nonce, self._nonce) | hmac.compare_digest(nonce, self._doubled_nonce)
        if not (holds & same_nonce & (binding == self._binding) & self._is_known):
            raise AuthenticationRefused(self._reason(same_nonce=same_nonce, same_binding=binding == self._binding))
        self.user = self._candidate
        return b"v=" + b64encode(hmac.digest(credential.server_key, transcript, algorithm))

    def _take_turn(self, step: _Step, message: bytes) -> None:
        is_turn, self._step = self._step is step, _Step.ENDED
        if not is_turn or len(message) > _MESSAGE_BYTES_MAX:
            raise AuthenticationRefused("a SCRAM message out of turn, or too long")

    def _reason(self, *, same_nonce: bool, same_binding: bool) -> str:
        """For the audit of the broker only."""
        if not self._is_known:
            return f"there is no user {self._candidate!r} with a credential for {self._mechanism.value}"
        if not same_nonce:
            return f"user {self._candidate!r} answered with another nonce"
        if not same_binding:
            return f"user {self._candidate!r} answered with another channel binding"
        return f"wrong password of user {self._candidate!r}"


class ScramClient:
    """The client's side of one exchange: `first`, `final`, `finish`."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: Secret, nonce: str) -> None:
        self._mechanism = mechanism
        self._user = user.replace("=", "=3D").replace(",", "=2C")
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={self._user},r={self._nonce}"
        self._server_proof = b""

    def first(self) -> bytes:
        """The message that opens the exchange."""
        return b"n,," + self._first_bare.encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof; takes milliseconds of processor time."""
        text = _text(server_first)
        match = _SERVER_FIRST.fullmatch(text)
        if match is None or len(server_first) > _MESSAGE_BYTES_MAX:
            raise AuthenticationRefused("the server's SCRAM message is malformed")
        nonce, salt, iterations = match[1], _from_base64(match[2]), int(match[3])
        if not nonce.startswith(self._nonce) or len(nonce) < len(self._nonce) + SALT_BYTES:
            raise AuthenticationRefused("the server's nonce does not begin with ours, or adds too little")
        if not ITERATIONS_MIN <= iterations <= _CLIENT_ITERATIONS_MAX:
            raise AuthenticationRefused(
                f"the server asks for {iterations} iterations; {ITERATIONS_MIN} to {_CLIENT_ITERATIONS_MAX} are allowed"
            )
        algorithm = self._mechanism.hash_name
        salted = hashlib.pbkdf2_hmac(algorithm, self._password.reveal().encode(), salt, iterations)
        credential = credential_of_salted(self._mechanism, salted, salt, iterations)
        without_proof = f"c={_BINDING},r={nonce}"
        transcript = f"{self._first_bare},{text},{without_proof}".encode()
        signature = hmac.digest(credential.stored_key, transcript, algorithm)
        proof = _xor(hmac.digest(salted, b"Client Key", algorithm), signature)
        self._server_proof = b"v=" + b64encode(hmac.digest(credential.server_key, transcript, algorithm))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def finish(self, server_final: bytes) -> None:
        """Check that the server knows the credential too."""
        if not self._server_proof or not hmac.compare_digest(server_final, self._server_proof):
            raise AuthenticationRefused("the server did not prove that it knows the password's credential")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationRefused("a SCRAM message is not UTF-8") from None


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise AuthenticationRefused("a SCRAM message holds bad base64") from None


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "big") ^ int.from_bytes(right, "big")).to_bytes(len(left), "big")
