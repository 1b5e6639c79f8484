"""A replicated partition made of the pure machines alone: three copies, a store, late and lost messages.

Every step draws one thing that could happen now: a publish, a fetch on its way to the leader or back, an election,
a proposal reaching the store or its answer getting lost, a crash with or without the unflushed tail, a restart. After
each step the invariants of docs/architecture.md are checked against what was acknowledged and what was ever stored.
One seed is one run.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId
from martlet.cluster.records import BrokerRecord, PartitionRecord
from martlet.cluster.replica_decisions import elect_leader, store_in_sync
from martlet.log.epoch_cache import EpochCache
from martlet.replication.follower import (
    Append,
    EpochEnd,
    FetchAnswer,
    FetchPosition,
    FollowerReplica,
    StartAt,
    TruncateTo,
    high_watermark_after,
)
from martlet.replication.in_sync import Proposal
from martlet.replication.leader import LeaderReplica, PartitionState, ReplicationOptions

_MIN_IN_SYNC = 2
_LAG_TIME_MS = 100
_NEVER_STARTED = Incarnation(0)
_OPTIONS = ReplicationOptions(min_in_sync=_MIN_IN_SYNC, lag_time_max_ms=_LAG_TIME_MS)


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class Record:
    value: int
    epoch: int


class Copy:
    """One replica's log, in memory: what is below `flushed` survives a power loss."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.epochs = EpochCache()
        self.flushed = 0
        self.log_start_offset = 0
        self.high_watermark = 0

    @property
    def end_offset(self) -> int:
        return len(self.records)

    @property
    def last_epoch(self) -> int:
        return self.records[-1].epoch if self.records else -1

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        return EpochEnd(*self.epochs.end_offset_for(epoch, log_end_offset=self.end_offset))

    def append(self, records: list[Record]) -> None:
        for record in records:
            self.epochs.assign(record.epoch, self.end_offset)
            self.records.append(record)

    def cut(self, end_offset: int) -> None:
        if end_offset < self.end_offset:
            del self.records[end_offset:]
            self.epochs.truncate_from_end(end_offset)
            self.flushed = min(self.flushed, end_offset)
            self.high_watermark = min(self.high_watermark, end_offset)

    def lose_tail(self, end_offset: int) -> None:
        """A power loss: the batches above are gone, and with them the epochs that only they showed."""
        del self.records[end_offset:]
        self.epochs = EpochCache()
        for offset, record in enumerate(self.records):
            self.epochs.assign(record.epoch, offset)
        self.flushed = min(self.flushed, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)


@dataclass
class Broker:
    """One broker: its copy survives, its machines do not."""

    id: BrokerId
    copy: Copy = field(default_factory=Copy)
    incarnation: Incarnation = _NEVER_STARTED
    clean_since: Incarnation = _NEVER_STARTED
    running: bool = False
    seen: PartitionRecord | None = None
    leader: LeaderReplica | None = None
    follower: FollowerReplica | None = None
    lost_tail: bool = False
    """Whether its last crash took a part of its log."""
    is_lossy: bool = False
    """Whether it has lost something and was not in sync since."""
    waiting: list[tuple[int, int, int]] = field(default_factory=list)
    """Publishes that wait for the high watermark: (offset, value, leader epoch)."""

    @property
    def me(self) -> Member:
        return Member(self.id, self.incarnation)


@dataclass
class FetchOnItsWay:
    follower: Member
    leader: BrokerId
    position: FetchPosition


@dataclass
class AnswerOnItsWay:
    follower: Member
    position: FetchPosition
    answer: FetchAnswer
    records: list[Record]


@dataclass
class ProposalOnItsWay:
    by: Member
    proposal: Proposal
    leader_epoch: int


class ReplicatedPartition:
    """The whole thing; `step` makes one thing happen."""

    def __init__(self, seed: int, brokers: int = 3) -> None:
        self.random = SimRandomness(seed)
        self.now_ms = 0
        self.brokers = {BrokerId(n): Broker(BrokerId(n)) for n in range(brokers)}
        self.next_incarnation = 1
        self.live: dict[BrokerId, BrokerRecord] = {}
        self.revision = 1
        self.partition = PartitionRecord(
            TopicId(bytes(16)), 0, tuple(self.brokers), None, LeaderEpoch(0), mod_revision=1
        )
        self.on_their_way: list[FetchOnItsWay | AnswerOnItsWay | ProposalOnItsWay] = []
        self.next_value = 0
        self.acknowledged: dict[int, int] = {}
        """Offset → value, of every publish that was acknowledged."""
        self.shown: dict[int, int] = {}
        """Offset → value, of everything a reader may have seen."""
        self.leaders: dict[int, Member] = {}
        self.trace: list[str] = []
        for broker in self.brokers.values():
            self.start(broker, clean=True)
        members = tuple(broker.me for broker in self.brokers.values())
        self._store(replace(self.partition, leader=BrokerId(0), leader_epoch=LeaderEpoch(1), isr=members))

    @property
    def full(self) -> Collection[BrokerId]:
        """Brokers that say that their disks are full, though here they go on copying."""
        return ()

    # --- what can happen

    def step(self) -> None:
        self.now_ms += self.random.below(5)
        actions = [
            (30, self.publish),
            (90, self.deliver),
            (60, self.fetch),
            (10, self.propose),
            (20, self.learn),
            (4, self.flush),
            (3, self.elect),
            (2, self.lose_message),
            (8, self.give_up_waiting),
            (2, self.crash),
            (4, self.restart),
            (1, self.wait_long),
        ]
        draw = self.random.below(sum(weight for weight, _ in actions))
        for weight, action in actions:
            if draw < weight:
                action()
                break
            draw -= weight
        self.check()

    def publish(self) -> None:
        broker = self._any(lambda one: one.running and one.leader is not None)
        if broker is None or broker.leader is None:
            return
        try:
            broker.leader.check_enough_in_sync()
        except ApiError:
            return
        offset, value = broker.copy.end_offset, self.next_value
        self.next_value += 1
        broker.copy.append([Record(value, broker.leader.leader_epoch)])
        broker.waiting.append((offset, value, broker.leader.leader_epoch))
        broker.leader.own_offset_moved(broker.copy.end_offset)
        self._note(f"{broker.id} appends {value} at {offset}")
        self._watermark_moved(broker)

    def fetch(self) -> None:
        broker = self._any(lambda one: one.running and one.follower is not None)
        if broker is not None and broker.follower is not None and broker.seen is not None:
            if broker.seen.leader is None or any(
                isinstance(one, FetchOnItsWay | AnswerOnItsWay) and one.follower == broker.me
                for one in self.on_their_way
                if self.random.below(10)
            ):
                return
            position = broker.follower.next_fetch(broker.copy)
            self.on_their_way.append(FetchOnItsWay(broker.me, broker.seen.leader, position))

    def deliver(self) -> None:
        if not self.on_their_way:
            return
        message = self.on_their_way.pop(self.random.below(len(self.on_their_way)))
        if isinstance(message, FetchOnItsWay):
            self._serve(message)
        elif isinstance(message, AnswerOnItsWay):
            self._take(message)
        else:
            self._decide(message)

    def lose_message(self) -> None:
        if self.on_their_way:
            self.on_their_way.pop(self.random.below(len(self.on_their_way)))

    def propose(self) -> None:
        broker = self._any(lambda one: one.running and one.leader is not None)
        if broker is not None and broker.leader is not None:
            proposal = broker.leader.propose(self.now_ms, self.full)
            if proposal is not None:
                self._note(f"{broker.id} proposes {sorted(proposal.members)}")
                self.on_their_way.append(ProposalOnItsWay(broker.me, proposal, broker.leader.leader_epoch))

    def give_up_waiting(self) -> None:
        """A leader stops waiting for the store's answer; the proposal itself may still arrive there."""
        broker = self._any(lambda one: one.running and one.leader is not None)
        if broker is not None and broker.leader is not None:
            broker.leader.proposal_unanswered()

    def learn(self) -> None:
        """A broker hears the newest of the metadata store."""
        broker = self._any(lambda one: one.running)
        if broker is not None:
            self._apply(broker)

    def flush(self) -> None:
        broker = self._any(lambda one: one.running)
        if broker is not None:
            broker.copy.flushed = broker.copy.end_offset

    def elect(self) -> None:
        """The controller acts when the leader's process is gone, and sometimes without need."""
        leader = self.partition.leader
        leader_is_live = leader is not None and self.partition.is_led_by(leader, self.live_incarnation(leader))
        if leader_is_live and self.random.below(10):
            return
        live = self.live
        preferred = BrokerId(self.random.below(len(self.brokers))) if not self.random.below(3) else None
        election = elect_leader(self.partition, live, _MIN_IN_SYNC, preferred=preferred)
        if election.partition != self.partition:
            self._note(f"elected {election.partition.leader} epoch {election.partition.leader_epoch}")
            self._store(election.partition)

    def crash(self) -> None:
        """A process dies; with the power some of the unflushed tail may go, on at most one copy at a time."""
        broker = self._any(lambda one: one.running)
        if broker is None:
            return
        broker.running = False
        broker.leader = broker.follower = None
        broker.waiting.clear()
        power_loss = self.random.below(2) == 0 and self._others_are_whole(broker)
        if power_loss:
            kept = broker.copy.flushed + self.random.below(broker.copy.end_offset - broker.copy.flushed + 1)
            broker.copy.lose_tail(kept)
        self._note(f"{broker.id} crashes{' with power loss' if power_loss else ''}, keeps {broker.copy.end_offset}")
        broker.is_lossy = power_loss or (broker.is_lossy and broker.me not in self.partition.isr)
        broker.lost_tail = power_loss
        # Its lease runs out at some time; until then the controller believes it is alive.
        if self.random.below(2):
            self.live.pop(broker.id, None)

    def restart(self) -> None:
        broker = self._any(lambda one: not one.running)
        if broker is not None:
            self.start(broker, clean=not broker.lost_tail)

    def wait_long(self) -> None:
        self.now_ms += _LAG_TIME_MS + 1

    # --- how

    def start(self, broker: Broker, *, clean: bool) -> None:
        since = broker.clean_since if clean and broker.incarnation else Incarnation(self.next_incarnation)
        broker.incarnation = Incarnation(self.next_incarnation)
        self.next_incarnation += 1
        broker.running = True
        broker.seen = None
        # The copy survives every restart, be it without its tail: no disk is lost here.
        record = BrokerRecord(broker.id, broker.incarnation, clean_since=since, same_logs_since=_NEVER_STARTED)
        broker.clean_since = since
        self.live[broker.id] = record
        self._note(f"{broker.id} starts as {broker.incarnation}{' clean' if clean else ''}")

    def live_incarnation(self, broker: BrokerId) -> Incarnation:
        record = self.live.get(broker)
        return record.incarnation if record is not None else Incarnation(-1)

    def _others_are_whole(self, broker: Broker) -> bool:
        """The promise holds while at most min in-sync − 1 copies are lossy and not recovered."""
        return not any(
            one.is_lossy and (not one.running or one.me not in self.partition.isr)
            for one in self.brokers.values()
            if one is not broker
        )

    def _any(self, condition: Callable[[Broker], bool]) -> Broker | None:
        wanted = [one for one in self.brokers.values() if condition(one)]
        return wanted[self.random.below(len(wanted))] if wanted else None

    def _store(self, partition: PartitionRecord) -> None:
        self.revision += 1
        self.partition = replace(partition, mod_revision=self.revision)
        if partition.leader is not None:
            leader = Member(partition.leader, partition.leader_incarnation or Incarnation(-1))
            known = self.leaders.setdefault(partition.leader_epoch, leader)
            if known != leader:
                raise Violation(f"REP-5: epoch {partition.leader_epoch} has two leaders, {known} and {leader}")

    def _apply(self, broker: Broker) -> None:
        partition = self.partition
        if broker.seen is not None and broker.seen.mod_revision == partition.mod_revision:
            return
        epoch_before = broker.seen.leader_epoch if broker.seen is not None else -1
        broker.seen = partition
        state = PartitionState(
            partition.replicas,
            partition.leader_epoch,
            frozenset(partition.isr),
            partition.mod_revision,
            has_eligible=bool(partition.elr),
        )
        if partition.leader_epoch == epoch_before and broker.leader is not None:
            broker.leader.state_stored(state)
            self._watermark_moved(broker)
            return
        if partition.leader_epoch == epoch_before:
            return
        broker.leader = broker.follower = None
        broker.waiting.clear()
        if partition.is_led_by(broker.id, broker.incarnation):
            broker.copy.epochs.assign(partition.leader_epoch, broker.copy.end_offset)
            broker.leader = LeaderReplica(
                broker.me,
                state,
                _OPTIONS,
                broker.copy,
                now_ms=self.now_ms,
            )
            self._note(f"{broker.id} leads epoch {partition.leader_epoch} from {broker.copy.end_offset}")
        elif partition.leader is not None:
            broker.follower = FollowerReplica(partition.leader_epoch)

    def _serve(self, fetch: FetchOnItsWay) -> None:
        broker = self.brokers[fetch.leader]
        if not broker.running:
            return
        position = fetch.position
        answer, records = FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER), list[Record]()
        if broker.leader is not None:
            copy = broker.copy
            try:
                broker.leader.check_fetch(fetch.follower, position.current_leader_epoch)
                diverging = self._diverging(copy, position)
                if diverging is not None:
                    answer = FetchAnswer(diverging=diverging)
                else:
                    broker.leader.fetched(
                        fetch.follower,
                        leader_epoch=position.current_leader_epoch,
                        fetch_offset=position.fetch_offset,
                        now_ms=self.now_ms,
                    )
                    self._watermark_moved(broker)
                    records = copy.records[position.fetch_offset : position.fetch_offset + 1 + self.random.below(4)]
                    answer = FetchAnswer(
                        high_watermark=copy.high_watermark, log_start_offset=0, has_records=bool(records)
                    )
            except ApiError as error:
                answer = FetchAnswer(error.code)
        self.on_their_way.append(AnswerOnItsWay(fetch.follower, position, answer, list(records)))

    @staticmethod
    def _diverging(copy: Copy, position: FetchPosition) -> EpochEnd | None:
        if position.last_fetched_epoch < 0:
            return None if position.fetch_offset <= copy.end_offset else EpochEnd(-1, copy.end_offset)
        end = copy.end_of_epoch(position.last_fetched_epoch)
        if end.epoch < 0:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if end.epoch < position.last_fetched_epoch or end.end_offset < position.fetch_offset:
            return end
        return None

    def _take(self, message: AnswerOnItsWay) -> None:
        broker = self.brokers[message.follower.broker]
        if not broker.running or broker.me != message.follower or broker.follower is None:
            return
        step = broker.follower.step_for(message.answer, message.position, broker.copy)
        if isinstance(step, Append):
            broker.copy.append(message.records)
            broker.copy.high_watermark = high_watermark_after(step.high_watermark, broker.copy)
        elif isinstance(step, TruncateTo):
            if step.loses_committed:
                raise Violation(f"REP-6: {broker.id} cuts to {step.end_offset}, below its high watermark")
            broker.copy.cut(step.end_offset)
        elif isinstance(step, StartAt):
            raise Violation("a log that was never trimmed has no start to jump to")

    def _decide(self, message: ProposalOnItsWay) -> None:
        """The store takes or refuses a proposal; its answer reaches the leader, or does not."""
        taken = (
            self.partition.mod_revision == message.proposal.partition_epoch
            and self.partition.leader_epoch == message.leader_epoch
            and all(self.live_incarnation(one.broker) == one.incarnation for one in self._added(message))
        )
        if taken:
            self._store(store_in_sync(self.partition, message.proposal.members, _MIN_IN_SYNC))
            self._note(f"stored in-sync {self.partition.isr} eligible {self.partition.elr}")
        broker = self.brokers[message.by.broker]
        if broker.running and broker.me == message.by and broker.leader is not None and self.random.below(3):
            if taken:
                self._apply(broker)
            elif broker.leader.leader_epoch == message.leader_epoch and broker.seen is not None:
                # Refused for certain: whatever the store holds instead is read back first.
                if broker.seen.mod_revision == self.partition.mod_revision:
                    broker.leader.proposal_refused()
                    self._watermark_moved(broker)
                else:
                    self._apply(broker)

    def _added(self, message: ProposalOnItsWay) -> list[Member]:
        return [one for one in message.proposal.members if one not in self.partition.isr]

    def _watermark_moved(self, broker: Broker) -> None:
        if broker.leader is None:
            return
        broker.copy.high_watermark = broker.leader.committed_offset()
        for offset, value, epoch in list(broker.waiting):
            if offset < broker.copy.high_watermark and epoch == broker.leader.leader_epoch:
                self._acknowledge(broker, offset, value)
                broker.waiting.remove((offset, value, epoch))
        for offset in range(max(self.shown, default=-1) + 1, broker.copy.high_watermark):
            self.shown[offset] = broker.copy.records[offset].value

    def _acknowledge(self, broker: Broker, offset: int, value: int) -> None:
        holders = [
            one
            for one in self.brokers.values()
            if one.copy.end_offset > offset and one.copy.records[offset].value == value
        ]
        # A copy that held it and has just lost its tail is one of those the promise allows for.
        lossy = [one for one in self.brokers.values() if one.is_lossy and one not in holders]
        if len(holders) + len(lossy) < _MIN_IN_SYNC:
            raise Violation(f"REP-7: {value} at {offset} is acknowledged with {len(holders)} holders")
        self.acknowledged[offset] = value

    def _note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms}: {text}")

    # --- what must hold

    def check(self) -> None:
        """REP-1, REP-2 and REP-8 against what was acknowledged and shown."""
        newest = max(self.leaders)
        for broker in self.brokers.values():
            if not broker.running:
                continue
            is_newest_leader = broker.leader is not None and broker.leader.leader_epoch == newest
            is_candidate = broker.me in (*self.partition.isr, *self.partition.elr)
            if is_newest_leader or is_candidate:
                self._check_complete(broker, "REP-1" if is_newest_leader else "REP-2")
            if broker.leader is not None:
                for offset in range(broker.copy.high_watermark):
                    if self.shown.get(offset, broker.copy.records[offset].value) != broker.copy.records[offset].value:
                        raise Violation(f"REP-8: {broker.id} shows another record at {offset}")

    def _check_complete(self, broker: Broker, name: str) -> None:
        for offset, value in self.acknowledged.items():
            if offset >= broker.copy.end_offset or broker.copy.records[offset].value != value:
                raise Violation(f"{name}: {broker.id} has lost {value} at {offset}")

    def heal(self) -> None:
        """No more faults: everybody starts, everything is delivered, until all copies are the same."""
        for _ in range(2_000):
            for broker in self.brokers.values():
                if not broker.running:
                    self.start(broker, clean=not broker.lost_tail)
                self._apply(broker)
            leader = self.partition.leader
            if leader is None or not self.partition.is_led_by(leader, self.live_incarnation(leader)):
                election = elect_leader(self.partition, self.live, _MIN_IN_SYNC)
                if election.partition != self.partition:
                    self._store(election.partition)
            self.fetch()
            self.propose()
            self.deliver()
            if not self.random.below(50):
                self.give_up_waiting()
            self.now_ms += 1
            self.check()
