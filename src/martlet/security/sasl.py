"""One client's authentication by SASL: a machine of handshakes and rounds, without I/O and without a clock.

The client names a mechanism (`choose`), then sends the mechanism's messages (`step`). What takes processor time or
another's answer is not done here: `step` returns a `CheckPassword` or a `CheckToken`, and the shell says how it went by
accepting the client or by `token_refused`. An accepted client may begin again over the same connection (KIP-368), with
the mechanism and as the user of before.

Invariants: SAS-1 a client is `Proven` only by a mechanism that was chosen among those offered, and a choice serves one
exchange; SAS-2 after a refusal nothing is taken any more; SAS-3 another mechanism or another user than the first time
is refused.

Proved by: tests/unit/security/test_sasl.py
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from martlet.base.randomness import Randomness
from martlet.security.bearer import FAILURE_STATUS, KVSEP, BearerLogin, parse_bearer
from martlet.security.errors import AuthenticationRefused
from martlet.security.plain import PlainLogin, parse_plain
from martlet.security.scram import Decoys, ScramCredential, ScramMechanism, ScramServer, fresh_nonce


class Mechanism(Enum):
    """The SASL mechanisms by their names."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    PLAIN = "PLAIN"
    OAUTHBEARER = "OAUTHBEARER"

    @property
    def scram(self) -> ScramMechanism | None:
        """The variant of SCRAM that it is, if any."""
        return _SCRAM.get(self)


_SCRAM: Final = {
    Mechanism.SCRAM_SHA_256: ScramMechanism.SHA_256,
    Mechanism.SCRAM_SHA_512: ScramMechanism.SHA_512,
}

UserCredentials: TypeAlias = Mapping[ScramMechanism, ScramCredential]


@dataclass(frozen=True, slots=True)
class SaslPorts:
    """What an exchange needs to know."""

    credentials: Callable[[str], UserCredentials]
    """What is stored of a user; empty for users that there are not."""
    decoys: Decoys
    randomness: Randomness


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange goes on."""

    answer: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Proven:
    """The client is this user."""

    user: str
    answer: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class CheckPassword:
    """The client is this user if the password is right."""

    login: PlainLogin


@dataclass(frozen=True, slots=True)
class CheckToken:
    """The client is whom the token names, if it is valid."""

    login: BearerLogin


Step: TypeAlias = Challenge | Proven | CheckPassword | CheckToken


class _State(Enum):
    IDLE = 1
    CHOSEN = 2
    CHECKED_OUTSIDE = 3
    TOKEN_REFUSED = 4
    REFUSED = 5


class SaslExchange:
    """Owned by a connection; serves its first authentication and those that follow."""

    def __init__(self, offered: tuple[Mechanism, ...], ports: SaslPorts) -> None:
        self.offered = offered
        self._ports = ports
        self._state = _State.IDLE
        self._mechanism: Mechanism | None = None
        self._scram: ScramServer | None = None
        self.mechanism: Mechanism | None = None
        """By which the client has proven who it is."""
        self.user: str | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a mechanism was chosen and its rounds are not over."""
        return self._state not in (_State.IDLE, _State.REFUSED)

    def choose(self, name: str) -> None:
        """The client's handshake."""
        if self._state is not _State.IDLE:
            raise self._refuse("a handshake out of turn")
        mechanism = next((one for one in self.offered if one.value == name), None)
        if mechanism is None:
            raise self._refuse("the client chose a mechanism that is not offered")
        if self.mechanism not in (None, mechanism):
            raise self._refuse("the client chose another mechanism than the first time")
        self._mechanism = mechanism
        self._state = _State.CHOSEN
        if (variant := mechanism.scram) is not None:
            nonce = fresh_nonce(self._ports.randomness)
            self._scram = ScramServer(variant, lambda user: self._credential(variant, user), self._ports.decoys, nonce)

    def step(self, message: bytes) -> Step:
        """The next message of the mechanism that was chosen; raises AuthenticationRefused."""
        try:
            return self._step(message)
        except AuthenticationRefused:
            self._state = _State.REFUSED
            raise

    def accept(self, user: str) -> None:
        """What was checked outside is so; also called by `step` for what is checked here."""
        if self.user not in (None, user):
            raise self._refuse("the client came back as another user")
        self.user, self.mechanism = user, self._mechanism
        self._state, self._scram, self._mechanism = _State.IDLE, None, None

    def token_refused(self) -> Challenge:
        """The token is not valid: the client hears so in a round of its own, and acknowledges it."""
        self._state = _State.TOKEN_REFUSED
        return Challenge(FAILURE_STATUS)

    def _step(self, message: bytes) -> Step:
        if self._state is _State.TOKEN_REFUSED:
            reason = "the token was refused" if message == KVSEP else "a refused token was not acknowledged"
            raise AuthenticationRefused(reason)
        if self._state is not _State.CHOSEN:
            raise AuthenticationRefused("a round of authentication out of turn")
        if self._scram is not None:
            return self._scram_step(self._scram, message)
        self._state = _State.CHECKED_OUTSIDE
        if self._mechanism is Mechanism.PLAIN:
            return CheckPassword(parse_plain(message))
        return CheckToken(parse_bearer(message))

    def _scram_step(self, scram: ScramServer, message: bytes) -> Step:
        if not scram.is_begun:
            return Challenge(scram.first(message))
        answer = scram.final(message)
        user = scram.user or ""
        self.accept(user)
        return Proven(user, answer)

    def _credential(self, variant: ScramMechanism, user: str) -> ScramCredential | None:
        return self._ports.credentials(user).get(variant)

    def _refuse(self, reason: str) -> AuthenticationRefused:
        self._state = _State.REFUSED
        return AuthenticationRefused(reason)
