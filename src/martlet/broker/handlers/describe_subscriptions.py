"""DescribeSubscriptions 0 (our own): what subscriptions there are, what they set, and which topics they cover now."""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.cluster.subscriptions import covers
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_subscriptions import (
    DescribedSubscription,
    DescribeSubscriptionsRequest,
    DescribeSubscriptionsResponse,
    SetValue,
)

KEY: Final = ApiKey.DESCRIBE_SUBSCRIPTIONS
VERSIONS: Final = (0, 0)
REQUEST: Final = DescribeSubscriptionsRequest


def handle(
    broker: BrokerServices, request: DescribeSubscriptionsRequest, context: RequestContext
) -> DescribeSubscriptionsResponse:
    """As this broker knows them."""
    known = broker.queues.admin.image.subscriptions()
    names = sorted(known) if request.names is None else request.names
    return DescribeSubscriptionsResponse(subscriptions=[_described(broker, name) for name in names])


def _described(broker: BrokerServices, name: str) -> DescribedSubscription:
    record = broker.image.subscriptions().get(name)
    if record is None:
        return DescribedSubscription(name, ErrorCode.GROUP_ID_NOT_FOUND, f"there is no subscription {name[:249]!r}")
    return DescribedSubscription(
        name,
        id=record.id,
        topics=list(record.topics),
        patterns=list(record.patterns),
        covered=[topic.name for topic in broker.image.topics() if covers(record, topic.name)],
        settings=[SetValue(*item) for item in sorted(record.settings.items())],
        created_at_ms=record.created_at_ms,
        is_paused=record.is_paused,
    )
