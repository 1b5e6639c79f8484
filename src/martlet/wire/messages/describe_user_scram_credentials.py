"""DescribeUserScramCredentials (key 50): which users have which SCRAM credentials, never what is in them.

Version 0, flexible. Mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class UserName:
    """One user."""

    name: str = ""


@message
class DescribeUserScramCredentialsRequest:
    """The users; None or none for all of them."""

    users: list[UserName] | None = None


@message
class CredentialInfo:
    """One credential."""

    mechanism: int = 0
    iterations: int = 0


@message
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: str = ""
    error_code: int = 0
    error_message: str | None = None
    credential_infos: list[CredentialInfo] = field(default_factory=list)


@message
class DescribeUserScramCredentialsResponse:
    """The results by user."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    results: list[DescribeUserScramCredentialsResult] = field(default_factory=list)
