"""A classic group among honest clients, hostile requests, silence and restarts keeps its promises.

Honest clients do what client libraries do: join, sync, heartbeat, obey the answers. Hostile requests use any member id,
generation and metadata they like. At every step: handlers change nothing, the group's counts add up, the group knows
every member that waits and timers see to it, the generation does not go back, and a member gets exactly what the leader
of its generation assigned. In the end, left alone, the honest clients are in one Stable generation, and none waits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.randomness import IdSource
from martlet.coordinator.result import Result, TimerKey
from martlet.groups.classic.classic_group import ClassicGroup, ClassicState
from martlet.groups.classic.classic_protocol import ClassicProtocol
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.record_codec import GroupRecordCodec
from martlet.groups.records import ClassicGroupStored
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from martlet.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.machine_context import MachineContext, Pending

GROUP = "g"
OPTIONS = GroupsOptions(group_max_size=6, initial_rebalance_delay_ms=500)
SETTLED_WITHIN_S = 120
Operation = Callable[[ClassicProtocol, int], Result[Any]]


class WatchedProtocol(ClassicProtocol):
    """Sees to it that timers and loading, like requests, change nothing by themselves."""

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[Any]:
        return self.watched(lambda: ClassicProtocol.on_timer(self, key, now_ms))

    def on_loaded(self, now_ms: int) -> Result[Any]:
        return self.watched(lambda: ClassicProtocol.on_loaded(self, now_ms))

    def watched(self, handler: Callable[[], Result[Any]]) -> Result[Any]:
        before = repr(self.groups)
        try:
            return handler()
        finally:
            assert repr(self.groups) == before, "a handler has changed the state"


@dataclass
class Client:
    """An honest consumer, as a client library runs it."""

    name: str
    instance_id: str | None
    version: int
    member_id: str = ""
    generation: int = -1
    phase: str = "out"
    """out, joining, joined, syncing, stable, or gone."""
    parked: Pending | None = None
    to_assign: list[str] = field(default_factory=list)
    """Whom it has to give an assignment, as the leader."""
    skips_assignment: bool = False
    metadata: bytes = b"m0"

    @property
    def is_alive(self) -> bool:
        return self.phase != "gone"

    def forget_wait(self) -> None:
        """Its connection is gone, and with it the answer."""
        self.parked = None
        if self.phase in ("joining", "joined", "syncing"):
            self.phase = "out"


class ClassicGroupModel(RuleBasedStateMachine):
    """One group; the clients are the model."""

    @initialize(
        seed=st.integers(0, 1 << 16),
        instances=st.lists(st.sampled_from([None, None, "one", "two"]), min_size=1, max_size=4),
        rounds=st.sampled_from([0, 3, 15]),
    )
    def begin(self, seed: int, instances: list[str | None], rounds: int) -> None:
        ids = IdSource(SimRandomness(seed))
        self.context: MachineContext[WatchedProtocol] = MachineContext(
            lambda: WatchedProtocol(OPTIONS, ids), GroupRecordCodec()
        )
        self.clients: list[Client] = []
        self.seen_ids: list[str] = ["", "nobody"]
        self.assigned: dict[int, dict[str, bytes]] = {}
        """What the leader of each generation has assigned, by instance or member id."""
        self.newest_generation = 0
        self.stored_generation = 0
        for instance in instances:
            self.start_client(version=9, instance=instance)
        self.step_everybody(rounds, ms=500, is_reversed=False)

    # What honest clients do.

    @rule(version=st.sampled_from([1, 3, 4, 9]), instance=st.sampled_from([None, None, "one", "two"]))
    def start_client(self, version: int, instance: str | None) -> None:
        if sum(client.is_alive for client in self.clients) >= 4:
            return
        for other in self.clients:
            if instance is not None and other.instance_id == instance and other.is_alive:
                other.phase, other.parked = "gone", None
        version = max(version, 5) if instance is not None else version
        self.clients.append(Client(f"c{len(self.clients)}", instance, version))

    @rule(which=st.integers(0, 5))
    def step_client(self, which: int) -> None:
        living = self._living()
        if living:
            self._step(living[which % len(living)])

    @rule(rounds=st.integers(1, 4), ms=st.sampled_from([0, 500]), is_reversed=st.booleans())
    def step_everybody(self, rounds: int, ms: int, is_reversed: bool) -> None:
        for _ in range(rounds):
            living = self._living()
            for client in reversed(living) if is_reversed else living:
                self._step(client)
            self._guarded(lambda: self.context.advance(ms))

    @rule(rounds=st.integers(1, 4))
    def leader_is_slow(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self._living():
                group = self._group()
                if group is None or group.leader != client.member_id or client.phase == "out":
                    self._step(client)
            self._guarded(lambda: self.context.advance(500))

    @rule()
    def it_is_calm_for_a_while(self) -> None:
        self.step_everybody(rounds=15, ms=700, is_reversed=False)

    @rule(which=st.integers(0, 5), version=st.sampled_from([5, 9]))
    def static_client_restarts(self, which: int, version: int) -> None:
        static = [client for client in self._living() if client.instance_id is not None]
        if static:
            client = static[which % len(static)]
            client.forget_wait()
            client.member_id, client.generation, client.phase, client.version = "", -1, "out", version
            self._step(client)

    @rule(which=st.integers(0, 5), metadata=st.sampled_from([b"m0", b"m1"]))
    def client_joins_again(self, which: int, metadata: bytes) -> None:
        """Wherever it was, and perhaps with another subscription."""
        living = self._living()
        if living:
            client = living[which % len(living)]
            client.forget_wait()
            client.metadata, client.phase = metadata, "out"
            self._step(client)

    @rule(which=st.integers(0, 5))
    def client_vanishes(self, which: int) -> None:
        living = self._living()
        if living:
            living[which % len(living)].phase = "gone"

    @rule(which=st.integers(0, 5))
    def client_leaves(self, which: int) -> None:
        living = self._living()
        if not living:
            return
        client = living[which % len(living)]
        if client.member_id and client.instance_id is None:
            self._leave([MemberIdentity(client.member_id)])
        client.phase = "gone"

    @rule(which=st.integers(0, 5))
    def client_loses_its_connection(self, which: int) -> None:
        living = self._living()
        if living:
            living[which % len(living)].forget_wait()

    # What the world does.

    @rule(ms=st.sampled_from([0, 200, 500, 1_000, 3_000, 6_000, 11_000]))
    def time_passes(self, ms: int) -> None:
        self._guarded(lambda: self.context.advance(ms))

    @rule()
    def broker_restarts(self) -> None:
        self._guarded(self.context.reload)
        for client in self.clients:
            client.forget_wait()
        # A generation that was never stored has assigned nothing, and its number is used again.
        self.newest_generation = self.stored_generation

    @rule()
    def log_is_compacted(self) -> None:
        self.context.compact()

    # What hostile clients do.

    @rule(
        who=st.integers(0, 40),
        version=st.sampled_from([0, 3, 5, 9]),
        instance=st.sampled_from([None, None, None, "one", "two", "three"]),
        kind=st.sampled_from(["consumer", "consumer", "consumer", "other", ""]),
        names=st.sampled_from([[], ["range"], ["range"], ["sticky", "range"], ["other"], ["range", "range"]]),
        metadata=st.binary(max_size=2),
    )
    def hostile_join(
        self, who: int, version: int, instance: str | None, kind: str, names: list[str], metadata: bytes
    ) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=[-1, 0, 2_000, 9_000][who % 4],
            member_id=self._any_id(who),
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in names],
        )
        self._call(lambda machine, now_ms: machine.join_group(request, Caller("evil", "/h", version), now_ms))

    @rule(
        who=st.integers(0, 40),
        off=st.sampled_from([0, 0, 0, -1, 1]),
        instance=st.sampled_from([None, None, "one", "two"]),
    )
    def hostile_sync(self, who: int, off: int, instance: str | None) -> None:
        known = [SyncGroupRequestAssignment(member_id, b"stolen") for member_id in self.seen_ids[who % 3 :: 2]]
        request = SyncGroupRequest(GROUP, self.newest_generation + off, self._any_id(who), instance, assignments=known)
        self._call(lambda machine, now_ms: machine.sync_group(request, Caller("evil", "/h", 3), now_ms))

    @rule(
        who=st.integers(0, 40),
        off=st.sampled_from([0, 0, 0, -1, 1]),
        instance=st.sampled_from([None, None, "one", "two"]),
    )
    def hostile_heartbeat(self, who: int, off: int, instance: str | None) -> None:
        request = HeartbeatRequest(GROUP, self.newest_generation + off, self._any_id(who), instance)
        self._call(lambda machine, now_ms: machine.heartbeat(request, Caller("evil", "/h", 4), now_ms))

    @rule(whom=st.lists(st.tuples(st.integers(0, 40), st.sampled_from([None, None, "one", "two"])), max_size=4))
    def hostile_leave(self, whom: list[tuple[int, str | None]]) -> None:
        self._leave([MemberIdentity(self._any_id(who), instance) for who, instance in whom])

    # What must be true.

    @invariant()
    def counts_add_up(self) -> None:
        group = self._group()
        if group is None:
            return
        members = group.members
        assert dict(group.instances) == {
            member.instance_id: member_id for member_id, member in members.items() if member.is_static
        }
        names = [name for member in members.values() for name, _ in member.protocols]
        assert dict(group.protocol_counts) == {name: names.count(name) for name in names}
        assert group.members_bytes == sum(member.size_bytes for member in members.values())
        for waiting in (group.joining, group.fresh, group.unsynced, group.syncing):
            assert waiting.keys() <= members.keys()
        assert not group.pending.keys() & members.keys()
        assert not group.joining.keys() & group.syncing.keys()
        assert (group.leader in members) if members else (group.leader is None)

    @invariant()
    def every_waiting_member_will_be_answered(self) -> None:
        group = self._group()
        if group is None:
            assert not self.context.waiting
            return
        joining = {("join", GROUP, member_id) for member_id in group.joining}
        syncing = {("sync", GROUP, member_id) for member_id in group.syncing}
        assert self.context.waiting.keys() == joining | syncing
        timers = self.context.timers
        if group.state is ClassicState.PREPARING_REBALANCE:
            assert ("rebalance", GROUP) in timers
        if group.unsynced and group.leader in group.unsynced:
            assert ("sync", GROUP) in timers
        assert bool(group.joining) <= (group.state is ClassicState.PREPARING_REBALANCE)
        assert bool(group.syncing) <= (group.state is ClassicState.COMPLETING_REBALANCE)
        for member_id in group.members:
            is_excused = member_id not in group.fresh and (member_id in group.joining or member_id in group.syncing)
            assert is_excused or ("session", GROUP, member_id) in timers
        for member_id in group.pending:
            assert ("pending", GROUP, member_id) in timers

    @invariant()
    def generations_never_go_back(self) -> None:
        group = self._group()
        generation = 0 if group is None else group.generation
        assert generation >= self.newest_generation
        self.newest_generation = generation

    @invariant()
    def log_gives_the_same_group(self) -> None:
        group = self._group()
        codec = GroupRecordCodec()
        loaded = ClassicProtocol(OPTIONS, IdSource(SimRandomness(0)))
        for key, value in self.context.log:
            record = codec.decode(key, value)
            assert isinstance(record, ClassicGroupStored)
            loaded.replay(record)
        twin = loaded.groups.get(GROUP)
        assert (twin is not None) == (group is not None and group.is_stored)
        if twin is None or group is None or group.state not in (ClassicState.STABLE, ClassicState.EMPTY):
            return
        assert _durable_part(twin) == _durable_part(group)

    def teardown(self) -> None:
        if not hasattr(self, "clients"):
            return
        for _ in range(SETTLED_WITHIN_S):
            if self._is_settled():
                break
            for client in self._living():
                self._step(client)
                self._step(client)
            self._guarded(lambda: self.context.advance(1_000))
            self.counts_add_up()
            self.every_waiting_member_will_be_answered()
            self.generations_never_go_back()
        assert self._is_settled(), (self.clients, self._group())
        assert not self.context.waiting

    # How it is done.

    def _living(self) -> list[Client]:
        return [client for client in self.clients if client.is_alive]

    def _group(self) -> ClassicGroup | None:
        return self.context.machine.groups.get(GROUP)

    def _is_settled(self) -> bool:
        group, living = self._group(), self._living()
        if not living:
            return group is None or group.is_empty
        in_one_generation = group is not None and all(
            client.phase == "stable" and client.generation == group.generation for client in living
        )
        return (
            group is not None
            and group.state is ClassicState.STABLE
            and in_one_generation
            and group.members.keys() == {client.member_id for client in living}
        )

    def _call(self, operation: Operation) -> Any:
        """The response, a `Pending`, or the code of the error."""

        def watched(machine: WatchedProtocol, now_ms: int) -> Result[Any]:
            return machine.watched(lambda: operation(machine, now_ms))

        try:
            answer = self.context.call(watched)
        except ApiError as error:
            return error.code
        finally:
            self._note_records()
        if isinstance(answer, JoinGroupResponse) and answer.member_id:
            self._see(answer.member_id)
        return answer

    def _guarded(self, change: Callable[[], None]) -> None:
        change()
        self._note_records()

    def _note_records(self) -> None:
        for record in self.context.take_records():
            if not isinstance(record, ClassicGroupStored):
                continue
            assert record.generation >= self.stored_generation
            is_same_generation = record.generation == self.stored_generation
            self.stored_generation = record.generation
            now = {member.instance_id or member.member_id: member.assignment for member in record.members}
            if is_same_generation:
                assert self.assigned[record.generation] == now, "a generation is assigned once"
            self.assigned[record.generation] = now
        group = self._group()
        for member_id in () if group is None else (*group.members, *group.pending):
            self._see(member_id)

    def _any_id(self, number: int) -> str:
        """A member id that may mean something: those in the group first, then any that ever was."""
        group = self._group()
        current = [] if group is None else [*group.members, *group.pending]
        pool = [*current, *current, *self.seen_ids]
        return pool[number % len(pool)]

    def _see(self, member_id: str) -> None:
        if member_id not in self.seen_ids:
            self.seen_ids.append(member_id)

    def _leave(self, members: list[MemberIdentity]) -> None:
        request = LeaveGroupRequest(GROUP, members=members)
        answer = self._call(lambda machine, now_ms: machine.leave_group(request, Caller("c", "/h", 5), now_ms))
        assert [(entry.member_id, entry.group_instance_id) for entry in answer.members] == [
            (member.member_id, member.group_instance_id) for member in members
        ]

    def _step(self, client: Client) -> None:
        if client.parked is not None:
            if client.parked.done:
                answer, client.parked = client.parked.response, None
                self._hear(client, answer)
        elif client.phase == "out":
            self._hear(client, self._join(client))
        elif client.phase == "joined":
            self._hear(client, self._sync(client))
        elif client.phase == "stable":
            self._heartbeat(client)

    def _join(self, client: Client) -> Any:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=5_000,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", client.metadata), JoinGroupRequestProtocol("sticky", b"")],
        )
        client.phase = "joining"
        caller = Caller(client.name, "/h", client.version)
        return self._call(lambda machine, now_ms: machine.join_group(request, caller, now_ms))

    def _sync(self, client: Client) -> Any:
        text = f"{client.generation} by {client.member_id} for "
        request = SyncGroupRequest(
            GROUP,
            client.generation,
            client.member_id,
            client.instance_id,
            assignments=[SyncGroupRequestAssignment(who, (text + who).encode()) for who in client.to_assign],
        )
        client.phase = "syncing"
        return self._call(lambda machine, now_ms: machine.sync_group(request, Caller(client.name, "/h", 3), now_ms))

    def _heartbeat(self, client: Client) -> None:
        request = HeartbeatRequest(GROUP, client.generation, client.member_id, client.instance_id)
        caller = Caller(client.name, "/h", 4)
        answer = self._call(lambda machine, now_ms: machine.heartbeat(request, caller, now_ms))
        code = answer if isinstance(answer, ErrorCode) else ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            self._obey(client, code)

    def _hear(self, client: Client, answer: Any) -> None:
        match answer:
            case Pending():
                client.parked = answer
            case ErrorCode():
                self._obey(client, answer)
            case JoinGroupResponse() if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id, client.phase = answer.member_id, "out"
            case JoinGroupResponse() | SyncGroupResponse() if answer.error_code:
                self._obey(client, ErrorCode(answer.error_code))
            case JoinGroupResponse():
                self._hear_joined(client, answer)
            case SyncGroupResponse():
                self._hear_assigned(client, answer)

    def _hear_joined(self, client: Client, answer: JoinGroupResponse) -> None:
        assert not client.member_id or answer.member_id == client.member_id
        client.member_id, client.generation, client.phase = answer.member_id, answer.generation_id, "joined"
        leads = answer.leader == client.member_id and not answer.skip_assignment
        client.to_assign = [member.member_id for member in answer.members] if leads else []
        assert bool(answer.members) == (answer.leader == client.member_id)

    def _hear_assigned(self, client: Client, answer: SyncGroupResponse) -> None:
        me = client.instance_id or client.member_id
        # The answer may have been on its way while the group went on; it is about the generation it was asked for.
        assert answer.assignment == self.assigned[client.generation].get(me, b"")
        client.phase = "stable"

    def _obey(self, client: Client, code: ErrorCode) -> None:
        client.phase = "out"
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id, client.generation = "", -1
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            # A hostile client has taken the instance id; a supervisor would start the process again.
            client.member_id, client.generation = "", -1
        else:
            assert code in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ), code


def _durable_part(group: ClassicGroup) -> tuple[Any, ...]:
    members = [
        (member.member_id, member.instance_id, member.session_timeout_ms, group.assignments.get(member.member_id))
        for member in group.members.values()
    ]
    return group.state, group.generation, group.protocol_type, group.protocol_name, group.leader, members


TestClassicGroup = ClassicGroupModel.TestCase
TestClassicGroup.settings = settings(
    max_examples=250,
    stateful_step_count=50,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
