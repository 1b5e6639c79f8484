"""CreateAcls (key 30): access rules to be in force from now on.

Versions 1–3; v2 is the first flexible one, v3 adds a kind of resource. Codes are those of `security.rules`.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class AclCreation:
    """One rule."""

    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


@message
class CreateAclsRequest:
    """The rules."""

    creations: list[AclCreation] = field(default_factory=list)


@message
class AclCreationResult:
    """What became of one rule."""

    error_code: int = 0
    error_message: str | None = None


@message
class CreateAclsResponse:
    """The results, in the order of the request."""

    throttle_time_ms: int = 0
    results: list[AclCreationResult] = field(default_factory=list)
