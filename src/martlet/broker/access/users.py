"""The credentials that clients are checked against: those of users in the metadata, and that of brokers.

Brokers of one cluster know each other by the secret of the cluster, which is in the metadata store: it is the password
of a user of their own, who may come only through the listener for brokers and may do everything. Nothing has to be set
up for that, and no client can be that user, because the name is refused for others.

Proved by: tests/unit/broker/access/test_users.py
"""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from martlet.base.secret import Secret
from martlet.cluster.image import MetadataImage
from martlet.cluster.records import StoredCredential
from martlet.security.sasl import UserCredentials
from martlet.security.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    Decoys,
    ScramCredential,
    ScramMechanism,
    credential_of,
)

BROKER_USER: Final = "__martlet_broker"
BROKER_MECHANISM: Final = ScramMechanism.SHA_512


class Users:
    """One broker's view; lives on its event loop."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._broker_secret = ""
        self._broker_credential: UserCredentials = {}

    def lookup(self, *, with_brokers: bool) -> Callable[[str], UserCredentials]:
        """How a listener finds credentials; that for brokers finds theirs too."""
        return self._of_anyone if with_brokers else self.of

    def of(self, name: str) -> UserCredentials:
        """What is stored of a user; empty for a user that there is not."""
        record = self._image.users().get(name)
        if record is None:
            return {}
        return {ScramMechanism(word): read_credential(stored) for word, stored in record.credentials.items()}

    def decoys(self) -> Decoys:
        """For users that there are not; the same on every broker, so that they look alike everywhere."""
        return Decoys(hmac.digest(self._cluster_secret(), b"decoys", "sha256"))

    def _of_anyone(self, name: str) -> UserCredentials:
        return self._of_brokers() if name == BROKER_USER else self.of(name)

    def _of_brokers(self) -> UserCredentials:
        secret = self._image.replica_secret
        if secret != self._broker_secret:
            self._broker_secret = secret
            salt = hmac.digest(secret.encode(), b"salt", "sha256")[:SALT_BYTES]
            made = credential_of(BROKER_MECHANISM, Secret(secret), salt, ITERATIONS_MIN)
            self._broker_credential = {BROKER_MECHANISM: made}
        return self._broker_credential

    def _cluster_secret(self) -> bytes:
        return (self._image.replica_secret or self._image.cluster_id).encode()


def read_credential(stored: StoredCredential) -> ScramCredential:
    """A credential as the metadata store keeps it."""
    return ScramCredential(
        b64decode(stored.salt), stored.iterations, b64decode(stored.stored_key), b64decode(stored.server_key)
    )


def write_credential(credential: ScramCredential) -> StoredCredential:
    """The same the other way."""
    return StoredCredential(
        b64encode(credential.salt).decode(),
        credential.iterations,
        b64encode(credential.stored_key).decode(),
        b64encode(credential.server_key).decode(),
    )
