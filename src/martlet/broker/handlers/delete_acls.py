"""DeleteAcls 1–3: takes back the access rules that filters take, and says which those were.

SECURITY_DISABLED while rules are off.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import RequestContext
from martlet.broker.handlers.acl_codes import check_rules_are_on, filter_of
from martlet.broker.services import BrokerServices
from martlet.security.rules import Rule
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

KEY: Final = ApiKey.DELETE_ACLS
VERSIONS: Final = (1, 3)
REQUEST: Final = DeleteAclsRequest


async def handle(broker: BrokerServices, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """One filter after the other; a rule that two of them take is gone with the first."""
    return DeleteAclsResponse(filter_results=[await _delete(broker, asked, context) for asked in request.filters])


async def _delete(broker: BrokerServices, asked: DeleteAclsFilter, context: RequestContext) -> DeleteAclsFilterResult:
    try:
        check_rules_are_on(broker)
        wanted = filter_of(asked)
        taken = [rule for rule in broker.access.rule_admin.rules() if wanted.takes(rule)]
        await broker.access.rule_admin.remove(taken)
    except ApiError as error:
        return DeleteAclsFilterResult(error.code, error.detail)
    for rule in taken:
        broker.access.audit.changed(context.link, f"the access rules, no more: {rule}")
    return DeleteAclsFilterResult(matching_acls=[_describe(rule) for rule in taken])


def _describe(rule: Rule) -> DeleteAclsMatchingAcl:
    kind, match, name = rule.pattern
    return DeleteAclsMatchingAcl(0, None, kind, name, match, rule.principal, rule.host, rule.operation, rule.permission)
