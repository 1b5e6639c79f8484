"""ListConfigResources 0–1: topics, brokers, and the groups that set something themselves.

v0 asked for subscriptions to client metrics. There are none here, nor loggers whose levels could be set: both kinds are
known and empty. The empty list asks for every kind.
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.administration.config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

KEY: Final = ApiKey.LIST_CONFIG_RESOURCES
VERSIONS: Final = (0, 1)
REQUEST: Final = ListConfigResourcesRequest

_KINDS: Final = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(
    broker: BrokerServices, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List what the kinds asked for consist of; one kind that is not known refuses the whole."""
    asked = (CLIENT_METRICS,) if context.version == 0 else request.resource_types or _KINDS
    if not set(asked) <= set(_KINDS):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources: list[ConfigResource] = []
    if TOPIC in asked:
        resources += [ConfigResource(topic.name, TOPIC) for topic in broker.image.topics()]
    if BROKER in asked:
        resources += [ConfigResource(str(node.id), BROKER) for node in broker.cluster.nodes(context.link)]
    if GROUP in asked:
        resources += [ConfigResource(group, GROUP) for group in broker.image.groups_with_configs()]
    return ListConfigResourcesResponse(config_resources=resources)
