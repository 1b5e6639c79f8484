"""Idempotence: what a batch's producer, epoch and sequence numbers decide."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.log.producer_state import ProducerStates
from martlet.wire.batch import BatchHeader, TransactionMarker, build_marker_batch, read_batch_header
from tests.unit.log.log_builders import batch_of

WRAP = 1 << 31


def header_of(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 9) -> BatchHeader:
    return read_batch_header(batch_of(*[b"v"] * count, producer=(producer_id, epoch, sequence)))


def states_after(*sequences: int, epoch: int = 0) -> ProducerStates:
    states = ProducerStates()
    for number, sequence in enumerate(sequences):
        states.record(header_of(sequence, epoch=epoch), 100 + number, 5000 + number)
    return states


def refusal(states: ProducerStates, header: BatchHeader) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        states.check(header)
    return caught.value.code


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStates().check(header_of(77)) is None


def test_numbers_must_follow_each_other() -> None:
    states = states_after(0, 1)
    assert states.check(header_of(2)) is None
    assert refusal(states, header_of(3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_is_answered_with_its_offset() -> None:
    states = states_after(*range(7))
    for sequence in range(2, 7):
        known = states.check(header_of(sequence))
        assert known is not None
        assert (known.base_offset, known.last_offset, known.timestamp_ms) == (
            100 + sequence,
            100 + sequence,
            5000 + sequence,
        )
    assert refusal(states, header_of(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_has_the_same_first_and_last_number() -> None:
    states = ProducerStates()
    states.record(header_of(0, 3), 12, 1)
    known = states.check(header_of(0, 3))
    assert known is not None
    assert (known.base_offset, known.last_offset) == (10, 12)
    assert refusal(states, header_of(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(states, header_of(1, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_checking_changes_nothing() -> None:
    states = states_after(0)
    states.check(header_of(1))
    states.check(header_of(1))
    assert refusal(states, header_of(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_at_zero() -> None:
    states = states_after(0, 1)
    assert states.check(header_of(0, epoch=1)) is None
    assert refusal(states, header_of(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_old_epoch_is_refused_even_for_a_duplicate() -> None:
    states = states_after(0, epoch=3)
    assert refusal(states, header_of(0, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_forgets_the_old_batches() -> None:
    states = states_after(0, 1)
    states.record(header_of(0, epoch=1), 200, 1)
    entry = states.get(9)
    assert entry is not None
    assert [batch.last_offset for batch in entry.batches] == [200]
    assert (entry.epoch, entry.last_sequence, entry.next_sequence) == (1, 0, 1)


def test_numbers_wrap_to_zero() -> None:
    states = ProducerStates()
    states.record(header_of(WRAP - 2, 2), 11, 1)
    assert states.check(header_of(0)) is None
    states.record(header_of(0), 12, 1)
    states.record(header_of(1), 13, 1)
    known = states.check(header_of(WRAP - 2, 2))
    assert known is not None
    assert known.base_offset == 10


def test_a_batch_that_wraps_inside_is_recognised() -> None:
    states = ProducerStates()
    states.record(header_of(WRAP - 1, 3), 12, 1)
    entry = states.get(9)
    assert entry is not None
    assert (entry.last_sequence, entry.next_sequence) == (1, 2)
    assert states.check(header_of(WRAP - 1, 3)) is not None


def test_producers_do_not_know_of_each_other() -> None:
    states = states_after(0, 1)
    assert states.check(header_of(50, producer_id=10)) is None


def test_silent_producers_expire() -> None:
    states = states_after(0)
    states.record(header_of(0, producer_id=10), 1, 9000)
    assert states.expire(5999, 1000) == 0
    assert states.expire(6000, 1000) == 1
    assert [producer_id for producer_id, _ in states.items()] == [10]
    assert states.check(header_of(33)) is None


def test_a_marker_moves_the_epoch_and_not_the_numbers() -> None:
    states = states_after(0, 1)
    marker = build_marker_batch(TransactionMarker(True, 1), producer_id=9, producer_epoch=0, timestamp_ms=1)
    states.record(read_batch_header(marker), 102, 7000)
    entry = states.get(9)
    assert entry is not None
    assert (entry.next_sequence, entry.last_timestamp_ms) == (2, 7000)
    bumped = build_marker_batch(TransactionMarker(True, 1), producer_id=9, producer_epoch=1, timestamp_ms=1)
    states.record(read_batch_header(bumped), 103, 7001)
    assert states.check(header_of(0, epoch=1)) is None
    assert len(states) == 1
