"""Logging in over a raw connection, and making users, for tests of listeners that authenticate."""

import asyncio
import hashlib
import time
from typing import Any

from martlet.base.addresses import parse_bootstrap
from martlet.base.secret import Secret
from martlet.client.cluster import Cluster
from martlet.client.options import ClientOptions
from martlet.client.security import ClientSecurity, security_from
from martlet.security.scram import ScramClient, ScramMechanism
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from martlet.wire.messages.metadata import MetadataRequest
from martlet.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from martlet.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.raw_client import RawClient

PASSWORD = "wonderland"
LISTENERS = {"listeners": "open=plain://127.0.0.1:0,clients=sasl_plain://127.0.0.1:0"}
CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


def address_of(broker: RunningBroker, listener: str) -> str:
    """Where a listener of the broker serves."""
    return next(str(one.address) for one in broker.app.listeners.all if one.name == listener)


def credential(name: str, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD, iterations: int = 4096) -> Any:
    """What a tool sends to give a user a password."""
    salt = b"0123456789abcdef"
    algorithm = ScramMechanism(mechanism).hash_name
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    return ScramCredentialUpsertion(name, CODES[mechanism], iterations, salt, salted)


def alter_users(client: RawClient, *upsertions: Any, deletions: Any = ()) -> AlterUserScramCredentialsResponse:
    """Change users over a connection that may."""
    request = AlterUserScramCredentialsRequest(list(deletions), list(upsertions))
    response: AlterUserScramCredentialsResponse = client.call(request, 0)
    return response


def add_user(broker: RunningBroker, name: str, password: str = PASSWORD) -> None:
    """Give a user both mechanisms through the open listener."""
    with RawClient(address_of(broker, "open")) as client:
        both = [credential(name, mechanism, password) for mechanism in CODES]
        assert [result.error_code for result in alter_users(client, *both).results] == [0]


def remove_user(broker: RunningBroker, name: str) -> None:
    with RawClient(address_of(broker, "open")) as client:
        both = [ScramCredentialDeletion(name, code) for code in CODES.values()]
        assert [result.error_code for result in alter_users(client, deletions=both).results] == [0]


def log_in(
    client: RawClient, name: str = "alice", password: str = PASSWORD, mechanism: str = "SCRAM-SHA-512"
) -> SaslAuthenticateResponse:
    """The last answer of the exchange."""
    handshake = client.call(SaslHandshakeRequest(mechanism), 1)
    assert handshake.error_code == 0, handshake
    scram = ScramClient(ScramMechanism(mechanism), name, Secret(password), "clientnonce0123456789")
    answer: SaslAuthenticateResponse = client.call(SaslAuthenticateRequest(scram.first()), 2)
    if answer.error_code:
        return answer
    last: SaslAuthenticateResponse = client.call(SaslAuthenticateRequest(scram.final(answer.auth_bytes)), 2)
    if not last.error_code:
        scram.finish(last.auth_bytes)
    return last


def security(name: str = "alice", password: str = PASSWORD, **more: str) -> ClientSecurity:
    """What a client of ours is given."""
    values = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": name, "sasl.password": password}
    return security_from({**values, **{key.replace("_", "."): text for key, text in more.items()}})


def wait_for_brokers(broker: RunningBroker, count: int) -> None:
    """Until clients of the open listener are shown that many brokers."""
    with RawClient(address_of(broker, "open")) as client:
        deadline = time.monotonic() + 20
        while len(client.call(MetadataRequest([]), 12).brokers) < count:
            assert time.monotonic() < deadline, f"there are no {count} brokers"
            time.sleep(0.05)  # real time: processes find each other


def connect(address: str, how: ClientSecurity) -> list[str]:
    """Connect with the client of ours; the addresses of the brokers it is given."""

    async def conversation() -> list[str]:
        options = ClientOptions(security=how, retry_timeout_ms=2_000)
        async with Cluster(parse_bootstrap(address), options) as cluster:
            return [str(node.address) for node in cluster.metadata.brokers.values()]

    return asyncio.run(conversation())
