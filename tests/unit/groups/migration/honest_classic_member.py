"""A consumer that speaks the classic protocol: joins, syncs, leads when asked to, and rejoins when told to.

An eager one gives everything back before it joins again; a cooperative one keeps reading, says what it owns, and joins
once more when it has given something back.
"""

from typing import Any

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.ports import Caller
from martlet.groups.records import NO_PARTITIONS, Partitions
from martlet.wire.consumer_protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from martlet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.machine_context import MachineContext, Pending
from tests.unit.groups.consumer.sim_topics import SimTopics
from tests.unit.groups.migration.two_protocols import TwoProtocols

SESSION_MS = 10_000


class HonestClassicMember:
    """One consumer; `step` lets it do the next thing it has to do."""

    def __init__(self, name: str, context: MachineContext[TwoProtocols], topics: SimTopics, *, eager: bool) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.owned: Partitions = NO_PARTITIONS
        self.is_eager = eager
        self.subscription: list[str] = ["one", "two"]
        self._context = context
        self._topics = topics
        self._waits_for: Pending | None = None
        self._must_join = True

    def step(self) -> None:
        """Look at the answer it waits for, or join, or send a heartbeat."""
        if self._waits_for is not None:
            if not self._waits_for.done:
                return
            answer, self._waits_for = self._waits_for.response, None
            self._answered(answer)
        elif self._must_join:
            self._join()
        else:
            self._beat()

    def leave(self) -> None:
        self.owned = NO_PARTITIONS
        request = LeaveGroupRequest("g", self.member_id, [MemberIdentity(self.member_id)])
        self._call(lambda machine, now_ms: machine.leave_group(request, self._caller(5), now_ms))

    def topics_changed(self) -> None:
        """Its metadata is new: consumers of classic groups notice that themselves, and join again."""
        self._must_join = True

    def connection_lost(self) -> None:
        """The broker restarted: whatever it waited for will not come."""
        if self._waits_for is not None:
            self._waits_for = None
            self._must_join = True

    def _beat(self) -> None:
        request = HeartbeatRequest("g", self.generation, self.member_id)
        response = self._call(lambda machine, now_ms: machine.heartbeat(request, self._caller(4), now_ms))
        if response is not None:
            self._refused(ErrorCode(response.error_code))

    def _join(self) -> None:
        if self.is_eager:
            self.owned = NO_PARTITIONS
        owned: dict[str, list[int]] = {}
        for topic_id, number in sorted(self.owned):
            view = self._topics.topic_by_id(topic_id)
            if view is not None:
                owned.setdefault(view.name, []).append(number)
        subscription = Subscription(
            tuple(self.subscription), None, {name: tuple(numbers) for name, numbers in owned.items()}
        )
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("shared", write_subscription(subscription))],
        )
        self._answered(self._call(lambda machine, now_ms: machine.join_group(request, self._caller(9), now_ms)))

    def _answered(self, answer: Any) -> None:
        if isinstance(answer, Pending):
            self._waits_for = answer
        elif isinstance(answer, JoinGroupResponse):
            self._joined(answer)
        elif isinstance(answer, SyncGroupResponse):
            self._synced(answer)

    def _joined(self, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return
        if answer.error_code:
            self._refused(ErrorCode(answer.error_code))
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        leads = answer.leader == self.member_id
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="shared",
            assignments=self._assign(answer) if leads else [],
        )
        self._answered(self._call(lambda machine, now_ms: machine.sync_group(request, self._caller(5), now_ms)))

    def _synced(self, answer: SyncGroupResponse) -> None:
        if answer.error_code:
            self._refused(ErrorCode(answer.error_code))
            return
        got = read_assignment(answer.assignment)
        assert got is not None
        assigned = frozenset(
            (self._topics.id_of(name), number)
            for name, numbers in got.partitions.items()
            if self._topics.topic(name) is not None
            for number in numbers
        )
        self._must_join = bool(self.owned - assigned)
        self.owned = assigned

    def _assign(self, answer: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Deal everything out; what another one still owns is given to no member in this round."""
        owner: dict[tuple[str, int], str] = {}
        names: set[str] = set()
        for member in answer.members:
            said = read_subscription(member.metadata)
            assert said is not None
            names |= set(said.topics)
            for name, numbers in said.owned.items():
                owner.update({(name, number): member.member_id for number in numbers})
        shares: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in answer.members}
        order = sorted(shares)
        views = [view for view in map(self._topics.topic, sorted(names)) if view is not None]
        everything = [(view.name, number) for view in views for number in range(view.partition_count)]
        for place, (name, number) in enumerate(everything):
            member_id = order[place % len(order)]
            if owner.get((name, number), member_id) == member_id:
                shares[member_id].setdefault(name, []).append(number)
        return [SyncGroupRequestAssignment(id_, write_assignment(3, share)) for id_, share in shares.items()]

    def _refused(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            return
        self._must_join = True
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        assert code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION), code
        self.owned = NO_PARTITIONS
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _call(self, operation: Any) -> Any:
        try:
            return self._context.call(operation)
        except ApiError as error:
            self._refused(error.code)
            return None

    def _caller(self, version: int) -> Caller:
        return Caller(self.name, "/127.0.0.1", version)
