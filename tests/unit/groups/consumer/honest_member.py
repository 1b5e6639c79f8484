"""A consumer as the protocol wants it: tells the truth, gives back before it takes, starts over when it is fenced.

It lives in tests of whole groups. What it believes to own (`owned`) is what a real consumer would be reading.
"""

from collections.abc import Callable

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.groups.consumer.heartbeat import by_topic
from martlet.groups.records import NO_PARTITIONS, Partitions
from martlet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

Send = Callable[[ConsumerGroupHeartbeatRequest], ConsumerGroupHeartbeatResponse]


class HonestMember:
    """One consumer; `send` carries a heartbeat to the broker and back, or raises ApiError."""

    def __init__(self, member_id: str, *, instance_id: str | None = None, rebalance_timeout_ms: int = 20_000) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.topics: list[str] = []
        self.regex: str | None = None
        self.assignor: str | None = None
        self.epoch = 0
        self.owned: Partitions = NO_PARTITIONS
        self.assigned: Partitions = NO_PARTITIONS
        """The newest assignment it has heard of."""
        self.is_unsure = True
        """It must say everything: it joins, or an answer may have got lost."""

    def subscribe(self, topics: list[str], regex: str | None = None) -> None:
        self.topics, self.regex = topics, regex
        self.is_unsure = True

    def beat(self, send: Send, *, loses_answer: bool = False, is_slow: bool = False) -> None:
        """One heartbeat; with `is_slow` it does not let go of anything yet."""
        try:
            response = send(self.request())
        except ApiError as error:
            if not loses_answer:
                self._refused(error.code)
            return
        if loses_answer:
            self.is_unsure = True
            return
        self.is_unsure = False
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = frozenset(
                (TopicId(topic.topic_id), number)
                for topic in response.assignment.topic_partitions
                for number in topic.partitions
            )
        if not is_slow:
            self.let_go()

    def let_go(self) -> None:
        """Give back what it shall not own, then take what it may."""
        self.owned = self.assigned

    def request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest("g", self.member_id, self.epoch, self.instance_id)
        request.topic_partitions = [TopicPartitions(topic_id, numbers) for topic_id, numbers in by_topic(self.owned)]
        if self.is_unsure or self.epoch == 0:
            request.rebalance_timeout_ms = self.rebalance_timeout_ms
            request.subscribed_topic_names = self.topics
            request.subscribed_topic_regex = self.regex or ""
            request.server_assignor = self.assignor
        return request

    def leave(self, send: Send, *, for_a_while: bool = False) -> None:
        """Stop reading, then say so."""
        self.owned = self.assigned = NO_PARTITIONS
        epoch = -2 if for_a_while else -1
        try:
            send(ConsumerGroupHeartbeatRequest("g", self.member_id, epoch, self.instance_id))
        except ApiError as error:
            # The group may be gone, or have turned classic.
            gone = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND)
            if error.code not in gone:
                raise

    def _refused(self, code: ErrorCode) -> None:
        passing = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNRELEASED_INSTANCE_ID)
        assert code in passing, code
        self.owned = self.assigned = NO_PARTITIONS
        self.epoch = 0
        self.is_unsure = True
