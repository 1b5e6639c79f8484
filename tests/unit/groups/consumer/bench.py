"""A consumer protocol with short words for what members ask of it."""

from collections.abc import Sequence

from sim.randomness import SimRandomness

from martlet.base.randomness import IdSource
from martlet.groups.consumer.consumer_group import ConsumerGroup
from martlet.groups.consumer.consumer_group_protocol import ConsumerProtocol
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.record_codec import GroupRecordCodec
from martlet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.machine_context import MachineContext
from tests.unit.groups.consumer.sim_topics import SimTopics


class ConsumerBench:
    """One machine with its log and its clock; what is refused raises ApiError."""

    def __init__(self, topics: SimTopics | None = None, options: GroupsOptions | None = None) -> None:
        self.topics = topics or SimTopics(orders=4)
        self.options = options or GroupsOptions()
        ids = IdSource(SimRandomness("unit"))
        self.context = MachineContext[ConsumerProtocol](
            lambda: ConsumerProtocol(self.options, self.topics, ids), GroupRecordCodec()
        )

    @property
    def group(self) -> ConsumerGroup:
        return self.context.machine.groups["g"]

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        caller = Caller("client", "/127.0.0.1", version)
        response = self.context.call(lambda machine, now_ms: machine.heartbeat(request, caller, now_ms))
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def join(self, member: str, topics: Sequence[str] = ("orders",)) -> ConsumerGroupHeartbeatResponse:
        return self.send(join_request(member, topics))

    def beat(
        self, member: str, epoch: int, owned: dict[str, list[int]] | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest("g", member, epoch)
        if owned is not None:
            request.topic_partitions = [
                TopicPartitions(self.topics.id_of(name), numbers) for name, numbers in owned.items()
            ]
        return self.send(request)

    def topics_changed(self, *names: str) -> None:
        self.context.call(lambda machine, now_ms: machine.topics_changed(names, now_ms))


def join_request(member: str, topics: Sequence[str] = ("orders",)) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
    )
