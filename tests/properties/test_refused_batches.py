"""A producer with several batches under way meets a leader that refuses now and then: nothing of it is ever a gap.

The producer is librdkafka's kind: at most five batches unanswered, sent in order on one connection, and what was
refused is sent again, the lowest first. Its partition is led now by the broker under test, now by another one, which
may take batches that the first one refused, or lack some that it took.
"""

from collections import deque
from enum import Enum, auto

from hypothesis import given
from hypothesis import strategies as st

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.partitions.refused_batches import RefusedBatches
from martlet.log.producer_state import ProducerStates
from martlet.wire.batch import BatchHeader, build_batch, read_batch_header

_IN_FLIGHT_MAX = 5
_NOW_MS = 1_000


def _batch(sequence: int) -> BatchHeader:
    return read_batch_header(
        build_batch([(0, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=sequence)
    )


class _Step(Enum):
    SEND = auto()
    TAKE = auto()
    REFUSE = auto()
    """A passing reason hits the next batch: the broker is cut off, or too few replicas are in sync."""
    ANSWER = auto()
    TAKEN_ELSEWHERE = auto()
    """Another leader takes the next batch, its answer is lost, and this broker copies it."""
    CUT = auto()
    """Another leader lacks the last batch."""


class _World:
    def __init__(self) -> None:
        self.refused = RefusedBatches()
        self.log: list[int] = []
        self.producers = ProducerStates()
        self.acknowledged: set[int] = set()
        self.to_send = deque(range(1_000))
        self.requests: deque[int] = deque()
        self.answers: deque[tuple[int, bool]] = deque()

    def do(self, step: _Step) -> None:
        under_way = len(self.requests) + len(self.answers)
        if step is _Step.SEND and under_way < _IN_FLIGHT_MAX:
            self.requests.append(self.to_send.popleft())
        elif step is _Step.ANSWER and self.answers:
            self._answered(*self.answers.popleft())
        elif step is _Step.CUT and self.log and self.log[-1] not in self.acknowledged:
            self._cut()
        elif self.requests and step in (_Step.TAKE, _Step.REFUSE, _Step.TAKEN_ELSEWHERE):
            sequence = self.requests.popleft()
            if step is _Step.TAKEN_ELSEWHERE and sequence == len(self.log):
                self._append(sequence)
                self.answers.append((sequence, False))
            else:
                taken = self._take(_batch(sequence)) if step is _Step.TAKE else self._refuse(_batch(sequence))
                self.answers.append((sequence, taken))

    def _answered(self, sequence: int, is_taken: bool) -> None:
        if is_taken:
            assert sequence in self.log
            self.acknowledged.add(sequence)
        else:
            self.to_send = deque(sorted((*self.to_send, sequence)))

    def _take(self, header: BatchHeader) -> bool:
        try:
            self.refused.check(header, self.producers, _NOW_MS)
        except ApiError as error:
            self.refused.note(header, error.code, _NOW_MS)
            return False
        # What is below was written before; that a log knows only a producer's last five batches is not looked at here.
        assert header.base_sequence <= len(self.log), "a gap"
        if header.base_sequence == len(self.log):
            self._append(header.base_sequence)
        return True

    def _refuse(self, header: BatchHeader) -> bool:
        self.refused.note(header, ErrorCode.NOT_ENOUGH_REPLICAS, _NOW_MS)
        return False

    def _append(self, sequence: int) -> None:
        self.producers.record(_batch(sequence), len(self.log), _NOW_MS)
        self.log.append(sequence)

    def _cut(self) -> None:
        before = dict(self.producers.items())
        gone = self.log.pop()
        # The request that waits for it to be committed is answered that there is another leader.
        self.answers = deque((sequence, is_taken and sequence != gone) for sequence, is_taken in self.answers)
        self.producers = ProducerStates()
        for sequence in self.log:
            self.producers.record(_batch(sequence), sequence, _NOW_MS)
        self.refused.note_cut(before, self.producers, _NOW_MS)


@given(st.lists(st.sampled_from(_Step), max_size=120))
def test_a_producer_with_batches_under_way_never_meets_a_gap(steps: list[_Step]) -> None:
    world = _World()
    for step in steps:
        world.do(step)
    for _ in range(200):
        for step in (_Step.SEND, _Step.TAKE, _Step.ANSWER):
            world.do(step)
    assert world.log == list(range(len(world.log)))
    assert len(world.acknowledged) > 20
