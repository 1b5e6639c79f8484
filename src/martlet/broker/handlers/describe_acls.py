"""DescribeAcls 1–3: the access rules that a filter takes, by resource; SECURITY_DISABLED while rules are off."""

from itertools import groupby
from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import RequestContext
from martlet.broker.handlers.acl_codes import check_rules_are_on, filter_of
from martlet.broker.services import BrokerServices
from martlet.security.rules import Pattern, Rule
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

KEY: Final = ApiKey.DESCRIBE_ACLS
VERSIONS: Final = (1, 3)
REQUEST: Final = DescribeAclsRequest


def handle(broker: BrokerServices, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Gather the rules."""
    try:
        check_rules_are_on(broker)
        wanted = filter_of(request)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.detail)
    taken = [rule for rule in broker.access.rule_admin.rules() if wanted.takes(rule)]
    resources = [
        DescribeAclsResource(pattern.kind, pattern.name, pattern.match, [_describe(rule) for rule in rules])
        for pattern, rules in groupby(taken, _pattern)
    ]
    return DescribeAclsResponse(resources=resources)


def _pattern(rule: Rule) -> Pattern:
    return rule.pattern


def _describe(rule: Rule) -> AclDescription:
    return AclDescription(rule.principal, rule.host, rule.operation, rule.permission)
