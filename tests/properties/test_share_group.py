"""Share groups under any order of joins, heartbeats, silences, changes of topics and restarts."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.records import Partitions
from martlet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from tests.unit.groups.consumer.sim_topics import SimTopics
from tests.unit.groups.share.share_bench import ShareBench

MEMBERS = st.sampled_from([f"member-{number}" for number in range(6)])
SUBSCRIPTIONS = st.sets(st.sampled_from(["orders", "bills", "later"]), min_size=1).map(sorted)


class ShareGroups(RuleBasedStateMachine):
    """Honest members: each knows its epoch and partitions from the answers it got."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = ShareBench(SimTopics(orders=3, bills=1))
        self.epochs: dict[str, int] = {}
        self.assigned: dict[str, Partitions] = {}
        self.highest = 0

    def heard(self, member: str, response: ShareGroupHeartbeatResponse) -> None:
        assert response.member_epoch >= self.epochs.get(member, 0)
        self.epochs[member] = response.member_epoch
        if response.assignment is not None:
            self.assigned[member] = frozenset(
                (topic.topic_id, number)  # type: ignore[misc]  # ids come as plain bytes
                for topic in response.assignment.topic_partitions
                for number in topic.partitions
            )

    @rule(member=MEMBERS, topics=SUBSCRIPTIONS, is_heard=st.booleans())
    def join(self, member: str, topics: list[str], is_heard: bool) -> None:
        response = self.bench.join(member, topics)
        self.epochs.pop(member, None)
        self.assigned.pop(member, None)
        if is_heard:
            self.heard(member, response)

    @rule(member=MEMBERS, is_heard=st.booleans())
    def beat(self, member: str, is_heard: bool) -> None:
        if member not in self.epochs:
            return
        known = self.bench.group.members.get(member)
        epochs = () if known is None else (known.current.epoch, known.current.previous_epoch)
        if self.epochs[member] not in epochs:
            with pytest.raises(ApiError) as caught:
                self.bench.beat(member, self.epochs[member])
            code = ErrorCode.UNKNOWN_MEMBER_ID if known is None else ErrorCode.FENCED_MEMBER_EPOCH
            assert caught.value.code is code
            del self.epochs[member], self.assigned[member]
            return
        response = self.bench.beat(member, self.epochs[member])
        if is_heard:
            self.heard(member, response)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        if member in self.epochs:
            del self.epochs[member], self.assigned[member]
            if member in self.bench.group.members:
                self.bench.beat(member, -1)
                assert member not in self.bench.group.members
                return
            with pytest.raises(ApiError) as caught:
                self.bench.beat(member, -1)
            assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    @rule(ms=st.sampled_from([1_000, 30_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.bench.context.advance(ms)

    @rule(name=st.sampled_from(["orders", "bills", "later"]), count=st.integers(0, 5))
    def topics_change(self, name: str, count: int) -> None:
        view = self.bench.topics.topic(name)
        if view is None:
            self.bench.topics.create(name, count + 1)
        elif count == 0:
            self.bench.topics.delete(name)
        else:
            self.bench.topics.grow(name, view.partition_count + count)
        self.bench.topics_changed(name)

    @rule(compacts=st.booleans())
    def reload(self, compacts: bool) -> None:
        before = self.bench.machine.groups
        if compacts:
            self.bench.context.compact()
        self.bench.context.reload()
        for group_id, group in before.items():
            loaded = self.bench.machine.groups[group_id]
            assert {one: (m.stored, m.current) for one, m in loaded.members.items()} == {
                one: (m.stored, m.current) for one, m in group.members.items()
            }
            assert dict(loaded.targets) == dict(group.targets)

    @rule()
    def all_hear_the_news(self) -> None:
        """After one heartbeat of everybody, everybody has what the newest assignment says."""
        for member in list(self.epochs):
            self.beat(member, True)
        for member in list(self.epochs):
            self.beat(member, True)
        group = self.bench.machine.groups.get("g")
        for member, partitions in self.assigned.items():
            assert group is not None
            assert partitions == group.target_of(member)
            assert self.epochs[member] == group.epoch == group.target_epoch

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.bench.machine.groups.get("g")
        if group is not None:
            assert group.epoch >= self.highest
            assert group.target_epoch <= group.epoch
            assert all(member.current.epoch <= group.target_epoch for member in group.members.values())
            assert set(group.targets) <= set(group.members)
            self.highest = group.epoch


ShareGroups.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestShareGroups = ShareGroups.TestCase
