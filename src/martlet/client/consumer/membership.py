"""One member of a consumer group (KIP-848) as a machine: what it owns, what it does next, what it reports. No I/O.

The broker assigns; the member follows in steps. `next_step` names what has to happen to partitions here, and the reader
reports it with `completed`. `due_at_ms` says when the next heartbeat leaves, `heartbeat` makes it, and exactly one of
`answered`, `refused` and `unanswered` follows it. One heartbeat is under way at a time.

Invariants: (CLT-1) a partition is reported as given back only after its REVOKE step was completed, and as owned only
after its ASSIGN step was. (CLT-2) A member joins only while it owns nothing. (CLT-3) A field is left out of a heartbeat
only if the broker answered an earlier heartbeat that carried the same value, and nothing failed in between. (CLT-4) A
reader that does not poll for `max_poll_interval_ms` leaves the group, so that other members get its partitions.
Proved by: tests/unit/client/test_membership.py, tests/properties/test_client_membership.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode, error_code
from martlet.base.ids import TopicPartition
from martlet.base.invariant import invariant
from martlet.client.backoff import Backoff
from martlet.client.group_members import MemberIdentity
from martlet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_STATIC_LEAVE_EPOCH: Final = -2
"""A static member that leaves like this keeps its partitions until its session ends, for its successor."""

_FENCING: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_COORDINATOR_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class OwnedPartition(NamedTuple):
    """A partition as heartbeats name it."""

    topic_id: bytes
    partition: int


class Subscription(NamedTuple):
    """What the member wants to read: topics by name, or all whose whole name matches an RE2 pattern."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


class StepKind(Enum):
    """What happens to partitions."""

    ASSIGN = "start reading"
    REVOKE = "stop reading; offsets may still be committed"
    LOST = "stop reading; other members may own them already"


class Step(NamedTuple):
    """Something for the reader to do; the same partitions by name and as the broker knows them."""

    kind: StepKind
    partitions: tuple[TopicPartition, ...]
    owned: frozenset[OwnedPartition]


class MemberState(Enum):
    """How this side sees the member."""

    IDLE = "has subscribed to nothing yet"
    JOINING = "its next heartbeat joins"
    MEMBER = "has joined"
    FENCED = "was removed by the broker; joins again when it has dropped what it owned"
    AWAY = "left because its reader did not poll; joins again when it does"
    LEFT = "has left for good"
    FAILED = "was refused for good"


class CommitRefusal(Enum):
    """What follows from a refused commit."""

    AGAIN = "the epoch has changed since: commit again with the new one"
    AFTER_HEARTBEAT = "the broker has a newer epoch: commit again when the next heartbeat is answered"
    LOST = "the member is out of the group: the partitions are others' to commit"
    FINAL = "the error has nothing to do with the membership"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """What a member says about itself."""

    group_id: str
    instance_id: str | None = None
    """Makes the member static: a restart within the session keeps its partitions."""
    rack: str = ""
    assignor: str | None = None
    """The broker's assignor to use ("uniform", "range"); None leaves the choice to the broker."""
    max_poll_interval_ms: int = 300_000
    """How long the reader may work between polls, and how long it may take to give partitions back."""


@dataclass(frozen=True, slots=True)
class _Reported:
    """What a heartbeat said, or would have said had it been full."""

    subscription: Subscription
    owned: frozenset[OwnedPartition]


@dataclass(frozen=True, slots=True)
class _Sent:
    """The heartbeat under way."""

    epoch: int
    at_ms: float
    reported: _Reported


class Membership:
    """Time is in milliseconds of a clock that never goes back."""

    def __init__(self, options: MemberOptions, member_id: str, backoff: Backoff) -> None:
        self.state = MemberState.IDLE
        self.member_id = member_id
        self.epoch = 0
        self.subscription = Subscription()
        self.owned: frozenset[OwnedPartition] = frozenset()
        self.failure: ApiError | None = None
        """Why the state is FAILED."""
        self.coordinator_lost = False
        """The coordinator has to be found again before the next heartbeat; the shell clears this."""
        self._options = options
        self._backoff = backoff
        self._had_pattern = False
        self._target: frozenset[OwnedPartition] = frozenset()
        self._names: dict[bytes, str] = {}
        self._confirmed: _Reported | None = None
        self._sent: _Sent | None = None
        self._is_registered = False
        """The broker may know this member: a heartbeat that joins has been sent."""
        self._is_leaving = False
        self._due_ms = 0.0
        self._handling_since_ms: float | None = None
        """When the last poll ended; None while one is under way, and before the first."""

    # What the reader wants

    def subscribe(self, subscription: Subscription, now_ms: float) -> None:
        """Join the group, or change what the member wants of it."""
        if subscription == self.subscription or self._is_leaving:
            return
        self.subscription = subscription
        self._had_pattern = self._had_pattern or subscription.pattern is not None
        self._due_ms = now_ms
        if self.state is MemberState.IDLE:
            self.state = MemberState.JOINING

    def leave(self, now_ms: float) -> None:
        """Give everything back and then leave; `state` is LEFT in the end."""
        if self.state in (MemberState.LEFT, MemberState.FAILED):
            return
        self._is_leaving = True
        self._due_ms = now_ms
        self._advance(now_ms)

    def poll_started(self, now_ms: float) -> None:
        self._handling_since_ms = None
        self._advance(now_ms)

    def poll_ended(self, now_ms: float) -> None:
        self._handling_since_ms = now_ms

    # Steps

    def next_step(self) -> Step | None:
        """What the reader has to do now; the same answer until it was completed or the group moved on."""
        if self.state in (MemberState.FENCED, MemberState.AWAY, MemberState.FAILED):
            return self._step(StepKind.LOST, self.owned)
        if self._is_leaving:
            return self._step(StepKind.REVOKE, self.owned)
        if self.state is not MemberState.MEMBER:
            return None
        return self._step(StepKind.REVOKE, self.owned - self._target) or self._step(
            StepKind.ASSIGN, {one for one in self._target - self.owned if one.topic_id in self._names}
        )

    def _step(self, kind: StepKind, partitions: Iterable[OwnedPartition]) -> Step | None:
        owned = frozenset(partitions)
        names = sorted(TopicPartition(self._names[one.topic_id], one.partition) for one in owned)
        return Step(kind, tuple(names), owned) if owned else None

    def completed(self, step: Step, now_ms: float) -> None:
        """The reader has done it; the broker is notified at once."""
        if step.kind is StepKind.ASSIGN:
            self.owned |= step.owned
        else:
            self.owned -= step.owned
        self._due_ms = now_ms
        self._advance(now_ms)

    @property
    def unnamed_topics(self) -> frozenset[bytes]:
        """Topics of the assignment whose names are not known yet; their partitions wait for `learn_names`."""
        if self.state is not MemberState.MEMBER or self._is_leaving:
            return frozenset()
        return frozenset(one.topic_id for one in self._target if one.topic_id not in self._names)

    def learn_names(self, names: Mapping[bytes, str]) -> None:
        used = {one.topic_id for one in self._target | self.owned}
        known = {**self._names, **{topic_id: name for topic_id, name in names.items() if topic_id in used}}
        self._names = {topic_id: name for topic_id, name in known.items() if topic_id in used}

    # Heartbeats

    def due_at_ms(self) -> float | None:
        """When `heartbeat` is to be called; None while there is nothing to send."""
        if self._sent is not None:
            return None
        if self.state is MemberState.AWAY:
            return self._due_ms if self._is_registered else None
        if self.state not in (MemberState.JOINING, MemberState.MEMBER):
            return None
        return min(self._due_ms, self._poll_deadline_ms())

    def _poll_deadline_ms(self) -> float:
        if self._handling_since_ms is None or self._is_leaving:
            return float("inf")
        return self._handling_since_ms + self._options.max_poll_interval_ms

    def heartbeat(self, now_ms: float) -> ConsumerGroupHeartbeatRequest | None:
        """The heartbeat to send now; None when the member goes away without the broker ever having known it."""
        invariant(self._sent is None, "one heartbeat is under way at a time")
        if now_ms >= self._poll_deadline_ms() and self.state is not MemberState.AWAY:
            self.state = MemberState.AWAY
            if not self._is_registered:
                return None
        epoch = self._epoch_to_send()
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._options.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self._options.instance_id,
        )
        reported = _Reported(self.subscription, self.owned)
        if epoch >= _JOIN_EPOCH:
            self._fill(request, reported)
            self._is_registered = True
        self._sent = _Sent(epoch, now_ms, reported)
        return request

    def _epoch_to_send(self) -> int:
        if self.state is MemberState.AWAY or (self._is_leaving and not self.owned):
            return _LEAVE_EPOCH if self._options.instance_id is None else _STATIC_LEAVE_EPOCH
        if self.state is MemberState.JOINING:
            invariant(not self.owned, "a member that joins owns nothing")
            return _JOIN_EPOCH
        return self.epoch

    def _fill(self, request: ConsumerGroupHeartbeatRequest, reported: _Reported) -> None:
        """What the broker does not know yet; everything, when it is not sure what it knows (CLT-3)."""
        known = self._confirmed
        if known is None:
            request.rack_id = self._options.rack or None
            request.rebalance_timeout_ms = self._options.max_poll_interval_ms
            request.server_assignor = self._options.assignor
        if known is None or known.subscription != reported.subscription:
            request.subscribed_topic_names = list(reported.subscription.topics)
            # The empty expression takes an earlier one back.
            request.subscribed_topic_regex = reported.subscription.pattern or ("" if self._had_pattern else None)
        if known is None or known.owned != reported.owned:
            request.topic_partitions = _by_topic(reported.owned)

    def answered(self, response: ConsumerGroupHeartbeatResponse, now_ms: float) -> None:
        """The broker has answered, with or without an error."""
        if response.error_code:
            code = error_code(response.error_code)
            self.refused(ApiError(code, response.error_message or ERROR_TABLE[code].text), now_ms)
            return
        sent = self._take_sent()
        self._backoff.reset()
        if sent.epoch < _JOIN_EPOCH:
            self._gone(now_ms)
            return
        if self.state not in (MemberState.JOINING, MemberState.MEMBER):
            return
        # A broker that assigns later leaves the epoch at 0: to it, the next heartbeat joins once more.
        has_joined = response.member_epoch > _JOIN_EPOCH
        self.state = MemberState.MEMBER if has_joined else MemberState.JOINING
        self.epoch = response.member_epoch
        self._confirmed = sent.reported if has_joined else None
        if response.assignment is not None:
            self._target = frozenset(
                OwnedPartition(topic.topic_id, number)
                for topic in response.assignment.topic_partitions
                for number in topic.partitions
            )
            self.learn_names({})
        is_up_to_date = sent.reported == _Reported(self.subscription, self.owned)
        is_gone_soon = self._is_leaving and not self.owned
        self._due_ms = sent.at_ms + response.heartbeat_interval_ms if is_up_to_date and not is_gone_soon else now_ms

    def refused(self, error: ApiError, now_ms: float) -> None:
        """The broker refused the heartbeat, or the search for the coordinator failed."""
        sent = self._take_sent()
        if error.code in _COORDINATOR_MOVED:
            self.coordinator_lost = True
        if error.retriable:
            self._try_later(now_ms)
        elif sent.epoch < _JOIN_EPOCH:
            self._gone(now_ms)
        elif error.code in _FENCING or (error.code == ErrorCode.GROUP_ID_NOT_FOUND and sent.epoch > _JOIN_EPOCH):
            self._fenced(sent, now_ms)
        else:
            self.state = MemberState.FAILED
            self.failure = error
            self._is_registered = False

    def unanswered(self, now_ms: float) -> None:
        """The conversation failed: the broker may have handled the heartbeat or not."""
        self._take_sent()
        self.coordinator_lost = True
        self._try_later(now_ms)

    def _take_sent(self) -> _Sent:
        sent, self._sent = self._sent, None
        if sent is None:
            raise ValueError("no heartbeat is under way")
        return sent

    def _try_later(self, now_ms: float) -> None:
        self._confirmed = None
        self._due_ms = now_ms + self._backoff.next_ms()

    def _gone(self, now_ms: float) -> None:
        """The broker has taken the member out, as it asked for."""
        self._forget_membership()
        self._due_ms = now_ms
        self._advance(now_ms)

    def _fenced(self, sent: _Sent, now_ms: float) -> None:
        self._forget_membership()
        self.state = MemberState.FENCED
        # A member that is fenced while it joins waits, else two of them would fence each other as fast as they can.
        self._due_ms = now_ms if sent.epoch > _JOIN_EPOCH else now_ms + self._backoff.next_ms()
        self._advance(now_ms)

    def _forget_membership(self) -> None:
        self._is_registered = False
        self._confirmed = None
        self._target = frozenset()
        self.epoch = 0

    def _advance(self, now_ms: float) -> None:
        """Leave states that only wait until nothing is owned."""
        if self.owned or self.state in (MemberState.LEFT, MemberState.FAILED):
            return
        if self._is_leaving:
            if not self._is_registered:
                self.state = MemberState.LEFT
        elif self.state is MemberState.FENCED or (self.state is MemberState.AWAY and self._handling_since_ms is None):
            self.state = MemberState.JOINING

    # Commits

    @property
    def identity(self) -> MemberIdentity | None:
        """As whom to commit; None while the member is in no group."""
        if self.state is not MemberState.MEMBER:
            return None
        return MemberIdentity(self.member_id, self.epoch, self._options.instance_id)

    def not_owned(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of the partitions that are not this member's to commit."""
        owned = self.owned if self.state is MemberState.MEMBER else frozenset()
        return set(partitions) - {TopicPartition(self._names[one.topic_id], one.partition) for one in owned}

    def refused_as(self, identity: MemberIdentity, error: ApiError, now_ms: float) -> CommitRefusal:
        """What follows from a refusal of a request about offsets that was made as `identity`."""
        current = self.identity
        if current is None:
            return CommitRefusal.LOST
        if error.code not in _FENCING and error.code != ErrorCode.STALE_MEMBER_EPOCH:
            return CommitRefusal.FINAL
        if current.epoch != identity.epoch:
            return CommitRefusal.AGAIN
        # The next heartbeat brings the newer epoch, or the news that the member was fenced.
        self._due_ms = min(self._due_ms, now_ms)
        return CommitRefusal.AFTER_HEARTBEAT


def _by_topic(partitions: Iterable[OwnedPartition]) -> list[TopicPartitions]:
    numbers: dict[bytes, list[int]] = {}
    for one in sorted(partitions):
        numbers.setdefault(one.topic_id, []).append(one.partition)
    return [TopicPartitions(topic_id, indexes) for topic_id, indexes in numbers.items()]
