"""DeleteAcls (key 31): takes back the access rules that filters take.

Versions 1–3; v2 is the first flexible one, v3 adds a kind of resource. Codes as in DescribeAcls.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class DeleteAclsFilter:
    """One filter; None takes every name, principal or host."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = None
    pattern_type_filter: int = 3
    principal_filter: str | None = None
    host_filter: str | None = None
    operation: int = 0
    permission_type: int = 0


@message
class DeleteAclsRequest:
    """The filters."""

    filters: list[DeleteAclsFilter] = field(default_factory=list)


@message
class DeleteAclsMatchingAcl:
    """A rule that a filter took."""

    error_code: int = 0
    error_message: str | None = None
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0


@message
class DeleteAclsFilterResult:
    """What one filter took."""

    error_code: int = 0
    error_message: str | None = None
    matching_acls: list[DeleteAclsMatchingAcl] = field(default_factory=list)


@message
class DeleteAclsResponse:
    """The results, in the order of the request."""

    throttle_time_ms: int = 0
    filter_results: list[DeleteAclsFilterResult] = field(default_factory=list)
