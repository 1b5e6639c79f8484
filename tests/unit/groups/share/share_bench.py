"""A share protocol with short words for what members ask of it."""

from collections.abc import Sequence

from martlet.groups.ports import Caller
from martlet.groups.record_codec import GroupRecordCodec
from martlet.groups.share.options import ShareOptions
from martlet.groups.share.record_kinds import SHARE_KINDS
from martlet.groups.share.share_group import ShareGroup
from martlet.groups.share.share_protocol import ShareProtocol
from martlet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.machine_context import MachineContext
from tests.unit.groups.consumer.sim_topics import SimTopics


class ShareBench:
    """One machine with its log and its clock; what is refused raises ApiError."""

    def __init__(self, topics: SimTopics | None = None, options: ShareOptions | None = None) -> None:
        self.topics = topics or SimTopics(orders=2)
        self.options = options or ShareOptions()
        self.context = MachineContext[ShareProtocol](
            lambda: ShareProtocol(self.options, self.topics), GroupRecordCodec(SHARE_KINDS)
        )

    @property
    def machine(self) -> ShareProtocol:
        return self.context.machine

    @property
    def group(self) -> ShareGroup:
        return self.machine.groups["g"]

    def send(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        caller = Caller("client", "/127.0.0.1", 1)
        response = self.context.call(lambda machine, now_ms: machine.heartbeat(request, caller, now_ms))
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def join(self, member: str, topics: Sequence[str] = ("orders",)) -> ShareGroupHeartbeatResponse:
        return self.send(ShareGroupHeartbeatRequest("g", member, 0, None, list(topics)))

    def beat(self, member: str, epoch: int) -> ShareGroupHeartbeatResponse:
        return self.send(ShareGroupHeartbeatRequest("g", member, epoch))

    def topics_changed(self, *names: str) -> None:
        self.context.call(lambda machine, now_ms: machine.topics_changed(names, now_ms))


def numbers(response: ShareGroupHeartbeatResponse) -> list[int] | None:
    """The partitions in an answer, whatever their topics; None when it says nothing of them."""
    if response.assignment is None:
        return None
    return sorted(number for topic in response.assignment.topic_partitions for number in topic.partitions)
