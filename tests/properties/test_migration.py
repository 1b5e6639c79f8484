"""A group with members of both protocols, which comes and goes between them as its members do.

Checked after every step: no two members read the same partition, as far as the group knows them; an id is a classic or
a consumer group, never both; epochs and generations never go back. At the end members behave, and all is owned.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sim.randomness import SimRandomness

from martlet.base.randomness import IdSource
from martlet.groups.consumer.consumer_group import AWAY_EPOCH
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.record_codec import GroupRecordCodec
from martlet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.machine_context import MachineContext
from tests.unit.groups.consumer.honest_member import HonestMember
from tests.unit.groups.consumer.sim_topics import SimTopics
from tests.unit.groups.migration.honest_classic_member import HonestClassicMember
from tests.unit.groups.migration.two_protocols import TwoProtocols

CALLER = Caller("client", "/127.0.0.1", 1)
MEMBERS_MAX = 3


class MigrationMachine(RuleBasedStateMachine):
    """Members of both kinds come, go and fall silent."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = SimTopics(one=3, two=2)
        ids = IdSource(SimRandomness("migration"))
        options = GroupsOptions(initial_rebalance_delay_ms=0)
        self.context = MachineContext[TwoProtocols](lambda: TwoProtocols(options, self.topics, ids), GroupRecordCodec())
        self.modern: list[HonestMember] = []
        self.classic: list[HonestClassicMember] = []
        self.started = 0
        self.newest_epoch = 0

    @initialize()
    def begin(self) -> None:
        self.start_classic(eager=True)

    @precondition(lambda self: len(self.modern) < MEMBERS_MAX)
    @rule()
    def start_modern(self) -> None:
        self.started += 1
        member = HonestMember(f"m{self.started}")
        member.subscribe(["one", "two"])
        self.modern.append(member)
        member.beat(self.send)

    @precondition(lambda self: len(self.classic) < MEMBERS_MAX)
    @rule(eager=st.booleans())
    def start_classic(self, eager: bool) -> None:
        self.started += 1
        self.classic.append(HonestClassicMember(f"c{self.started}", self.context, self.topics, eager=eager))

    @precondition(lambda self: self.modern)
    @rule(data=st.data(), lost=st.booleans(), slow=st.booleans())
    def beat(self, data: st.DataObject, lost: bool, slow: bool) -> None:
        data.draw(st.sampled_from(self.modern)).beat(self.send, loses_answer=lost, is_slow=slow)

    @precondition(lambda self: self.classic)
    @rule(data=st.data(), steps=st.integers(1, 4))
    def step(self, data: st.DataObject, steps: int) -> None:
        member = data.draw(st.sampled_from(self.classic))
        for _ in range(steps):
            member.step()

    @precondition(lambda self: self.modern)
    @rule(data=st.data(), silently=st.booleans())
    def leave_modern(self, data: st.DataObject, silently: bool) -> None:
        member = data.draw(st.sampled_from(self.modern))
        self.modern.remove(member)
        if not silently:
            member.leave(self.send)

    @precondition(lambda self: self.classic)
    @rule(data=st.data(), silently=st.booleans())
    def leave_classic(self, data: st.DataObject, silently: bool) -> None:
        member = data.draw(st.sampled_from(self.classic))
        self.classic.remove(member)
        if not silently:
            member.leave()

    @rule(seconds=st.sampled_from((1, 3, 12, 50)))
    def wait(self, seconds: int) -> None:
        self.context.advance(seconds * 1_000)

    @rule(name=st.sampled_from(("one", "two")))
    def grow_topic(self, name: str) -> None:
        view = self.topics.topic(name)
        if view is not None and view.partition_count < 6:
            self.topics.grow(name, view.partition_count + 1)
            self.context.call(lambda machine, now_ms: machine.topics_changed([name], now_ms))
            for member in self.classic:
                member.topics_changed()

    @rule(compacts=st.booleans())
    def restart_broker(self, compacts: bool) -> None:
        if "g" in self.context.machine.classic.groups:
            self.newest_epoch = 0  # a classic generation is stored when its leader has synced, not before
        if compacts:
            self.context.compact()
        self.context.reload()
        for member in self.classic:
            member.connection_lost()

    @invariant()
    def no_member_reads_what_another_one_reads(self) -> None:
        machine = self.context.machine
        assert not machine.classic.groups.keys() & machine.consumer.groups.keys()
        believed: dict[Any, str] = {}
        for member in self.known_members():
            for partition in member.owned:
                assert believed.setdefault(partition, member.member_id) == member.member_id, partition

    @invariant()
    def epochs_never_go_back(self) -> None:
        machine = self.context.machine
        consumer, classic = machine.consumer.groups.get("g"), machine.classic.groups.get("g")
        epoch = consumer.epoch if consumer else classic.generation if classic else 0
        assert epoch >= self.newest_epoch
        # An empty group may be replaced by a fresh one of the other kind.
        is_empty = consumer.is_empty if consumer else classic is None or classic.is_empty
        self.newest_epoch = 0 if is_empty else epoch

    def known_members(self) -> list[HonestMember | HonestClassicMember]:
        """Those that the group counts as its own, in the epoch they believe in."""
        machine = self.context.machine
        everybody: list[HonestMember | HonestClassicMember] = [*self.modern, *self.classic]
        if "g" in machine.consumer.groups:
            members = machine.consumer.groups["g"].members
            return [
                one
                for one in everybody
                if one.member_id in members and members[one.member_id].current.epoch != AWAY_EPOCH
            ]
        group = machine.classic.groups.get("g")
        if group is None:
            return []
        return [one for one in self.classic if one.member_id in group.members and one.generation == group.generation]

    def teardown(self) -> None:
        for _ in range(60):
            for modern in self.modern:
                modern.beat(self.send)
                self.no_member_reads_what_another_one_reads()
            for classic in self.classic:
                classic.step()
                self.no_member_reads_what_another_one_reads()
            self.context.advance(1_500)
        everybody: list[HonestMember | HonestClassicMember] = [*self.modern, *self.classic]
        if not everybody:
            return
        machine = self.context.machine
        assert ("g" in machine.consumer.groups) == bool(self.modern)
        views = [view for view in map(self.topics.topic, ("one", "two")) if view is not None]
        wanted = {(view.id, number) for view in views for number in range(view.partition_count)}
        assert {partition for member in everybody for partition in member.owned} == wanted
        assert sum(len(member.owned) for member in everybody) == len(wanted)

    def send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        response = self.context.call(lambda machine, now_ms: machine.consumer_group_heartbeat(request, CALLER, now_ms))
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response


TestMigration = MigrationMachine.TestCase
TestMigration.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
