"""WriteTxnMarkers 1–2: a coordinator on another broker, or an administrator, ends transactions on partitions here.

- Each partition is answered for itself, when its marker is committed and, on `__consumer_offsets`, applied.
- A marker that comes a second time is accepted; one of an older transaction gets INVALID_PRODUCER_EPOCH, one of a
  coordinator that was replaced TRANSACTION_COORDINATOR_FENCED.
"""

import asyncio
from typing import Final

from martlet.base.ids import TopicPartition
from martlet.broker.ground.request import RequestContext
from martlet.broker.partitions.transaction_guards import MarkerOf
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

KEY: Final = ApiKey.WRITE_TXN_MARKERS
VERSIONS: Final = (1, 2)
REQUEST: Final = WriteTxnMarkersRequest


async def handle(
    broker: BrokerServices, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    """Write all of them at once."""
    results = await asyncio.gather(*(_write(broker, marker) for marker in request.markers))
    return WriteTxnMarkersResponse(results)


async def _write(broker: BrokerServices, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = MarkerOf(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    names = frozenset(TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partition_indexes)
    outcomes = await broker.transactions.markers.write(marker, names)
    return WritableTxnMarkerResult(
        asked.producer_id,
        [
            WritableTxnMarkerTopicResult(
                topic.name,
                [
                    WritableTxnMarkerPartitionResult(index, outcomes[TopicPartition(topic.name, index)])
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )
