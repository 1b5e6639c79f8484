"""Access rules between the numbers of the ACL messages and the rules of `martlet.security`; refuses numbers unknown.

In filters 1 stands for any; of patterns 2 stands for all that concern a resource of that name.
"""

from enum import IntEnum
from typing import Any, Final, TypeVar

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.services import BrokerServices
from martlet.security.rules import (
    Operation,
    Pattern,
    PatternKind,
    Permission,
    ResourceKind,
    Rule,
    RuleFilter,
    check_rule,
)
from martlet.wire.messages.create_acls import AclCreation

Code = TypeVar("Code", bound=IntEnum)

_ANY: Final = 1
_MATCH: Final = 2

RULES_ARE_OFF: Final = ApiError(ErrorCode.SECURITY_DISABLED, "this broker runs without access rules (`access_rules`)")


def check_rules_are_on(broker: BrokerServices) -> None:
    """Raise SECURITY_DISABLED where rules would have no effect."""
    if broker.access.rules is None:
        raise RULES_ARE_OFF


def rule_of(creation: AclCreation) -> Rule:
    """The rule to create; raises INVALID_REQUEST for one that cannot be."""
    rule = Rule(
        Pattern(
            _code(ResourceKind, creation.resource_type, "resource type"),
            _code(PatternKind, creation.resource_pattern_type, "pattern type"),
            creation.resource_name,
        ),
        creation.principal,
        creation.host,
        _code(Operation, creation.operation, "operation"),
        _code(Permission, creation.permission_type, "permission type"),
    )
    try:
        check_rule(rule)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return rule


def filter_of(asked: Any) -> RuleFilter:
    """The filter of a DescribeAcls request or of one part of DeleteAcls."""
    finds_covering = asked.pattern_type_filter == _MATCH
    return RuleFilter(
        kind=_code_or_any(ResourceKind, asked.resource_type_filter, "resource type"),
        match=None if finds_covering else _code_or_any(PatternKind, asked.pattern_type_filter, "pattern type"),
        name=asked.resource_name_filter,
        finds_covering=finds_covering,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=_code_or_any(Operation, asked.operation, "operation"),
        permission=_code_or_any(Permission, asked.permission_type, "permission type"),
    )


def _code_or_any(kind: type[Code], number: int, what: str) -> Code | None:
    return None if number == _ANY else _code(kind, number, what)


def _code(kind: type[Code], number: int, what: str) -> Code:
    try:
        return kind(number)
    except ValueError:
        allowed = ", ".join(f"{one.value} ({one.name})" for one in kind)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} {number} is not known here; known are {allowed}") from None
