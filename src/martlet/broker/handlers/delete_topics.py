"""DeleteTopics 1–6: delete topics by name, from v6 on also by id; each succeeds or fails on its own.

What is not deleted in the request's time gets REQUEST_TIMED_OUT, and is deleted later all the same.
"""

from collections.abc import Sequence
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import NO_TOPIC_ID, TopicId
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.timed_work import NOT_IN_TIME, TimedAnswer
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


def handle(broker: BrokerServices, request: DeleteTopicsRequest, context: RequestContext) -> TimedAnswer:
    """Delete the topics one after another."""
    asked = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
    results = [
        DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=NOT_IN_TIME.code, error_message=NOT_IN_TIME.detail
        )
        for topic in asked
    ]
    work = _delete(broker, asked, results)
    return TimedAnswer(work, request.timeout_ms, lambda: DeleteTopicsResponse(responses=results))


async def _delete(
    broker: BrokerServices, asked: Sequence[DeleteTopicState], results: Sequence[DeletableTopicResult]
) -> None:
    for topic, result in zip(asked, results, strict=True):
        try:
            record = await broker.topic_admin.delete_topic(_name(broker, topic))
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.detail
        else:
            result.error_code, result.error_message = ErrorCode.NONE, None
            result.name, result.topic_id = record.name, record.id


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
