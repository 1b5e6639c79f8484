"""Members of this client and the broker's groups machine, with lost requests, lost answers and readers that are slow.

After every event no partition is read by two members that the broker both knows, and a heartbeat says what the member
owns. No member is ever stuck: once the network behaves, every partition has exactly one owner.
"""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode
from martlet.client.backoff import Backoff
from martlet.client.consumer.membership import (
    MemberOptions,
    Membership,
    MemberState,
    OwnedPartition,
    Step,
    Subscription,
)
from martlet.groups.ports import GroupsOptions
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.unit.groups.consumer.bench import ConsumerBench
from tests.unit.groups.consumer.sim_topics import SimTopics

SUBSCRIPTIONS = st.sampled_from(
    [Subscription(("one",)), Subscription(("two",)), Subscription(("one", "two")), Subscription(pattern="t.*")]
)
MEMBERS = st.integers(0, 3)
MAX_POLL_MS = 60_000


class Party:
    """One member, the step its reader is at, and whether the network loses its next message."""

    def __init__(self, number: int, generation: int, instance_id: str | None) -> None:
        options = MemberOptions(group_id="g", instance_id=instance_id, max_poll_interval_ms=MAX_POLL_MS)
        backoff = Backoff(50, 400, SimRandomness(number))
        self.membership = Membership(options, f"m{number}.{generation}", backoff)
        self.step: Step | None = None


class Members(RuleBasedStateMachine):
    """Four members of one group."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = ConsumerBench(SimTopics(one=4, two=3), GroupsOptions())
        self.parties: dict[int, Party] = {}
        self.started = 0

    @property
    def now_ms(self) -> float:
        return float(self.bench.context.now_ms)

    @rule(number=MEMBERS, subscription=SUBSCRIPTIONS, static=st.booleans())
    def subscribe(self, number: int, subscription: Subscription, static: bool) -> None:
        party = self.parties.get(number)
        if party is None or party.membership.state in (MemberState.LEFT, MemberState.FAILED):
            self.started += 1
            party = self.parties[number] = Party(number, self.started, f"s{number}" if static else None)
        party.membership.subscribe(subscription, self.now_ms)
        party.membership.poll_started(self.now_ms)

    @rule(number=MEMBERS, loses=st.sampled_from(["nothing", "nothing", "nothing", "request", "answer"]))
    def beat(self, number: int, loses: str) -> None:
        if (party := self.parties.get(number)) is not None:
            self.heartbeat(party, loses)

    def heartbeat(self, party: Party, loses: str = "nothing") -> None:
        membership = party.membership
        due_ms = membership.due_at_ms()
        if due_ms is None:
            return
        if due_ms > self.now_ms:
            self.bench.context.advance(int(due_ms - self.now_ms) + 1)
        request = membership.heartbeat(self.now_ms)
        if request is None:
            return
        self.check_said(party, request)
        if loses == "request":
            membership.unanswered(self.now_ms)
            return
        try:
            response = self.bench.send(request)
        except ApiError as error:
            if error.code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR):
                raise AssertionError("no member may send this") from error
            if loses == "answer":
                membership.unanswered(self.now_ms)
            else:
                membership.refused(error, self.now_ms)
            return
        if loses == "answer":
            membership.unanswered(self.now_ms)
        else:
            membership.answered(response, self.now_ms)
        names = {bytes(view.id): view.name for view in map(self.bench.topics.topic, ("one", "two")) if view is not None}
        membership.learn_names(names)

    def check_said(self, party: Party, request: ConsumerGroupHeartbeatRequest) -> None:
        if request.topic_partitions is not None:
            said = {
                OwnedPartition(one.topic_id, number) for one in request.topic_partitions for number in one.partitions
            }
            assert said == party.membership.owned
        if request.member_epoch <= 0:
            assert not party.membership.owned or party.membership.state is MemberState.AWAY

    @rule(number=MEMBERS)
    def begin_step(self, number: int) -> None:
        party = self.parties.get(number)
        if party is not None and party.step is None:
            party.membership.poll_started(self.now_ms)
            party.step = party.membership.next_step()

    @rule(number=MEMBERS)
    def end_step(self, number: int) -> None:
        party = self.parties.get(number)
        if party is not None and party.step is not None:
            step, party.step = party.step, None
            party.membership.completed(step, self.now_ms)

    @rule(number=MEMBERS)
    def work(self, number: int) -> None:
        """The reader handles what it was given, for however long."""
        if (party := self.parties.get(number)) is not None:
            party.membership.poll_ended(self.now_ms)

    @rule(number=MEMBERS)
    def leave(self, number: int) -> None:
        if (party := self.parties.get(number)) is not None:
            party.membership.leave(self.now_ms)

    @rule(ms=st.sampled_from([100, 5_000, 20_000, 50_000]))
    def wait(self, ms: int) -> None:
        self.bench.context.advance(ms)

    @precondition(lambda self: self.parties)
    @rule()
    def behave(self) -> None:
        """The network works and readers poll, until the sessions of members that are gone have ended."""
        for _ in range(60):
            for number, party in self.parties.items():
                self.end_step(number)
                self.begin_step(number)
                self.end_step(number)
                if party.membership.state is not MemberState.FAILED:
                    self.heartbeat(party)
            self.bench.context.advance(100)
        active = [party.membership for party in self.parties.values() if party.membership.state is MemberState.MEMBER]
        for party in self.parties.values():
            assert party.membership.state in (MemberState.MEMBER, MemberState.LEFT, MemberState.FAILED)
        wanted = {
            OwnedPartition(self.bench.topics.id_of(name), number)
            for name, count in (("one", 4), ("two", 3))
            for number in range(count)
            if any(self.wants(membership, name) for membership in active)
        }
        found = [one for membership in active for one in membership.owned]
        assert sorted(found) == sorted(wanted)

    @staticmethod
    def wants(membership: Membership, name: str) -> bool:
        subscription = membership.subscription
        return name in subscription.topics or (subscription.pattern == "t.*" and name == "two")

    @invariant()
    def no_member_reads_what_another_member_was_given(self) -> None:
        if "g" not in self.bench.context.machine.groups:
            return
        members = self.bench.group.members
        owners: dict[OwnedPartition, str] = {}
        for party in self.parties.values():
            membership = party.membership
            known = members.get(membership.member_id)
            # A member that the broker has removed, or that joins again, does not know yet that it lost everything.
            if membership.state is not MemberState.MEMBER or known is None or known.current.epoch <= 0:
                continue
            if membership.epoch not in (known.current.epoch, known.current.previous_epoch):
                continue
            for one in membership.owned:
                assert one not in owners, f"{one} is read by {owners[one]} and {membership.member_id}"
                owners[one] = membership.member_id


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
