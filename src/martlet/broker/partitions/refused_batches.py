"""Which batches of idempotent producers were refused for a passing reason, so that none behind them gets in first.

A producer has several batches under way. When the first is refused because the broker is cut off or too few replicas
are in sync, and that is over when the next one comes, the next would be a gap (OUT_OF_ORDER_SEQUENCE_NUMBER, on which
librdkafka begins a new epoch and publishes a second time what may be in the log already) or, from a producer not known
here yet, would even be taken. It is refused for the same passing reason instead, and the producer sends them in order.

Invariants: (1) nothing is refused here because of a batch that is in the log; (2) a refusal is remembered for one
epoch of the producer, until its batch comes again or is in the log because somebody else took it, or too much time has
passed; then the rules of Kafka hold alone. Who leads meanwhile does not matter: leaders change while producers wait.
Proved by: tests/unit/broker/test_refused_batches.py
"""

from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.log.producer_state import ProducerStates
from martlet.wire.batch import BatchHeader

REMEMBERED_MS: Final = 15_000
PRODUCERS_MAX: Final = 1_000


class _Refusal(NamedTuple):
    producer_epoch: int
    sequence: int
    code: ErrorCode
    at_ms: int


class RefusedBatches:
    """Of one partition: the first refused batch of each producer."""

    __slots__ = ("_refusals",)

    def __init__(self) -> None:
        self._refusals: dict[int, _Refusal] = {}

    def __bool__(self) -> bool:
        return bool(self._refusals)

    def note(self, header: BatchHeader, code: ErrorCode, now_ms: int) -> None:
        """The batch was refused; nothing of it is in the log."""
        if header.producer_id < 0:
            return
        known = self._refusals.get(header.producer_id)
        epoch, sequence = header.producer_epoch, header.base_sequence
        if known is not None and known.producer_epoch == epoch and known.sequence < sequence:
            return  # perhaps because of that one: its time must not begin anew
        self._refusals.pop(header.producer_id, None)
        self._refusals[header.producer_id] = _Refusal(epoch, sequence, code, now_ms)
        if len(self._refusals) > PRODUCERS_MAX:
            del self._refusals[next(iter(self._refusals))]

    def check(self, header: BatchHeader, producers: ProducerStates, now_ms: int) -> None:
        """Raise when a batch before this one was refused and has not come again, as far as the log knows."""
        known = self._refusals.get(header.producer_id)
        if known is None:
            return
        entry = producers.get(header.producer_id)
        if entry is not None and (entry.epoch, entry.next_sequence) > (known.producer_epoch, known.sequence):
            del self._refusals[header.producer_id]
            return
        counts = known.producer_epoch == header.producer_epoch and 0 <= now_ms - known.at_ms < REMEMBERED_MS
        if counts and header.base_sequence < known.sequence:
            return
        if counts and header.base_sequence > known.sequence:
            text = f"the batch of sequence {known.sequence} was refused and has to come before {header.base_sequence}"
            raise ApiError(known.code, text)
        del self._refusals[header.producer_id]
