"""AlterConfigs 0–2: replace all settings of a topic, broker or group; what is not named goes back to its default.

The old form of IncrementalAlterConfigs, kept because clients still send it.
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
from martlet.broker.ground.request import RequestContext, outcome_of
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

KEY: Final = ApiKey.ALTER_CONFIGS
VERSIONS: Final = (0, 2)
REQUEST: Final = AlterConfigsRequest


async def handle(broker: BrokerServices, request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Replace the resources' settings one after another."""
    responses = []
    for resource in request.resources:
        result = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        result.error_code, result.error_message = await outcome_of(_replace(broker, resource, request.validate_only))
        responses.append(result)
    return AlterConfigsResponse(responses=responses)


async def _replace(broker: BrokerServices, resource: AlterConfigsResource, validate_only: bool) -> None:
    configs = {config.name: config.value for config in resource.configs}
    if resource.resource_type == TOPIC:
        await broker.config_admin.replace_topic_configs(resource.resource_name, configs, validate_only=validate_only)
    elif resource.resource_type == BROKER:
        target = parse_broker_name(broker.broker_id, resource.resource_name)
        await broker.config_admin.replace_broker_configs(target, configs, validate_only=validate_only)
    elif resource.resource_type == GROUP:
        check_group_name(resource.resource_name)
        await broker.config_admin.replace_group_configs(resource.resource_name, configs, validate_only=validate_only)
    else:
        raise unknown_resource_type(resource.resource_type)
