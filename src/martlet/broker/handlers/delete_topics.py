"""DeleteTopics 1–6: delete topics by name, from v6 on also by id; each succeeds or fails on its own."""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import NO_TOPIC_ID, TopicId
from martlet.broker.services import BrokerServices
from martlet.broker.serving.request import RequestContext
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

KEY: Final = ApiKey.DELETE_TOPICS
VERSIONS: Final = (1, 6)
REQUEST: Final = DeleteTopicsRequest


async def handle(broker: BrokerServices, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    """Delete the topics one after another."""
    asked = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    return DeleteTopicsResponse(responses=[await _delete(broker, topic) for topic in asked])


async def _delete(broker: BrokerServices, asked: DeleteTopicState) -> DeletableTopicResult:
    result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
    try:
        name = _name(broker, asked)
        record = await broker.admin.delete_topic(name)
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.detail
        return result
    result.name, result.topic_id = record.name, record.id
    return result


def _name(broker: BrokerServices, asked: DeleteTopicState) -> str:
    by_id = asked.topic_id != NO_TOPIC_ID
    if by_id == (asked.name is not None):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a topic to delete is given by its name or by its id")
    if asked.name is not None:
        return asked.name
    record = broker.image.topic_by_id(TopicId(asked.topic_id))
    if record is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    return record.name
