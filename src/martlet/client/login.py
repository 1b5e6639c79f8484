"""Proves to a broker who the client is, over a connection that has just been negotiated.

The password is stretched in a thread, because that takes milliseconds. A refusal is an ApiError with the broker's code;
a broker that does not prove that it knows the user ends the connection.

Proved by: tests/broker/test_sasl.py
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from martlet.base.errors import ApiError, error_code
from martlet.base.invariant import invariant
from martlet.base.randomness import SystemRandomness
from martlet.base.secret import Secret
from martlet.client.security import ClientSecurity
from martlet.security.plain import make_plain
from martlet.security.scram import ScramClient, ScramMechanism, fresh_nonce
from martlet.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from martlet.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

Shake: TypeAlias = Callable[[SaslHandshakeRequest], Awaitable[SaslHandshakeResponse]]
Authenticate: TypeAlias = Callable[[SaslAuthenticateRequest], Awaitable[SaslAuthenticateResponse]]


async def log_in(security: ClientSecurity, shake: Shake, authenticate: Authenticate) -> None:
    """Go through the mechanism; the two functions send a request of one kind and give its answer."""
    invariant(security.password is not None, "SASL has a password")
    password = security.password or Secret("-")
    answer = await shake(SaslHandshakeRequest(security.mechanism.value))
    if answer.error_code:
        offered = ", ".join(answer.mechanisms) or "none"
        detail = f"{security.mechanism.value} was refused; the broker offers {offered}"
        raise ApiError(error_code(answer.error_code), detail)
    variant = security.mechanism.scram
    if variant is None:
        await _round(authenticate, make_plain(security.username, password))
    else:
        await _scram(variant, security.username, password, authenticate)


async def _scram(variant: ScramMechanism, username: str, password: Secret, authenticate: Authenticate) -> None:
    client = ScramClient(variant, username, password, fresh_nonce(SystemRandomness()))
    challenge = await _round(authenticate, client.first())
    proof = await asyncio.get_running_loop().run_in_executor(None, client.final, challenge)
    client.finish(await _round(authenticate, proof))


async def _round(authenticate: Authenticate, message: bytes) -> bytes:
    answer = await authenticate(SaslAuthenticateRequest(message))
    if answer.error_code:
        raise ApiError(error_code(answer.error_code), answer.error_message or "")
    return answer.auth_bytes
