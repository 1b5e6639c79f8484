"""What a leader asks of batches and markers of transactions, and who has leave to open one."""

from collections.abc import Callable

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.partitions.transaction_guards import (
    Guard,
    MarkerOf,
    TransactionGuards,
    check_leave,
    check_marker,
    check_outside,
    may_append_unasked,
)
from martlet.log.producer_state import ProducerStates
from martlet.wire.batch import CONTROL_BIT, MAGIC, TRANSACTIONAL_BIT, BatchHeader, TransactionMarker

PRODUCER = 7


def header(epoch: int, sequence: int, *, transactional: bool = True, control: bool = False) -> BatchHeader:
    attributes = (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0)
    return BatchHeader(0, 0, 0, MAGIC, 0, attributes, 0, 0, 0, PRODUCER, epoch, sequence, 1)


class Log:
    """The memory of producers, and the next offset."""

    def __init__(self) -> None:
        self.producers = ProducerStates()
        self.offset = 0

    def append(self, batch: BatchHeader, coordinator_epoch: int | None = None) -> None:
        marker = None if coordinator_epoch is None else TransactionMarker(True, coordinator_epoch)
        self.producers.record(batch, self.offset, 0, marker)
        self.offset += 1

    def end(self, epoch: int, coordinator_epoch: int = 0) -> None:
        self.append(header(epoch, -1, control=True), coordinator_epoch)


@pytest.fixture
def log() -> Log:
    return Log()


def code_of(check: Callable[[], object]) -> ErrorCode:
    try:
        check()
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def test_only_what_is_open_or_a_repeat_is_appended_without_asking(log: Log) -> None:
    assert not may_append_unasked(log.producers, header(3, 0))
    log.append(header(3, 0))
    assert may_append_unasked(log.producers, header(3, 1))
    assert not may_append_unasked(log.producers, header(4, 0))
    log.end(3)
    assert not may_append_unasked(log.producers, header(3, 1))
    assert may_append_unasked(log.producers, header(3, 0)), "it is in the log"
    log.end(4)
    assert code_of(lambda: may_append_unasked(log.producers, header(3, 0))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not may_append_unasked(log.producers, header(4, 0))


def test_a_batch_needs_the_guard_that_is_still_there(log: Log) -> None:
    guards = TransactionGuards()

    def code(guard: Guard | None, epoch: int = 3, sequence: int = 0) -> ErrorCode:
        batch = header(epoch, sequence)
        return code_of(lambda: check_leave(log.producers, guards, batch, guard, adds=True))

    assert code(None) is ErrorCode.INVALID_TXN_STATE
    guard = guards.ask(PRODUCER, 3)
    assert guards.ask(PRODUCER, 3) is guard
    assert code(guard) is ErrorCode.NONE
    assert code(guard, epoch=4) is ErrorCode.INVALID_TXN_STATE
    assert code(guard, sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code(Guard(3)) is ErrorCode.INVALID_TXN_STATE, "another guard of the same epoch"
    guards.drop(PRODUCER, Guard(3))
    assert code(guard) is ErrorCode.NONE
    guards.drop(PRODUCER, guard)
    assert code(guard) is ErrorCode.INVALID_TXN_STATE


def test_a_newer_epoch_takes_the_guard_from_an_older_one() -> None:
    guards = TransactionGuards()
    old = guards.ask(PRODUCER, 3)
    new = guards.ask(PRODUCER, 4)
    assert (guards.holds(PRODUCER, old), guards.holds(PRODUCER, new)) == (False, True)
    assert code_of(lambda: guards.ask(PRODUCER, 3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_leaves_only_the_guard_of_the_transaction_after_it() -> None:
    guards = TransactionGuards()
    guard = guards.ask(PRODUCER, 4)
    guards.marker_written(PRODUCER, 4, 2)
    assert guards.holds(PRODUCER, guard), "the marker carries the epoch of the next transaction"
    guards.marker_written(PRODUCER, 4, 0)
    assert not guards.holds(PRODUCER, guard), "in the first generation it may be the same transaction"
    guard = guards.ask(PRODUCER, 4)
    guards.marker_written(PRODUCER, 5, 2)
    assert not guards.holds(PRODUCER, guard)
    guards.ask(PRODUCER, 6)
    guards.clear()
    assert len(guards) == 0


@pytest.mark.parametrize(
    ("epoch", "version", "is_open", "code"),
    [
        (2, 0, False, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 0, True, ErrorCode.NONE),
        (3, 0, False, ErrorCode.NONE),
        (4, 0, True, ErrorCode.NONE),
        (2, 2, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 2, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 2, False, ErrorCode.NONE),
        (4, 2, True, ErrorCode.NONE),
    ],
)
def test_a_marker_of_an_older_transaction_is_refused_and_a_repeat_is_not(
    log: Log, epoch: int, version: int, is_open: bool, code: ErrorCode
) -> None:
    log.append(header(3, 0))
    if not is_open:
        log.end(3)
    assert code_of(lambda: check_marker(log.producers, MarkerOf(PRODUCER, epoch, True, 0, version))) is code


def test_a_marker_of_a_coordinator_that_was_replaced_is_refused_after_its_epoch_was_checked(log: Log) -> None:
    log.append(header(3, 0))
    log.end(4, coordinator_epoch=6)
    late = MarkerOf(PRODUCER, 5, True, 5, 2)
    assert code_of(lambda: check_marker(log.producers, late)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    older = late._replace(producer_epoch=3)
    assert code_of(lambda: check_marker(log.producers, older)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(lambda: check_marker(log.producers, late._replace(coordinator_epoch=6))) is ErrorCode.NONE


def test_a_marker_for_a_producer_that_has_written_nothing_is_accepted(log: Log) -> None:
    assert code_of(lambda: check_marker(log.producers, MarkerOf(PRODUCER, 0, True, 0, 2))) is ErrorCode.NONE


def test_a_batch_outside_a_transaction_is_refused_while_one_is_open(log: Log) -> None:
    batch = header(3, 1, transactional=False)
    check_outside(log.producers, batch)
    log.append(header(3, 0))
    assert code_of(lambda: check_outside(log.producers, batch)) is ErrorCode.INVALID_TXN_STATE
    check_outside(log.producers, header(3, 0, transactional=False))
