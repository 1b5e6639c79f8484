"""DescribeProducers 0: the idempotent and transactional producers a partition remembers, with what is open of them."""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

KEY: Final = ApiKey.DESCRIBE_PRODUCERS
VERSIONS: Final = (0, 0)
REQUEST: Final = DescribeProducersRequest


def handle(
    broker: BrokerServices, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """List the producers of every partition asked for."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_describe(broker, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _describe(broker: BrokerServices, topic: str, index: int) -> PartitionResponse:
    try:
        partition = broker.partitions.get(topic, index)
        partition.check_online()
    except ApiError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.detail)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_txn_first_offset,
            )
            for producer_id, producer in partition.log.producers.items()
        ],
    )
