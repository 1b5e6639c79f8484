"""CreateTopics 2–7: make topics; each succeeds or fails on its own, and a made topic is visible when it is answered.

v5 returns the settings in force, v7 the topic's id. `validate_only` checks everything and makes nothing. A name that
occurs twice in one request is refused for both. What is not made in the request's time gets REQUEST_TIMED_OUT, and is
made later all the same.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.timed_work import NOT_IN_TIME, TimedAnswer
from martlet.broker.serving.turns import Repeats, in_turns
from martlet.cluster.records import TopicRecord
from martlet.cluster.topic_decisions import TopicWish
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

KEY: Final = ApiKey.CREATE_TOPICS
VERSIONS: Final = (2, 7)
REQUEST: Final = CreateTopicsRequest

_CHOSEN_BY_BROKER: Final = -1
_TOPICS_MAX: Final = 2_000


def handle(broker: BrokerServices, request: CreateTopicsRequest, context: RequestContext) -> TimedAnswer:
    """Make the topics one after another."""
    results = [
        CreatableTopicResult(name=topic.name, error_code=NOT_IN_TIME.code, error_message=NOT_IN_TIME.detail)
        for topic in request.topics
    ]
    work = _create(broker, request, results)
    return TimedAnswer(work, request.timeout_ms, lambda: CreateTopicsResponse(topics=results))


async def _create(broker: BrokerServices, request: CreateTopicsRequest, results: list[CreatableTopicResult]) -> None:
    repeats = Repeats(topic.name for topic in request.topics)
    async for topic, result in in_turns(zip(request.topics, results, strict=True)):
        try:
            repeats.check(topic.name)
            if len(request.topics) > _TOPICS_MAX:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"one request makes at most {_TOPICS_MAX} topics")
            record = await broker.topic_admin.create_topic(read_wish(topic), validate_only=request.validate_only)
            _describe(broker, record, result)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.detail


def read_wish(topic: CreatableTopic) -> TopicWish:
    """What the client wants; contradictions that only the wire form can have are refused here."""
    if topic.assignments and (topic.num_partitions, topic.replication_factor) != (_CHOSEN_BY_BROKER, _CHOSEN_BY_BROKER):
        detail = "a topic is made either by numbers or by an assignment of replicas, not both"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)
    assignments = {one.partition_index: one.broker_ids for one in topic.assignments}
    configs = {config.name: config.value for config in topic.configs}
    if len(assignments) != len(topic.assignments) or len(configs) != len(topic.configs):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a partition or a configuration is named more than once")
    return TopicWish(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=assignments,
        configs=configs,
    )


def _describe(broker: BrokerServices, record: TopicRecord, result: CreatableTopicResult) -> None:
    result.error_code, result.error_message = ErrorCode.NONE, None
    result.topic_id = record.id
    result.num_partitions = record.partition_count
    result.replication_factor = record.replication_factor
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in broker.topic_settings.topic_config(record).entries()
    ]
