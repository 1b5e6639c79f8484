"""DescribeConfigs 1–4: settings of topics, brokers and groups with where each value comes from.

v3 adds types and explanations. Resource types: topic 2, broker 4, group 32, which need not exist; others have no
settings here and are answered with INVALID_REQUEST. A broker's name is its id; the empty name means the cluster-wide
defaults changed at run time. A broker tells its own settings only, except for `martlet.drain`, which every broker tells
of every other.
"""

from collections.abc import Sequence
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.administration.config_resources import (
    BROKER,
    GROUP,
    TOPIC,
    check_group_name,
    parse_broker_name,
    unknown_resource_type,
)
from martlet.broker.administration.drain_config import DRAIN, asks_only_for_drain, drain_entry
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import in_turns
from martlet.cluster.topic_names import check_topic_name
from martlet.configs.effective import BrokerLayers, ConfigEntry, ConfigSource, effective_broker_config
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

KEY: Final = ApiKey.DESCRIBE_CONFIGS
VERSIONS: Final = (1, 4)
REQUEST: Final = DescribeConfigsRequest


async def handle(
    broker: BrokerServices, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe every resource asked for, once."""
    unique = {(asked.resource_type, asked.resource_name): asked for asked in request.resources}
    results = [_describe(broker, request, asked) async for asked in in_turns(unique.values())]
    return DescribeConfigsResponse(results=results)


def _describe(
    broker: BrokerServices, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
    try:
        entries = _entries(broker, asked)
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.detail
        return result
    result.configs = [
        DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
                for synonym in (entry.synonyms if request.include_synonyms else ())
            ],
            config_type=entry.type,
            documentation=entry.documentation if request.include_documentation else None,
        )
        for entry in entries
    ]
    return result


def _entries(broker: BrokerServices, asked: DescribeConfigsResource) -> Sequence[ConfigEntry]:
    # A null list asks for everything; some clients send an empty one and mean the same.
    names = asked.configuration_keys or None
    if asked.resource_type == TOPIC:
        check_topic_name(asked.resource_name)
        topic = broker.image.topic(asked.resource_name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return broker.topic_settings.topic_config(topic).entries(names)
    if asked.resource_type == GROUP:
        check_group_name(asked.resource_name)
        return broker.topic_settings.group_config(asked.resource_name).entries(names)
    if asked.resource_type == BROKER:
        if asks_only_for_drain(names):
            return [drain_entry(broker.image, asked.resource_name)]
        if parse_broker_name(broker.broker_id, asked.resource_name) is not None:
            drain = [drain_entry(broker.image, asked.resource_name)] if names is None or DRAIN in names else []
            return [*broker.topic_settings.broker_config().entries(names), *drain]
        defaults = BrokerLayers(dynamic_default=broker.image.broker_configs(None))
        return [
            entry
            for entry in effective_broker_config(defaults).entries(names)
            if entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
        ]
    raise unknown_resource_type(asked.resource_type)
