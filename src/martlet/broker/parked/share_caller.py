"""What ShareFetch and ShareAcknowledge have in common: who asks, what he may, and which queues it is about.

Rules: a client needs READ of the group and of every topic; what it may not do is answered before what exists.

Proved by: tests/broker/test_share_apis.py, tests/clients/test_share_confluent.py
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import Link
from martlet.broker.queueing.doors import PartitionQueue
from martlet.broker.services import BrokerServices
from martlet.queues.share.sessions import SessionKey, SharePartition
from martlet.security.rules import Operation
from martlet.wire.api_keys import ApiKey

NOT_YET: Final = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.GROUP_ID_NOT_FOUND)
"""The queue will be there in a moment; clients of the share protocol know neither of a fetch."""
LEASE_SETTING: Final = "share.record.lock.duration.ms"


class ShareCaller:
    """The member behind one request of the share protocol."""

    __slots__ = ("_api", "_broker", "_link", "group_id", "member_id")

    def __init__(self, broker: BrokerServices, link: Link, api: ApiKey, group_id: str, member_id: str) -> None:
        self._broker = broker
        self._link = link
        self._api = api
        self.group_id = group_id
        self.member_id = member_id

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.group_id, self.member_id)

    @property
    def connection(self) -> int:
        return self._broker.share.connection_of(self._link)

    @property
    def lease_ms(self) -> int:
        """How long what is leased now stays leased."""
        return self._broker.topic_settings.group_config(self.group_id).number(LEASE_SETTING)

    @property
    def may_renew(self) -> bool:
        return self._broker.topic_settings.group_config(self.group_id).flag("share.renew.acknowledge.enable")

    def check(self) -> None:
        """Refuse a request that no member of this group sends."""
        rules = self._broker.access.rules
        if rules is not None and not rules.may_use_group(self._link, self.group_id, self._api.name):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not self.group_id or not self.member_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a request of the share protocol names its group and its member")

    def queue(self, partition: SharePartition) -> PartitionQueue:
        """The queue of a partition for this member; raises ApiError."""
        broker = self._broker
        broker.partitions.check_acting()
        topic = broker.image.topic_by_id(partition.topic_id)
        rules = broker.access.rules
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        if rules is not None and not rules.may(self._link, Operation.READ, topic.name, self._api.name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return broker.queues.find(partition.topic_id, partition.partition, self.group_id)
