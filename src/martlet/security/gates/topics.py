"""Gates of the APIs that describe, make, change and delete topics, and read positions in them.

Proved by: tests/unit/security/test_gates.py, tests/unit/security/test_filtering_gates.py
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from martlet.base.ids import NO_TOPIC_ID
from martlet.security.gates.gate import TOPIC, Admission, Asker, Gate, one_by_one, split
from martlet.security.gates.gate import TOPIC_REFUSED as REFUSED
from martlet.security.rules import CLUSTER_NAME, Operation, ResourceKind
from martlet.wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED
from martlet.wire.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from martlet.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from martlet.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from martlet.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from martlet.wire.messages.describe_producers import DescribeProducersResponse, PartitionResponse, TopicResponse
from martlet.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from martlet.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from martlet.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from martlet.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

_FIRST_DELETE_BY_ID: Final = 6


def _named(operation: Operation, name: Callable[[Any], str] = lambda topic: str(topic.name)) -> Any:
    return lambda topic, asker: asker.may(operation, TOPIC, name(topic))


list_offsets: Final = one_by_one(
    "topics",
    "topics",
    ListOffsetsResponse,
    _named(Operation.DESCRIBE),
    lambda topic: ListOffsetsTopicResponse(
        topic.name, [ListOffsetsPartitionResponse(asked.partition_index, REFUSED) for asked in topic.partitions]
    ),
)
offset_for_leader_epoch: Final = one_by_one(
    "topics",
    "topics",
    OffsetForLeaderEpochResponse,
    _named(Operation.DESCRIBE, lambda topic: str(topic.topic)),
    lambda topic: OffsetForLeaderTopicResult(
        topic.topic, [EpochEndOffset(REFUSED, asked.partition) for asked in topic.partitions]
    ),
)
delete_records: Final = one_by_one(
    "topics",
    "topics",
    DeleteRecordsResponse,
    _named(Operation.DELETE),
    lambda topic: DeleteRecordsTopicResult(
        topic.name,
        [DeleteRecordsPartitionResult(asked.partition_index, -1, REFUSED) for asked in topic.partitions],
    ),
)
create_partitions: Final = one_by_one(
    "topics",
    "results",
    CreatePartitionsResponse,
    _named(Operation.ALTER),
    lambda topic: CreatePartitionsTopicResult(topic.name, REFUSED),
)
describe_producers: Final = one_by_one(
    "topics",
    "topics",
    DescribeProducersResponse,
    _named(Operation.READ),
    lambda topic: TopicResponse(topic.name, [PartitionResponse(index, REFUSED) for index in topic.partition_indexes]),
)


def may_create(asker: Asker, topic: str) -> bool:
    """Whether the client may make this topic: by a right to the cluster, or to the name."""
    return asker.sees(Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME) or asker.may(Operation.CREATE, TOPIC, topic)


_create: Final[Gate] = one_by_one(
    "topics",
    "topics",
    CreateTopicsResponse,
    lambda topic, asker: may_create(asker, topic.name),
    lambda topic: CreatableTopicResult(topic.name, error_code=REFUSED),
)


def create_topics(request: CreateTopicsRequest, asker: Asker) -> Admission:
    """CREATE; the settings of what was made are shown to those who may describe them."""
    admission = _create(request, asker)
    if admission.answer is not None:
        return admission

    def finish(answer: CreateTopicsResponse) -> CreateTopicsResponse:
        if admission.finish is not None:
            answer = admission.finish(answer)
        return replace(answer, topics=[_without_settings(result, asker) for result in answer.topics])

    return Admission(admission.request, finish)


def _without_settings(result: CreatableTopicResult, asker: Asker) -> CreatableTopicResult:
    if result.error_code or asker.sees(Operation.DESCRIBE_CONFIGS, TOPIC, result.name):
        return result
    return CreatableTopicResult(result.name, result.topic_id, topic_config_error_code=REFUSED)


def delete_topics(request: DeleteTopicsRequest, asker: Asker) -> Admission:
    """DELETE, of the cluster or of the topic; an id whose topic the client may not describe has no name."""
    if asker.sees(Operation.DELETE, ResourceKind.CLUSTER, CLUSTER_NAME):
        return Admission(request)
    if asker.version < _FIRST_DELETE_BY_ID:
        return _delete_by_name(request, asker)
    return _delete_by_state(request, asker)


_delete_by_name: Final = one_by_one(
    "topic_names",
    "responses",
    DeleteTopicsResponse,
    _named(Operation.DELETE, str),
    lambda name: DeletableTopicResult(name, error_code=REFUSED),
)


def _delete_by_state(request: DeleteTopicsRequest, asker: Asker) -> Admission:
    def name_of(topic_id: bytes) -> str | None:
        return asker.topics.name_of(topic_id)

    def may(state: Any) -> bool:
        name = state.name if state.name is not None else name_of(state.topic_id)
        # An id that no topic has: the handler says so.
        return name is None or asker.may(Operation.DELETE, TOPIC, name)

    allowed, denied = split(request.topics, may)
    if not denied:
        return Admission(request)
    refusals = []
    for state in denied:
        name = state.name if state.name is not None else name_of(state.topic_id)
        if state.name is None and not asker.sees_topic(name or ""):
            name = None
        refusals.append(DeletableTopicResult(name, state.topic_id, REFUSED))
    if not allowed:
        return Admission(answer=DeleteTopicsResponse(responses=refusals))
    return Admission(
        replace(request, topics=allowed),
        lambda answer: replace(answer, responses=[*answer.responses, *refusals]),
    )


def metadata(request: MetadataRequest, asker: Asker) -> Admission:
    """DESCRIBE: named topics are refused, others left out; making a topic on first mention needs CREATE."""
    asks_for_all = request.topics is None or (asker.version == 0 and not request.topics)
    refusals: list[MetadataResponseTopic] = []
    admitted = request
    if not asks_for_all:
        allowed, denied = split(request.topics or [], lambda topic: _may_mention(topic, request, asker))
        refusals = [_refused_mention(topic) for topic in denied]
        # Null would ask for all of them, and so would an empty list at v0.
        if denied and not allowed and asker.version == 0:
            return Admission(answer=MetadataResponse(topics=refusals))
        admitted = replace(request, topics=allowed) if denied else request

    def finish(answer: MetadataResponse) -> MetadataResponse:
        topics = answer.topics
        if asks_for_all:
            topics = [topic for topic in topics if asker.sees_topic(topic.name or "")]
        topics = [_with_operations(topic, asker) for topic in topics]
        return replace(
            answer,
            topics=[*topics, *refusals],
            cluster_authorized_operations=cluster_operations(answer.cluster_authorized_operations, asker),
        )

    return Admission(admitted, finish)


def _may_mention(topic: Any, request: MetadataRequest, asker: Asker) -> bool:
    name = topic.name
    if topic.topic_id != NO_TOPIC_ID:
        name = asker.topics.name_of(topic.topic_id)
        if name is None:
            return True  # the handler says that no topic has this id
    if not asker.may(Operation.DESCRIBE, TOPIC, name or ""):
        return False
    creates = request.allow_auto_topic_creation and not asker.topics.exists(name or "")
    return not creates or may_create(asker, name or "")


def _refused_mention(topic: Any) -> MetadataResponseTopic:
    name = topic.name if topic.topic_id == NO_TOPIC_ID else None
    return MetadataResponseTopic(REFUSED, name, topic.topic_id)


def describe_topic_partitions(request: DescribeTopicPartitionsRequest, asker: Asker) -> Admission:
    """DESCRIBE: named topics are refused, others left out, also as the place where the next page begins."""
    refusals: list[DescribeTopicPartitionsResponseTopic] = []
    if request.topics:
        allowed, denied = split(request.topics, lambda topic: asker.may(Operation.DESCRIBE, TOPIC, topic.name))
        refusals = [DescribeTopicPartitionsResponseTopic(REFUSED, topic.name) for topic in denied]
    else:
        allowed = [TopicRequest(name) for name in asker.topics.all() if asker.sees_topic(name)]
    if not allowed:  # no topics would ask for all of them
        return Admission(answer=DescribeTopicPartitionsResponse(topics=refusals))

    def finish(answer: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        return replace(answer, topics=[*(_with_operations(topic, asker) for topic in answer.topics), *refusals])

    return Admission(replace(request, topics=allowed), finish)


def _with_operations(topic: Any, asker: Asker) -> Any:
    if topic.topic_authorized_operations == OPERATIONS_NOT_REQUESTED or topic.name is None:
        return topic
    operations = asker.viewer.authorized_operations(TOPIC, topic.name)
    return replace(topic, topic_authorized_operations=operations)


def cluster_operations(requested: int, asker: Asker) -> int:
    """What the client may do to the cluster, if that was asked; nothing for those who may not describe it."""
    if requested == OPERATIONS_NOT_REQUESTED:
        return requested
    kind = ResourceKind.CLUSTER
    if not asker.sees(Operation.DESCRIBE, kind, CLUSTER_NAME):
        return 0
    return asker.viewer.authorized_operations(kind, CLUSTER_NAME)
