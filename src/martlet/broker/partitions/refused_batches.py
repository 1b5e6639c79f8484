"""Which batches of idempotent producers have to come again, so that none behind them gets in first.

When the first of several batches under way is refused for a reason that passes, the next would be a gap
(OUT_OF_ORDER_SEQUENCE_NUMBER: librdkafka then publishes a second time what may be in the log already), or would even be
taken from a producer not known here. It is refused for the same reason instead, and the producer sends them in order. A
batch that was appended and then truncated is missing in the same way. Of each producer the first and the last refused
batch are known; the first of them that the log does not hold is waited for.

Invariants: PAR-21 nothing is refused here because of a batch that is in the log; PAR-22 refusals are remembered for one
epoch of the producer, across changes of leaders, until the last of them has come again or is in the log, or too much
time has passed; then the rules of Kafka hold alone.
Proved by: tests/unit/broker/partitions/test_refused_batches.py, tests/properties/test_refused_batches.py
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.log.producer_state import ProducerEntry, ProducerStates
from martlet.wire.batch import BatchHeader

REMEMBERED_MS: Final = 60_000
"""As long as clients wait for an answer: what they had under way may arrive as late as that."""
PRODUCERS_MAX: Final = 1_000


class _Refusal(NamedTuple):
    """`sequence` is the first that has to come again, `last` the last; code and time are those of the first."""

    producer_epoch: int
    sequence: int
    last: int
    code: ErrorCode
    at_ms: int


class RefusedBatches:
    """Of one partition: the refused batches of each producer."""

    __slots__ = ("_refusals",)

    def __init__(self) -> None:
        self._refusals: dict[int, _Refusal] = {}

    def __bool__(self) -> bool:
        return bool(self._refusals)

    def note(self, header: BatchHeader, code: ErrorCode, now_ms: int) -> None:
        """The batch was refused, for a reason that says nothing against it."""
        if header.producer_id >= 0:
            sequence = header.base_sequence
            self._remember(header.producer_id, _Refusal(header.producer_epoch, sequence, sequence, code, now_ms))

    def note_cut(self, before: Mapping[int, ProducerEntry], after: ProducerStates, now_ms: int) -> None:
        """The log was truncated: what producers had in it `before` and have not `after`, they will send again."""
        for producer_id, entry in before.items():
            left = after.get(producer_id)
            if left is not None and (left.epoch, left.next_sequence) == (entry.epoch, entry.next_sequence):
                continue
            if left is not None and left.epoch == entry.epoch:
                sequence = left.next_sequence
            elif entry.batches:
                sequence = entry.batches[0].first_sequence
            else:
                continue
            last, code = entry.next_sequence - 1, ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._remember(producer_id, _Refusal(entry.epoch, sequence, last, code, now_ms))

    def _remember(self, producer_id: int, refusal: _Refusal) -> None:
        known = self._refusals.pop(producer_id, None)
        if (
            known is not None
            and known.producer_epoch == refusal.producer_epoch
            and refusal.at_ms - known.at_ms < REMEMBERED_MS
        ):
            # Perhaps the new one was refused because of the one before it, whose time must not begin again.
            first = known if known.sequence < refusal.sequence else refusal
            refusal = first._replace(last=max(known.last, refusal.last))
        self._refusals[producer_id] = refusal
        if len(self._refusals) > PRODUCERS_MAX:
            del self._refusals[next(iter(self._refusals))]

    def check(self, header: BatchHeader, producers: ProducerStates, now_ms: int) -> None:
        """Raise when a batch before this one was refused and has not come again, as far as the log knows."""
        known = self._refusals.get(header.producer_id)
        if known is None:
            return
        entry = producers.get(header.producer_id)
        is_missing = entry is None or (entry.epoch, entry.next_sequence) <= (known.producer_epoch, known.last)
        is_recent = 0 <= now_ms - known.at_ms < REMEMBERED_MS
        if not is_missing or not is_recent or known.producer_epoch != header.producer_epoch:
            del self._refusals[header.producer_id]
            return
        missing = known.sequence
        if entry is not None and entry.epoch == known.producer_epoch:
            missing = max(missing, entry.next_sequence)
        if header.base_sequence > missing:
            text = f"the batch of sequence {missing} was refused and has to come before {header.base_sequence}"
            raise ApiError(known.code, text)
        if header.base_sequence == missing:
            # It has come: whatever becomes of it, those behind it are held up by it no longer.
            following = missing + header.record_count
            if following > known.last:
                del self._refusals[header.producer_id]
            else:
                self._refusals[header.producer_id] = known._replace(sequence=following)
