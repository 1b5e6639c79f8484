"""The whole groups machine under whatever clients of both protocols may do, with restarts and compaction in between.

Nothing here knows what the right answer is; it holds what must be true whatever happens: a request is answered or
refused with a protocol error, never anything else; an id is one kind of group; a request by itself changes nothing; the
log gives the same groups and offsets again, from a snapshot too; and once nothing happens any more, no client waits.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError
from martlet.base.randomness import IdSource
from martlet.coordinator.result import Result
from martlet.groups.machine import GroupsMachine
from martlet.wire.consumer_protocol import Subscription, write_assignment, write_subscription
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from martlet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from martlet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.machine_context import Pending
from tests.unit.groups.group_bench import SESSION_MS, GroupBench, caller
from tests.unit.groups.offsets.offset_cases import commit_request

GROUPS = st.sampled_from(["g", "g", "h"])
NAMES = st.sampled_from(["a", "b", "c"])
TOPICS = st.sampled_from([("orders",), ("clicks",), ("orders", "clicks")])


class ClassicClient:
    """What a client of the classic protocol remembers."""

    def __init__(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.pending: Pending | None = None
        self.is_leader = False
        self.members: list[str] = []


class AnyClients(RuleBasedStateMachine):
    """Three names may be used by clients of either protocol, in two groups."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = GroupBench()
        self.classic: dict[tuple[str, str], ClassicClient] = {}
        self.epochs: dict[tuple[str, str], int] = {}
        self.owned: dict[tuple[str, str], list[TopicPartitions]] = {}
        self.waiting: list[Pending] = []
        self.snapshot: Iterator[Sequence[object]] | None = None
        """The steps of the snapshot being written that are still to come."""
        self.snapshot_at = 0

    def ask(self, operation: Any) -> Any:
        """The response, or None when it was refused; what is parked is kept."""

        def watched(machine: GroupsMachine, now_ms: int) -> Result[Any]:
            before = state_of(machine)
            try:
                return operation(machine, now_ms)  # type: ignore[no-any-return]
            finally:
                assert state_of(machine) == before, "a handler changed the state"

        try:
            response = self.bench.context.call(watched)
        except ApiError:
            return None
        if isinstance(response, Pending):
            self.waiting.append(response)
        return response

    # The classic protocol

    @rule(group=GROUPS, name=NAMES, topics=TOPICS, static=st.booleans(), version=st.sampled_from([3, 9]))
    def join(self, group: str, name: str, topics: tuple[str, ...], static: bool, version: int) -> None:
        client = self.classic.setdefault((group, name), ClassicClient())
        metadata = write_subscription(Subscription(topics))
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=client.member_id,
            group_instance_id=f"static {name}" if static and version >= 5 else None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", metadata)],
        )
        response = self.ask(lambda machine, now_ms: machine.join_group(request, caller(version), now_ms))
        if isinstance(response, Pending):
            client.pending = response
        elif response is None:
            client.member_id = ""
        else:
            self.joined(client, response)

    def joined(self, client: ClassicClient, response: JoinGroupResponse) -> None:
        client.pending = None
        client.member_id = response.member_id
        client.generation = response.generation_id
        client.is_leader = response.leader == response.member_id
        client.members = [member.member_id for member in response.members]

    @rule(group=GROUPS, name=NAMES)
    def sync(self, group: str, name: str) -> None:
        client = self.classic.setdefault((group, name), ClassicClient())
        if client.pending is not None and client.pending.done:
            self.joined(client, client.pending.response)
        assignment = write_assignment(3, {"orders": [0]})
        request = SyncGroupRequest(
            group_id=group,
            generation_id=client.generation,
            member_id=client.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member, assignment) for member in client.members],
        )
        self.ask(lambda machine, now_ms: machine.sync_group(request, caller(5), now_ms))

    @rule(group=GROUPS, name=NAMES)
    def heartbeat(self, group: str, name: str) -> None:
        client = self.classic.setdefault((group, name), ClassicClient())
        request = HeartbeatRequest(group, client.generation, client.member_id)
        self.ask(lambda machine, now_ms: machine.heartbeat(request, caller(4), now_ms))

    @rule(group=GROUPS, name=NAMES)
    def leave(self, group: str, name: str) -> None:
        client = self.classic.setdefault((group, name), ClassicClient())
        request = LeaveGroupRequest(group, members=[MemberIdentity(client.member_id)])
        self.ask(lambda machine, now_ms: machine.leave_group(request, caller(5), now_ms))
        client.member_id = ""

    # The consumer protocol

    @rule(group=GROUPS, name=NAMES, topics=TOPICS, static=st.booleans())
    def consumer_join(self, group: str, name: str, topics: tuple[str, ...], static: bool) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=f"new {name}",
            instance_id=f"static {name}" if static else None,
            rebalance_timeout_ms=SESSION_MS,
            subscribed_topic_names=list(topics),
            topic_partitions=[],
        )
        self.heard(group, name, self.ask_consumer(request))

    @rule(group=GROUPS, name=NAMES, obeys=st.booleans())
    def consumer_heartbeat(self, group: str, name: str, obeys: bool) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=f"new {name}",
            member_epoch=self.epochs.get((group, name), 1),
            topic_partitions=self.owned.get((group, name)) if obeys else None,
        )
        self.heard(group, name, self.ask_consumer(request))

    @rule(group=GROUPS, name=NAMES, epoch=st.sampled_from([-1, -2]))
    def consumer_leave(self, group: str, name: str, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=f"new {name}",
            member_epoch=epoch,
            instance_id=f"static {name}" if epoch == -2 else None,
        )
        self.ask_consumer(request)

    def ask_consumer(self, request: ConsumerGroupHeartbeatRequest) -> Any:
        return self.ask(lambda machine, now_ms: machine.consumer_group_heartbeat(request, caller(1), now_ms))

    def heard(self, group: str, name: str, response: Any) -> None:
        if response is None:
            self.epochs.pop((group, name), None)
            self.owned.pop((group, name), None)
            return
        self.epochs[group, name] = response.member_epoch
        if response.assignment is not None:
            self.owned[group, name] = response.assignment.topic_partitions

    # The share protocol

    @rule(group=GROUPS, name=NAMES, topics=TOPICS, epoch=st.sampled_from([-1, 0, 0, 1, 2]))
    def share(self, group: str, name: str, topics: tuple[str, ...], epoch: int) -> None:
        names = list(topics) if epoch == 0 else None
        request = ShareGroupHeartbeatRequest(group, f"share {name}", epoch, None, names)
        self.ask(lambda machine, now_ms: machine.share_group_heartbeat(request, caller(1), now_ms))

    # Offsets, groups, the world

    @rule(group=GROUPS, name=NAMES, who=st.sampled_from(["classic", "consumer", "nobody"]))
    def commit(self, group: str, name: str, who: str) -> None:
        member_id, generation = "", -1
        if who == "classic" and (group, name) in self.classic:
            member_id, generation = self.classic[group, name].member_id, self.classic[group, name].generation
        elif who == "consumer":
            member_id, generation = f"new {name}", self.epochs.get((group, name), 1)
        request = commit_request(group, member_id=member_id, generation=generation)
        self.ask(lambda machine, now_ms: machine.offset_commit(request, caller(9), now_ms))

    @rule(group=GROUPS)
    def delete(self, group: str) -> None:
        self.ask(lambda machine, now_ms: machine.delete_group(group, now_ms))

    @rule(orders=st.sampled_from([None, 1, 4, 6]))
    def change_topic(self, orders: int | None) -> None:
        if orders is None:
            self.bench.topics_deleted("orders")
        else:
            self.bench.topics.counts["orders"] = orders
            self.ask(lambda machine, now_ms: machine.topics_changed(["orders"], [], now_ms))

    @rule(ms=st.sampled_from([1, 1_000, SESSION_MS // 2, SESSION_MS, 700_000]))
    def advance(self, ms: int) -> None:
        self.bench.context.advance(ms)

    @rule(compacts=st.booleans())
    def restart(self, compacts: bool) -> None:
        before = durable_state_of(self.bench.machine)
        if compacts:
            self.bench.context.compact()
        self.waiting.clear()  # their connections are gone
        for client in self.classic.values():
            client.pending = None
        self.snapshot = None
        self.bench.context.reload()
        after = durable_state_of(self.bench.machine)
        assert after == before

    @rule(steps=st.integers(1, 4))
    def write_some_of_a_snapshot(self, steps: int) -> None:
        """When it is complete, the log from its beginning on gives what the whole log gives."""
        context = self.bench.context
        if self.snapshot is None:
            self.snapshot, self.snapshot_at = context.machine.live_records(), len(context.log)
        for _ in range(steps):
            records = next(self.snapshot, None)
            if records is None:
                whole, part = self.loaded(context.log), self.loaded(context.log[self.snapshot_at :])
                assert part == whole
                context.log, self.snapshot = context.log[self.snapshot_at :], None
                return
            entries = [context.codec.encode(record) for record in records]
            context.log += [entry for entry in entries if entry is not None]

    def loaded(self, log: list[tuple[bytes, bytes | None]]) -> object:
        """Everything a machine knows that has replayed this log."""
        machine = GroupsMachine(self.bench.options, self.bench.topics, IdSource(SimRandomness(1)))
        for entry in log:
            machine.replay(self.bench.context.codec.decode(*entry))
        return whole_state_of(machine)

    @invariant()
    def a_group_is_of_one_kind(self) -> None:
        machine = self.bench.machine
        kinds = (list(machine.classic.groups), list(machine.consumer.groups), list(machine.share.groups))
        names_of_all = [name for groups in kinds for name in groups]
        assert len(names_of_all) == len(set(names_of_all))
        names = [group[0] for group in self.bench.listed()]
        assert names == sorted(set(names))

    def teardown(self) -> None:
        self.bench.context.advance(3_600_000)
        assert all(pending.done for pending in self.waiting), "a caller waits for ever"
        assert not self.bench.context.waiting
        states = {group[2] for group in self.bench.listed()}
        assert states <= {"Empty"}, "no member is left"


def state_of(machine: GroupsMachine) -> object:
    """Enough of the state to notice a change; comparing all of it would take too long."""
    classic = {
        name: (group.state, group.generation, list(group.members), list(group.joining), list(group.pending))
        for name, group in machine.classic.groups.items()
    }
    consumer = {
        name: (group.epoch, group.target_epoch, [(one.stored, one.current) for one in group.members.values()])
        for name, group in machine.consumer.groups.items()
    }
    share = {
        name: (group.epoch, group.target_epoch, list(group.members.values()), group.known)
        for name, group in machine.share.groups.items()
    }
    return classic, consumer, share, sorted(machine.committed_offsets())


def whole_state_of(machine: GroupsMachine) -> object:
    """The state without the order in which the log brought it about."""
    consumer = {
        name: (
            (group.epoch, group.target_epoch, group.metadata_hash, group.classic_count),
            (dict(group.members), dict(group.targets), dict(group.instances), dict(group.owners)),
            (dict(group.topic_sources), dict(group.regexes), dict(group.regex_users), dict(group.assignor_votes)),
        )
        for name, group in machine.consumer.groups.items()
    }
    offsets = [record for step in machine.offsets.live_records() for record in step]
    share = {
        name: ((group.epoch, group.target_epoch), dict(group.members), dict(group.targets), group.known)
        for name, group in machine.share.groups.items()
    }
    return dict(machine.classic.groups), consumer, share, sorted(offsets, key=repr), machine.offsets.count


def durable_state_of(machine: GroupsMachine) -> object:
    """What a restart must bring back: offsets, epochs, and which groups were stored as which kind."""
    classic = {name: group.generation for name, group in machine.classic.groups.items() if group.is_stored}
    consumer = {name: group.epoch for name, group in machine.consumer.groups.items()}
    share = {name: sorted(group.members) for name, group in machine.share.groups.items()}
    return sorted(classic), consumer, share, sorted(machine.committed_offsets())


TestAnyClients = AnyClients.TestCase
TestAnyClients.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
