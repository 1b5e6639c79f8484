"""Gates of the APIs of idempotent and transactional producers.

Proved by: tests/unit/security/test_gates.py, tests/unit/security/test_filtering_gates.py
"""

from dataclasses import replace
from typing import Any, Final

from martlet.base.errors import ErrorCode
from martlet.base.ids import TRANSACTION_GROUP_PREFIX
from martlet.security.gates.gate import (
    CLUSTER_REFUSED,
    GROUP,
    GROUP_REFUSED,
    ID_REFUSED,
    TOPIC,
    TOPIC_REFUSED,
    TRANSACTIONAL_ID,
    Admission,
    Asker,
    one_by_one,
    split,
    whole,
)
from martlet.security.rules import Operation
from martlet.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from martlet.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from martlet.wire.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from martlet.wire.messages.end_transaction_group import EndTransactionGroupRequest, EndTransactionGroupResponse
from martlet.wire.messages.end_txn import EndTxnResponse
from martlet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from martlet.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from martlet.wire.messages.open_transaction_group import OpenTransactionGroupRequest, OpenTransactionGroupResponse
from martlet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from martlet.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_FIRST_BETWEEN_BROKERS: Final = 4
"""From this version on AddPartitionsToTxn is what brokers send each other."""


def init_producer_id(request: InitProducerIdRequest, asker: Asker) -> Admission:
    """WRITE of the transactional id; without one IDEMPOTENT_WRITE of the cluster, or WRITE of some topic."""
    if request.transactional_id is not None:
        if asker.may(Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
            return Admission(request)
        return Admission(answer=InitProducerIdResponse(error_code=ID_REFUSED))
    if asker.viewer.may_somewhere(Operation.WRITE, TOPIC) or asker.may_on_cluster(Operation.IDEMPOTENT_WRITE):
        return Admission(request)
    return Admission(answer=InitProducerIdResponse(error_code=CLUSTER_REFUSED))


def add_partitions_to_txn(request: AddPartitionsToTxnRequest, asker: Asker) -> Admission:
    """WRITE of the id and of every topic: one that is refused keeps the others out too."""
    if asker.version >= _FIRST_BETWEEN_BROKERS:
        if asker.may_on_cluster(Operation.CLUSTER_ACTION):
            return Admission(request)
        return Admission(answer=AddPartitionsToTxnResponse(error_code=CLUSTER_REFUSED))
    topics = request.v3_and_below_topics
    if not asker.may(Operation.WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return Admission(answer=_added(topics, lambda topic: ID_REFUSED))
    _, denied = split(topics, lambda topic: asker.may(Operation.WRITE, TOPIC, topic.name))
    if not denied:
        return Admission(request)
    names = {topic.name for topic in denied}
    return Admission(
        answer=_added(topics, lambda topic: TOPIC_REFUSED if topic.name in names else ErrorCode.OPERATION_NOT_ATTEMPTED)
    )


def _added(topics: list[Any], code: Any) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name, [AddPartitionsToTxnPartitionResult(index, code(topic)) for index in topic.partitions]
            )
            for topic in topics
        ]
    )


def add_offsets_to_txn(request: AddOffsetsToTxnRequest, asker: Asker) -> Admission:
    """WRITE of the id, READ of the group."""
    if not asker.may(Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return Admission(answer=AddOffsetsToTxnResponse(error_code=ID_REFUSED))
    if not asker.may(Operation.READ, GROUP, request.group_id):
        return Admission(answer=AddOffsetsToTxnResponse(error_code=GROUP_REFUSED))
    return Admission(request)


end_txn: Final = whole(
    lambda request, asker: asker.may(Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id),
    lambda request, version: EndTxnResponse(error_code=ID_REFUSED),
)


def _may_decide(request: OpenTransactionGroupRequest | EndTransactionGroupRequest, asker: Asker) -> bool:
    """WRITE of the transactional id that stands for the group; its children are part of it by their names."""
    return asker.may(Operation.WRITE, TRANSACTIONAL_ID, TRANSACTION_GROUP_PREFIX + request.group)


open_transaction_group: Final = whole(
    _may_decide, lambda request, version: OpenTransactionGroupResponse(error_code=ID_REFUSED)
)
end_transaction_group: Final = whole(
    _may_decide, lambda request, version: EndTransactionGroupResponse(error_code=ID_REFUSED)
)


def _refused_markers(request: WriteTxnMarkersRequest, version: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                marker.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [WritableTxnMarkerPartitionResult(index, CLUSTER_REFUSED) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


write_txn_markers: Final = whole(
    lambda request, asker: asker.may_on_cluster(Operation.CLUSTER_ACTION), _refused_markers
)


def txn_offset_commit(request: TxnOffsetCommitRequest, asker: Asker) -> Admission:
    """WRITE of the id, READ of the group, READ of each topic."""
    if not asker.may(Operation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return Admission(answer=TxnOffsetCommitResponse(topics=_refused_commits(request.topics, ID_REFUSED)))
    if not asker.may(Operation.READ, GROUP, request.group_id):
        return Admission(answer=TxnOffsetCommitResponse(topics=_refused_commits(request.topics, GROUP_REFUSED)))
    allowed, denied = split(request.topics, lambda topic: asker.may(Operation.READ, TOPIC, topic.name))
    if not denied:
        return Admission(request)
    refusals = _refused_commits(denied, TOPIC_REFUSED)
    if not allowed:
        return Admission(answer=TxnOffsetCommitResponse(topics=refusals))
    return Admission(
        replace(request, topics=allowed), lambda answer: replace(answer, topics=[*answer.topics, *refusals])
    )


def _refused_commits(topics: list[Any], code: ErrorCode) -> list[TxnOffsetCommitResponseTopic]:
    return [
        TxnOffsetCommitResponseTopic(
            topic.name, [TxnOffsetCommitResponsePartition(asked.partition_index, code) for asked in topic.partitions]
        )
        for topic in topics
    ]


_describe_transactions: Final = one_by_one(
    "transactional_ids",
    "transaction_states",
    DescribeTransactionsResponse,
    lambda name, asker: asker.may(Operation.DESCRIBE, TRANSACTIONAL_ID, name),
    lambda name: TransactionState(ID_REFUSED, name),
)


def describe_transactions(request: Any, asker: Asker) -> Admission:
    """DESCRIBE of each id; topics that the client may not describe are left out."""
    admission = _describe_transactions(request, asker)
    if admission.answer is not None:
        return admission

    def finish(answer: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        states = [
            replace(state, topics=[topic for topic in state.topics if asker.sees_topic(topic.topic)])
            for state in answer.transaction_states
        ]
        answer = replace(answer, transaction_states=states)
        return admission.finish(answer) if admission.finish is not None else answer

    return Admission(admission.request, finish)


def list_transactions(request: ListTransactionsRequest, asker: Asker) -> Admission:
    """Those with DESCRIBE of their id."""

    def finish(answer: ListTransactionsResponse) -> ListTransactionsResponse:
        seen = [
            state
            for state in answer.transaction_states
            if asker.sees(Operation.DESCRIBE, TRANSACTIONAL_ID, state.transactional_id)
        ]
        return replace(answer, transaction_states=seen)

    return Admission(request, finish)
