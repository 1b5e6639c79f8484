"""CreateAcls 1–3: access rules to be in force from now on, all of the request together.

A rule that cannot be is refused alone (INVALID_REQUEST); one that is there already is no error. SECURITY_DISABLED while
rules are off.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import RequestContext
from martlet.broker.handlers.acl_codes import check_rules_are_on, rule_of
from martlet.broker.services import BrokerServices
from martlet.security.rules import Rule
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

KEY: Final = ApiKey.CREATE_ACLS
VERSIONS: Final = (1, 3)
REQUEST: Final = CreateAclsRequest


async def handle(broker: BrokerServices, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Add the rules that can be."""
    results: list[AclCreationResult] = []
    rules: list[Rule] = []
    for creation in request.creations:
        try:
            check_rules_are_on(broker)
            rules.append(rule_of(creation))
            results.append(AclCreationResult())
        except ApiError as error:
            results.append(AclCreationResult(error.code, error.detail))
    if rules:
        try:
            await broker.access.rule_admin.add(rules)
        except ApiError as error:
            failed = AclCreationResult(error.code, error.detail)
            results = [result if result.error_code else failed for result in results]
        else:
            for rule in rules:
                broker.access.audit.changed(context.link, f"the access rules: {rule}")
    return CreateAclsResponse(results=results)
