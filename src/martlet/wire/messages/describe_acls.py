"""DescribeAcls (key 29): the access rules that a filter takes.

Versions 1–3; v2 is the first flexible one, v3 adds a kind of resource. Codes are those of `security.rules`, with 1 for
"any" in filters and, for patterns, 2 for "all that concern this resource".
"""

from dataclasses import field

from martlet.wire.message import message


@message
class DescribeAclsRequest:
    """The filter; None takes every name, principal or host."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = None
    pattern_type_filter: int = 3
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: int = 0
    permission_type: int = 0


@message
class AclDescription:
    """One rule."""

    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


@message
class DescribeAclsResource:
    """The rules of one resource, or of all whose names begin alike."""

    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: list[AclDescription] = field(default_factory=list)


@message
class DescribeAclsResponse:
    """The rules by resource."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    resources: list[DescribeAclsResource] = field(default_factory=list)
