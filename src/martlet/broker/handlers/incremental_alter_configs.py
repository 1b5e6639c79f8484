"""IncrementalAlterConfigs 0–1: change single settings of topics, brokers and groups.

A resource succeeds or fails as a whole. Operations: set 0, delete 1, append 2, subtract 3, the last two for lists only.
`martlet.drain` is a setting of a broker that any broker changes, see `drain_config.py`.
"""

from typing import Final

from martlet.broker.administration.config_resources import (
    BROKER,
    GROUP,
    TOPIC,
    check_group_name,
    parse_broker_name,
    unknown_resource_type,
)
from martlet.broker.administration.drain_config import DRAIN, change_drain
from martlet.broker.ground.request import RequestContext, outcome_of
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import Repeats
from martlet.configs.changes import ConfigChange
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

KEY: Final = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS: Final = (0, 1)
REQUEST: Final = IncrementalAlterConfigsRequest


async def handle(
    broker: BrokerServices, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change the resources one after another."""
    repeats = Repeats((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        result = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        change = _alter(broker, resource, repeats, request.validate_only)
        result.error_code, result.error_message = await outcome_of(change)
        responses.append(result)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(broker: BrokerServices, resource: AlterConfigsResource, repeats: Repeats, validate_only: bool) -> None:
    repeats.check((resource.resource_type, resource.resource_name))
    changes = [ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs]
    if resource.resource_type == TOPIC:
        await broker.config_admin.alter_topic_configs(resource.resource_name, changes, validate_only=validate_only)
    elif resource.resource_type == BROKER and any(change.name == DRAIN for change in changes):
        await change_drain(
            broker.partition_admin, broker.image, resource.resource_name, changes, validate_only=validate_only
        )
    elif resource.resource_type == BROKER:
        target = parse_broker_name(broker.broker_id, resource.resource_name)
        await broker.config_admin.alter_broker_configs(target, changes, validate_only=validate_only)
    elif resource.resource_type == GROUP:
        check_group_name(resource.resource_name)
        await broker.config_admin.alter_group_configs(resource.resource_name, changes, validate_only=validate_only)
    else:
        raise unknown_resource_type(resource.resource_type)
