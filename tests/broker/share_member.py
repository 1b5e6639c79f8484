"""A member of a share group on a connection of its own, in few words; its requests are those of the messages."""

import time
import uuid
from types import TracebackType
from typing import Any, Self

from martlet.base.errors import ErrorCode
from martlet.wire.messages import share_acknowledge, share_fetch
from martlet.wire.messages.alter_subscriptions import (
    AlteredSubscription,
    AlterSubscriptionsRequest,
    SubscriptionSetting,
)
from martlet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from martlet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from martlet.wire.records.record import read_records
from tests.broker.raw_client import RawClient

GROUP_RESOURCE = 32
Batch = tuple[int, int, list[int]]


class ShareMember:
    """Joins when it is made; a context manager."""

    def __init__(self, servers: str, group: str, topic: str, topic_id: bytes, *, version: int = 2) -> None:
        self.client = RawClient(servers)
        self.group, self.topic, self.topic_id, self.version = group, topic, topic_id, version
        self.id = str(uuid.uuid4())
        self.session_epoch = 0
        self.member_epoch = self.beat(0, [topic]).member_epoch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def beat(self, epoch: int, topics: list[str] | None = None) -> ShareGroupHeartbeatResponse:
        response: ShareGroupHeartbeatResponse = self.client.call(
            ShareGroupHeartbeatRequest(self.group, self.id, epoch, None, topics), 1
        )
        return response

    def fetch_request(
        self, *batches: Batch, partition: int = 0, count: int = 500, wait_ms: int = 0, mode: int = 1, **fields: Any
    ) -> share_fetch.ShareFetchRequest:
        said = [share_fetch.AcknowledgementBatch(*batch) for batch in batches]
        asked = share_fetch.FetchTopic(self.topic_id, [share_fetch.FetchPartition(partition, said)])
        wanted: dict[str, Any] = {
            "share_session_epoch": self.session_epoch,
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_records": count,
            "batch_size": count,
            "share_acquire_mode": mode,
            "topics": [asked],
        }
        return share_fetch.ShareFetchRequest(self.group, self.id, **(wanted | fields))

    def fetch_answer(self, *batches: Batch, **words: Any) -> share_fetch.ShareFetchResponse:
        response: share_fetch.ShareFetchResponse = self.client.call(self.fetch_request(*batches, **words), self.version)
        if not response.error_code and self.session_epoch >= 0:
            self.session_epoch += 1
        return response

    def fetch(self, *batches: Batch, **words: Any) -> share_fetch.PartitionData:
        """The answer for the one partition; waits until the group's queue is served."""
        until = time.monotonic() + 10
        while True:
            response = self.fetch_answer(*batches, **words)
            assert response.error_code == 0, response.error_message
            ((data,),) = [topic.partitions for topic in response.responses] or [[share_fetch.PartitionData()]]
            if data.acquired_records or batches or time.monotonic() > until or words.get("wait_ms") is not None:
                return data
            batches = ()

    def acknowledge_answer(
        self, *batches: Batch, epoch: int | None = None, renews: bool = False, partition: int = 0
    ) -> share_acknowledge.ShareAcknowledgeResponse:
        said = [share_acknowledge.AcknowledgementBatch(*batch) for batch in batches]
        topics = [
            share_acknowledge.AcknowledgeTopic(self.topic_id, [share_acknowledge.AcknowledgePartition(partition, said)])
        ]
        request = share_acknowledge.ShareAcknowledgeRequest(
            self.group, self.id, self.session_epoch if epoch is None else epoch, renews, topics if batches else []
        )
        response: share_acknowledge.ShareAcknowledgeResponse = self.client.call(request, self.version)
        if not response.error_code:
            self.session_epoch += 1
        return response

    def acknowledge(self, *batches: Batch, **words: Any) -> ErrorCode:
        """The code of the one partition."""
        response = self.acknowledge_answer(*batches, **words)
        assert response.error_code == 0, response.error_message
        return ErrorCode(response.responses[0].partitions[0].error_code)


def set_group(client: RawClient, group: str, **configs: str) -> None:
    """Configurations of a group; dots as double underscores."""
    entries = [AlterableConfig(name.replace("__", "."), 0, value) for name, value in configs.items()]
    resource = AlterConfigsResource(GROUP_RESOURCE, group, entries)
    response = client.call(IncrementalAlterConfigsRequest([resource]), 1)
    assert response.responses[0].error_code == 0, response.responses[0].error_message


def set_subscription(client: RawClient, group: str, **settings: str) -> None:
    """Settings of the subscription that a share group is, once it has had a member; dots as double underscores."""
    named = [SubscriptionSetting(name.replace("__", "."), value) for name, value in settings.items()]
    altered = AlteredSubscription(group, 1, settings=named)
    (result,) = client.call(AlterSubscriptionsRequest([altered]), 0).results
    assert result.error_code == 0, result.error_message


def runs(data: share_fetch.PartitionData) -> list[tuple[int, int, int]]:
    """First offset, last offset and number of deliveries of everything acquired."""
    return [(one.first_offset, one.last_offset, one.delivery_count) for one in data.acquired_records]


def values(data: share_fetch.PartitionData) -> list[bytes | None]:
    """Of all records in an answer, acquired or not."""
    return [record.value for record in read_records(data.records or b"", 1 << 20, check_crc=True)]
