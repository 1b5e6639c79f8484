"""AlterSubscriptions 0 (our own): subscriptions are made, altered, paused, continued and deleted.

Each is checked with its settings and its dead-letter topic before it is stored, and answered for itself. A subscription
that exists is not made again; deleting one forgets what it knew of its messages.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.queueing.subscription_admin import SubscriptionAdmin, SubscriptionWish
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.alter_subscriptions import (
    AlteredSubscription,
    AlteredSubscriptionResult,
    AlterSubscriptionsRequest,
    AlterSubscriptionsResponse,
)

KEY: Final = ApiKey.ALTER_SUBSCRIPTIONS
VERSIONS: Final = (0, 0)
REQUEST: Final = AlterSubscriptionsRequest

CREATE: Final = 0
ALTER: Final = 1
DELETE: Final = 2


async def handle(
    broker: BrokerServices, request: AlterSubscriptionsRequest, context: RequestContext
) -> AlterSubscriptionsResponse:
    """One after the other."""
    results = []
    for asked in request.subscriptions:
        try:
            await _carry_out(broker.queues.admin, asked, validate_only=request.validate_only)
            results.append(AlteredSubscriptionResult(asked.name))
        except ApiError as error:
            results.append(AlteredSubscriptionResult(asked.name, error.code, error.detail))
    return AlterSubscriptionsResponse(results=results)


async def _carry_out(admin: SubscriptionAdmin, asked: AlteredSubscription, *, validate_only: bool) -> None:
    settings = {setting.name: setting.value for setting in asked.settings}
    paused = None if asked.paused < 0 else bool(asked.paused)
    wish = SubscriptionWish(asked.name, asked.topics, asked.patterns, settings, paused)
    if asked.operation == CREATE:
        await admin.create(wish, validate_only=validate_only)
    elif asked.operation == ALTER:
        await admin.alter(wish, validate_only=validate_only)
    elif asked.operation == DELETE:
        await admin.delete(asked.name, validate_only=validate_only)
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no operation {asked.operation}")
