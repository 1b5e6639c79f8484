"""Passwords sent in clear, checked against SCRAM credentials: the one thing in authentication that costs milliseconds.

Rules: one check at a time runs in a thread, and few wait for it, so that strangers cannot take the processor; beyond
that clients are sent away and may come back. What was right is remembered for a minute, what was wrong never.

Proved by: tests/unit/broker/access/test_password_checks.py
"""

import asyncio
import hashlib
from collections import OrderedDict
from typing import Final

from martlet.base.clock import Clock
from martlet.base.randomness import Randomness
from martlet.security.errors import AuthenticationRefused
from martlet.security.plain import PlainLogin
from martlet.security.sasl import UserCredentials
from martlet.security.scram import Decoys, ScramMechanism, is_password_of

_WAITING_MAX: Final = 64
_REMEMBERED_MAX: Final = 1_000
_REMEMBERED_MS: Final = 60_000


class PasswordChecks:
    """Owned by the broker; lives on its event loop."""

    def __init__(self, clock: Clock, randomness: Randomness) -> None:
        self._clock = clock
        self._key = randomness.token(32)
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0
        self._right: OrderedDict[bytes, int] = OrderedDict()
        """Digests of what was right, and until when that counts."""

    async def check(self, login: PlainLogin, credentials: UserCredentials, decoys: Decoys) -> None:
        """Return if the password is that of the user; raises AuthenticationRefused, after the same time for all."""
        mechanism = next(iter(sorted(credentials, key=lambda one: one.value)), ScramMechanism.SHA_256)
        credential = credentials.get(mechanism) or decoys.credential(mechanism, login.user)
        name, password = login.user.encode(), login.password.reveal().encode()
        content = b"\0".join((name, credential.stored_key, password))
        digest = hashlib.blake2b(content, key=self._key, digest_size=32).digest()
        if self._right.get(digest, 0) > self._clock.monotonic_ms():
            return
        if self._waiting >= _WAITING_MAX:
            raise AuthenticationRefused("too many passwords wait to be checked")
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                loop = asyncio.get_running_loop()
                is_right = await loop.run_in_executor(None, is_password_of, mechanism, credential, login.password)
        finally:
            self._waiting -= 1
        if not (is_right and credentials):
            known = "wrong password of" if credentials else "there is no"
            raise AuthenticationRefused(f"{known} user {login.user!r}")
        self._right[digest] = self._clock.monotonic_ms() + _REMEMBERED_MS
        if len(self._right) > _REMEMBERED_MAX:
            self._right.popitem(last=False)
