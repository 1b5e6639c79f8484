"""A consumer group under everything that can happen to it, with honest members and a network that loses things.

Checked after every step: no member owns what another one owns, in the broker and in what members believe (GRP-7);
epochs never go back; handlers change nothing; the indexes agree with what they are made of. At the end members behave
for a while, and then every partition has an owner that knows it.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sim.randomness import SimRandomness

from martlet.base.randomness import IdSource
from martlet.coordinator.result import Result, TimerKey
from martlet.groups.consumer import consumer_group_protocol, heartbeat
from martlet.groups.consumer.consumer_group import AWAY_EPOCH, ConsumerGroup
from martlet.groups.consumer.consumer_group_protocol import ConsumerProtocol
from martlet.groups.consumer.description import state_name
from martlet.groups.consumer.subscriptions import hash_of_topics
from martlet.groups.ports import Caller, GroupsOptions
from martlet.groups.record_codec import GroupRecordCodec
from martlet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.machine_context import MachineContext
from tests.unit.groups.consumer.honest_member import HonestMember
from tests.unit.groups.consumer.sim_topics import SimTopics

CALLER = Caller("client", "/127.0.0.1", 1)
TOPICS = ("one", "two", "three")
REGEXES = ("t.*", ".*e", "none")
MEMBERS_MAX = 6


def state_of(group: ConsumerGroup, *, volatile: bool = True) -> dict[str, Any]:
    """Everything a group is, in a form that compares; without what a restart forgets if asked so."""
    forgotten = set() if volatile else {"assignment_due"}
    state = {name: getattr(group, name) for name in group.__slots__ if name not in {"_index", "members", *forgotten}}
    state["members"] = {id_: (one.stored, one.current) for id_, one in group.members.items()}
    return {name: dict(value) if isinstance(value, dict) else value for name, value in state.items()}


def states_of(machine: ConsumerProtocol, *, volatile: bool = True) -> dict[str, Any]:
    return {group_id: state_of(group, volatile=volatile) for group_id, group in machine.groups.items()}


class Watched(ConsumerProtocol):
    """Fails when anything but replay changes it."""

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int) -> Result[object]:
        return self._unchanged(lambda: super(Watched, self).heartbeat(request, caller, now_ms))

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[object]:
        return self._unchanged(lambda: super(Watched, self).on_timer(key, now_ms))

    def on_loaded(self, now_ms: int) -> Result[object]:
        return self._unchanged(lambda: super(Watched, self).on_loaded(now_ms))

    def _unchanged(self, call: Callable[[], Result[object]]) -> Result[object]:
        before = states_of(self)
        try:
            return call()
        finally:
            assert states_of(self) == before, "a handler changed the state"


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Members come, go, die and lose their answers; topics and brokers change under them."""

    at_once_members_max = 32

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(heartbeat, "AT_ONCE_MEMBERS_MAX", self.at_once_members_max)
        self.patch.setattr(consumer_group_protocol, "AT_ONCE_MEMBERS_MAX", self.at_once_members_max)
        self.topics = SimTopics(one=3, two=2)
        ids = IdSource(SimRandomness("property"))
        self.context = MachineContext[Watched](lambda: Watched(GroupsOptions(), self.topics, ids), GroupRecordCodec())
        self.members: list[HonestMember] = []
        self.started = 0
        self.epochs: dict[str, int] = {}

    @initialize()
    def begin(self) -> None:
        self.start(static=False, wish=["one"])

    # Members

    @precondition(lambda self: len(self.members) < MEMBERS_MAX)
    @rule(static=st.booleans(), wish=st.lists(st.sampled_from(TOPICS), unique=True))
    def start(self, static: bool, wish: list[str]) -> None:
        self.started += 1
        instance = f"i{self.started % 3}" if static else None
        if instance is not None and any(member.instance_id == instance for member in self.members):
            return
        member = HonestMember(f"m{self.started}", instance_id=instance)
        member.subscribe(wish)
        self.members.append(member)
        member.beat(self.send)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), lost=st.booleans(), slow=st.booleans())
    def beat(self, data: st.DataObject, lost: bool, slow: bool) -> None:
        self.one(data).beat(self.send, loses_answer=lost, is_slow=slow)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        self.one(data).let_go()

    @precondition(lambda self: self.members)
    @rule(
        data=st.data(),
        wish=st.lists(st.sampled_from(TOPICS), unique=True),
        regex=st.none() | st.sampled_from(REGEXES),
        assignor=st.sampled_from((None, "range", "uniform")),
    )
    def change_wishes(self, data: st.DataObject, wish: list[str], regex: str | None, assignor: str | None) -> None:
        member = self.one(data)
        member.subscribe(wish, regex)
        member.assignor = assignor
        member.beat(self.send)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), lost=st.booleans())
    def leave(self, data: st.DataObject, lost: bool) -> None:
        member = self.one(data)
        self.members.remove(member)
        if not lost:
            member.leave(self.send)

    @precondition(lambda self: any(member.instance_id for member in self.members))
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """A static member goes for a while and is back under another member id."""
        member = data.draw(st.sampled_from([member for member in self.members if member.instance_id]))
        member.leave(self.send, for_a_while=True)
        self.members.remove(member)
        self.started += 1
        again = HonestMember(f"m{self.started}", instance_id=member.instance_id)
        again.subscribe(member.topics, member.regex)
        self.members.append(again)

    # Everything else

    @rule(seconds=st.sampled_from((1, 5, 15, 46)))
    def wait(self, seconds: int) -> None:
        self.context.advance(seconds * 1_000)

    @rule(name=st.sampled_from(TOPICS), count=st.integers(0, 5))
    def change_topic(self, name: str, count: int) -> None:
        view = self.topics.topic(name)
        if view is None:
            self.topics.create(name, max(count, 1))
        elif count > view.partition_count:
            self.topics.grow(name, count)
        elif count == 0:
            self.topics.delete(name)
        self.context.call(lambda machine, now_ms: machine.topics_changed([name], now_ms))

    @rule(compacts=st.booleans())
    def restart_broker(self, compacts: bool) -> None:
        before = states_of(self.context.machine, volatile=False)
        if compacts:
            self.context.compact()
        self.context.reload()
        assert states_of(self.context.machine, volatile=False) == before

    # What must hold

    @invariant()
    def no_member_owns_what_another_one_owns(self) -> None:
        group = self.context.machine.groups.get("g")
        if group is None:
            return
        owners: dict[Any, str] = {}
        for id_, member in group.members.items():
            for partition in member.current.assigned | member.current.pending_revocation:
                assert owners.setdefault(partition, id_) == id_
        assert owners == group.owners
        believed: dict[Any, str] = {}
        for honest in self.members:
            if honest.member_id in group.members and group.members[honest.member_id].current.epoch != AWAY_EPOCH:
                for partition in honest.owned:
                    assert believed.setdefault(partition, honest.member_id) == honest.member_id

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.context.machine.groups.get("g")
        if group is None:
            return
        now = {"the group": group.epoch, "the target": group.target_epoch}
        now |= {id_: one.current.epoch for id_, one in group.members.items() if one.current.epoch != AWAY_EPOCH}
        for what, epoch in now.items():
            assert epoch >= self.epochs.get(what, 0), what
        assert all(epoch <= group.epoch for epoch in now.values())
        self.epochs.update(now)

    @invariant()
    def indexes_agree_with_what_they_are_made_of(self) -> None:
        group = self.context.machine.groups.get("g")
        if group is None:
            return
        sources: dict[str, int] = {}
        stored = [member.stored for member in group.members.values()]
        for names in [one.topic_names for one in stored] + [one.topics for one in group.regexes.values()]:
            for name in names:
                sources[name] = sources.get(name, 0) + 1
        assert group.topic_sources == sources
        assert set(group.regexes) == {one.topic_regex for one in stored if one.topic_regex}
        assert set(group.targets) <= set(group.members)
        if group.members:
            assert group.metadata_hash == hash_of_topics(sources, self.topics)

    def teardown(self) -> None:
        try:
            self.all_behave()
        finally:
            self.patch.undo()

    def all_behave(self) -> None:
        """With nothing lost and everybody quick, everything finds its owner."""
        for _ in range(16):
            for member in self.members:
                member.beat(self.send)
                self.no_member_owns_what_another_one_owns()
            self.context.advance(5_000)
        group = self.context.machine.groups.get("g")
        if group is None or not self.members:
            return
        assert set(group.members) == {member.member_id for member in self.members}
        assert state_name(group) == "Stable"
        views = [self.topics.topic(name) for name in group.subscribed_topics()]
        wanted = {(view.id, number) for view in views if view for number in range(view.partition_count)}
        assert {partition for member in self.members for partition in member.owned} == wanted
        for member in self.members:
            assert member.owned == group.members[member.member_id].current.assigned

    def one(self, data: st.DataObject) -> HonestMember:
        return data.draw(st.sampled_from(self.members))

    def send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        response = self.context.call(lambda machine, now_ms: machine.heartbeat(request, CALLER, now_ms))
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response


class BigConsumerGroupMachine(ConsumerGroupMachine):
    """The same when targets are made by the timer, as in groups of more than 32 members."""

    at_once_members_max = 1


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBigConsumerGroup = BigConsumerGroupMachine.TestCase
TestBigConsumerGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
