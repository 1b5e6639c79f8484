"""AlterUserScramCredentials (key 51): gives users SCRAM credentials, or takes them away.

Version 0, flexible. Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512. The salted password is as good as the password
for its salt, so it is never shown.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ScramCredentialDeletion:
    """A credential to take away."""

    name: str = ""
    mechanism: int = 0


@message
class ScramCredentialUpsertion:
    """A credential to give."""

    name: str = ""
    mechanism: int = 0
    iterations: int = 0
    salt: bytes = field(default=b"", repr=False)
    salted_password: bytes = field(default=b"", repr=False)


@message
class AlterUserScramCredentialsRequest:
    """The changes."""

    deletions: list[ScramCredentialDeletion] = field(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)


@message
class AlterUserScramCredentialsResult:
    """What became of one user's changes."""

    user: str = ""
    error_code: int = 0
    error_message: str | None = None


@message
class AlterUserScramCredentialsResponse:
    """The results by user."""

    throttle_time_ms: int = 0
    results: list[AlterUserScramCredentialsResult] = field(default_factory=list)
