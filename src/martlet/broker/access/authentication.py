"""Proves who clients are: what each listener offers, and the rounds of SASL with what surrounds them.

A refusal costs the client time, more with each from its address, and the text is one for all reasons. The principal of
a session is set here and nowhere else.

Invariant: AUT-1 a session becomes authenticated only by what a `SaslExchange` has proven or a check of this module.

Proved by: tests/unit/broker/access/test_authentication.py, tests/broker/test_sasl.py
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from martlet.base.clock import Clock
from martlet.base.principals import Principal
from martlet.base.randomness import Randomness
from martlet.broker.access.audit import Audit
from martlet.broker.access.password_checks import PasswordChecks
from martlet.broker.access.users import BROKER_MECHANISM, BROKER_USER, Users
from martlet.broker.ground.listeners import ListenerOptions
from martlet.broker.ground.request import Link
from martlet.security.errors import AuthenticationRefused
from martlet.security.sasl import Challenge, CheckPassword, CheckToken, Mechanism, Proven, SaslExchange, SaslPorts

USER: Final = "User"
_DELAY_MS: Final = 300
_DELAY_STEP_MS: Final = 100
_DELAY_MS_MAX: Final = 3_000
_FAILURES_FORGOTTEN_MS: Final = 60_000
_ADDRESSES_MAX: Final = 10_000
_DELAYED_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationOptions:
    """What an operator says about it."""

    mechanisms: tuple[Mechanism, ...]
    broker_listener: str
    session_ms: int = 0
    """For how long a client is believed before it must prove again who it is; 0 for as long as it is connected."""


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_ms: int = 0


class Authentication:
    """Owned by the broker; lives on its event loop."""

    def __init__(
        self, options: AuthenticationOptions, users: Users, clock: Clock, randomness: Randomness, audit: Audit
    ) -> None:
        self._options = options
        self._users = users
        self._clock = clock
        self._randomness = randomness
        self._audit = audit
        self._passwords = PasswordChecks(clock, randomness)
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._delayed = 0

    def offered(self, listener: ListenerOptions) -> tuple[Mechanism, ...]:
        """The mechanisms of a listener: passwords in clear only over TLS, and always the one that brokers use."""
        names = [one for one in self._options.mechanisms if one is not Mechanism.PLAIN or listener.protocol.encrypts]
        own = Mechanism(BROKER_MECHANISM.value)
        if listener.name == self._options.broker_listener and own not in names:
            names.append(own)
        return tuple(names)

    def exchange(self, link: Link) -> SaslExchange:
        """The machine of this connection, made when it is first needed."""
        session = link.session
        if session.exchange is None:
            with_brokers = link.listener.name == self._options.broker_listener
            lookup = self._users.lookup(with_brokers=with_brokers)
            ports = SaslPorts(lookup, self._users.decoys(), self._randomness)
            session.exchange = SaslExchange(self.offered(link.listener), ports)
        return session.exchange

    async def step(self, link: Link, message: bytes) -> Challenge | Proven:
        """One round; a client that has proven who it is has a session from here on. Raises AuthenticationRefused."""
        exchange = self.exchange(link)
        step = exchange.step(message)
        if isinstance(step, CheckPassword):
            login = step.login
            lookup = self._users.lookup(with_brokers=False)
            await self._passwords.check(login, lookup(login.user), self._users.decoys())
            exchange.accept(login.user)
            step = Proven(login.user)
        elif isinstance(step, CheckToken):
            return exchange.token_refused()
        if isinstance(step, Proven):
            self._proven(link, step.user)
        return step

    def _proven(self, link: Link, user: str) -> None:
        principal = Principal(USER, user)
        exchange = self.exchange(link)
        lifetime_ms = 0 if user == BROKER_USER else self._options.session_ms
        now_ms = self._clock.monotonic_ms()
        link.session.authenticated(principal, now_ms + lifetime_ms if lifetime_ms else None, now_ms)
        self._failures.pop(link.peer.host, None)
        if user != BROKER_USER:
            self._audit.authenticated(link, principal, exchange.mechanism.value if exchange.mechanism else "")

    def lifetime_ms(self, link: Link) -> int:
        """For how long the session lasts from now; 0 for as long as the connection."""
        expires_at_ms = link.session.expires_at_ms
        return 0 if expires_at_ms is None else max(expires_at_ms - self._clock.monotonic_ms(), 1)

    def note_refusal(self, link: Link, refusal: AuthenticationRefused) -> None:
        """Write down why."""
        self._audit.authentication_refused(link, str(refusal))

    async def refused(self, link: Link, refusal: AuthenticationRefused) -> None:
        """Write down why, and wait before the client hears of it; longer with each failure from its address."""
        self.note_refusal(link, refusal)
        now_ms = self._clock.monotonic_ms()
        host = link.peer.host
        failures = self._failures.pop(host, None) or _Failures()
        if now_ms - failures.last_ms > _FAILURES_FORGOTTEN_MS:
            failures.count = 0
        delay_ms = min(_DELAY_MS + _DELAY_STEP_MS * failures.count, _DELAY_MS_MAX)
        failures.count, failures.last_ms = failures.count + 1, now_ms
        self._failures[host] = failures
        if len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)
        if self._delayed < _DELAYED_MAX:
            self._delayed += 1
            try:
                await asyncio.sleep(delay_ms / 1000)
            finally:
                self._delayed -= 1
