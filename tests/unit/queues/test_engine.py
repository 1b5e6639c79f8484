"""The queue engine, one story at a time."""

from collections.abc import Sequence

import pytest
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode
from martlet.queues.cells import ACKNOWLEDGED, COPYING, EXHAUSTED, FILTERED, GAP, REJECTED, WAITING
from martlet.queues.engine import Delivery, QueueEngine, QueueOptions, Settlement, Verdict
from martlet.queues.records import DeadLetter
from martlet.queues.retry import Backoff, RetryPolicy

NOW = 1_000_000
LEASE_MS = 30_000


def engine(messages: int = 100, **options: object) -> QueueEngine:
    made = QueueEngine(0, QueueOptions(**options), SimRandomness(1))  # type: ignore[arg-type]  # passed through
    made.end = messages
    commit(made)
    return made


def commit(engine: QueueEngine) -> list[DeadLetter]:
    change = engine.take_change()
    return [] if change is None else engine.committed(change)


def settle(engine: QueueEngine, holder: str | None, *ranges: tuple[int, int, Verdict]) -> None:
    engine.settle(holder, [Settlement(*one) for one in ranges], NOW)


def refusal(engine: QueueEngine, holder: str | None, ranges: Sequence[tuple[int, int, Verdict]]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        settle(engine, holder, *ranges)
    return caught.value.code


def test_consumers_share_a_partition() -> None:
    queue = engine()
    assert queue.acquire("ann", 10, NOW) == [Delivery(0, 9, 1)]
    assert queue.acquire("bob", 5, NOW) == [Delivery(10, 14, 1)]
    settle(queue, "bob", (10, 14, Verdict.ACCEPT))
    assert queue.ledger.low_mark == 0
    settle(queue, "ann", (0, 9, Verdict.ACCEPT))
    assert queue.ledger.low_mark == 0, "an end that is not committed yet is none"
    commit(queue)
    assert queue.ledger.low_mark == queue.ledger.window.frontier == 15


def test_what_is_released_goes_to_the_next_who_asks() -> None:
    queue = engine()
    queue.acquire("ann", 10, NOW)
    settle(queue, "ann", (2, 4, Verdict.RELEASE))
    assert queue.acquire("bob", 5, NOW) == [Delivery(2, 4, 2), Delivery(10, 11, 1)]


def test_a_lease_ends_by_time_and_the_attempt_counts() -> None:
    queue = engine()
    queue.acquire("ann", 2, NOW)
    assert queue.next_due_ms() == NOW + LEASE_MS
    assert queue.acquire("bob", 1, NOW + LEASE_MS - 1) == [Delivery(2, 2, 1)]
    queue.pass_time(NOW + LEASE_MS)
    assert queue.acquire("bob", 2, NOW + LEASE_MS) == [Delivery(0, 1, 2)]
    assert refusal(queue, "ann", [(0, 1, Verdict.ACCEPT)]) is ErrorCode.INVALID_RECORD_STATE


def test_a_renewed_lease_lasts_as_long_again() -> None:
    queue = engine()
    queue.acquire("ann", 4, NOW)
    queue.settle("ann", [Settlement(1, 2, Verdict.RENEW)], NOW + 20_000)
    queue.pass_time(NOW + LEASE_MS)
    assert queue.acquire("bob", 9, NOW + LEASE_MS)[:2] == [Delivery(0, 0, 2), Delivery(3, 3, 2)]
    assert queue.ledger.window.leased == 11
    settle(queue, "ann", (1, 2, Verdict.ACCEPT))


def test_a_holder_that_goes_gives_back_what_it_has_as_if_never_leased() -> None:
    queue = engine()
    for _ in range(20):
        assert queue.acquire("ann", 3, NOW) == [Delivery(0, 2, 1)]
        queue.release("ann", NOW)
    assert queue.take_change() is None, "leasing and giving back writes nothing"


def test_a_request_is_applied_whole_or_not_at_all() -> None:
    queue = engine()
    queue.acquire("ann", 5, NOW)
    queue.acquire("bob", 5, NOW)
    for ranges, code in (
        ([(0, 1, Verdict.ACCEPT), (4, 5, Verdict.ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 1, Verdict.ACCEPT), (1, 2, Verdict.ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 1, Verdict.ACCEPT), (9, 10, Verdict.ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(3, 2, Verdict.ACCEPT)], ErrorCode.INVALID_REQUEST),
    ):
        assert refusal(queue, "ann", ranges) is code
    assert queue.take_change() is None
    settle(queue, "ann", (0, 1, Verdict.ACCEPT), (2, 2, Verdict.RELEASE), (3, 4, Verdict.REJECT))
    assert refusal(queue, "ann", [(0, 0, Verdict.ACCEPT)]) is ErrorCode.INVALID_RECORD_STATE
    commit(queue)
    settle(queue, "ann", (0, 1, Verdict.ACCEPT))  # before the start: finished, and ignored


def test_a_token_of_an_earlier_lease_is_refused() -> None:
    queue = engine()
    queue.acquire("ann", 1, NOW)
    queue.pass_time(NOW + LEASE_MS)
    assert queue.acquire("ann", 1, NOW + LEASE_MS) == [Delivery(0, 0, 2)]
    accept = [Settlement(0, 0, Verdict.ACCEPT)]
    with pytest.raises(ApiError, match="offset 0 is not leased"):
        queue.settle("ann", accept, NOW, attempt=1)
    queue.settle("ann", accept, NOW, attempt=2)


def test_an_acknowledgement_by_offset_alone_ends_whatever_lease_there_is() -> None:
    queue = engine()
    queue.acquire("ann", 2, NOW)
    settle(queue, None, (1, 1, Verdict.ACCEPT))
    assert refusal(queue, "ann", [(1, 1, Verdict.ACCEPT)]) is ErrorCode.INVALID_RECORD_STATE


def test_a_failed_append_gives_the_message_back_to_its_holder() -> None:
    queue = engine()
    queue.acquire("ann", 2, NOW)
    settle(queue, "ann", (0, 0, Verdict.ACCEPT))
    change = queue.take_change()
    assert change is not None
    queue.failed(change, NOW)
    settle(queue, "ann", (0, 0, Verdict.RELEASE))
    assert queue.acquire("bob", 1, NOW) == [Delivery(0, 0, 2)]


def test_a_lease_that_ends_while_its_end_is_being_stored_waits_for_the_outcome() -> None:
    queue = engine()
    queue.acquire("ann", 1, NOW)
    settle(queue, "ann", (0, 0, Verdict.ACCEPT))
    change = queue.take_change()
    assert change is not None
    queue.pass_time(NOW + LEASE_MS)
    assert queue.acquire("bob", 1, NOW + LEASE_MS) == [Delivery(1, 1, 1)]
    queue.failed(change, NOW + LEASE_MS)
    assert queue.acquire("cid", 1, NOW + LEASE_MS) == [Delivery(0, 0, 2)]


def test_the_last_attempt_is_alone_and_then_the_message_is_out_of_attempts() -> None:
    queue = engine(retry=RetryPolicy(3))
    for attempt in (1, 2):
        assert queue.acquire("ann", 10, NOW) == [Delivery(0, 9, attempt)]
        settle(queue, "ann", (0, 9, Verdict.RELEASE))
    for offset in range(10):
        assert queue.acquire("ann", 10, NOW) == [Delivery(offset, offset, 3)]
        settle(queue, "ann", (offset, offset, Verdict.RELEASE if offset == 4 else Verdict.ACCEPT))
    commit(queue)
    assert queue.ledger.window.start == 10
    assert queue.acquire("ann", 10, NOW) == [Delivery(10, 19, 1)]


def test_a_suspect_outside_of_the_window_is_alone_at_its_last_attempt_too() -> None:
    queue = engine(retry=RetryPolicy(3, Backoff.FIXED, delay_ms=500, jitter=0))
    queue.acquire("ann", 2, NOW)
    settle(queue, "ann", (1, 1, Verdict.RELEASE))
    assert queue.acquire("ann", 1, NOW + 500) == [Delivery(1, 1, 2)]
    settle(queue, "ann", (0, 1, Verdict.RELEASE))
    assert queue.acquire("bob", 9, NOW + 500) == [Delivery(0, 0, 2)], "the innocent one goes without the suspect"
    assert queue.acquire("bob", 9, NOW + 500) == [Delivery(1, 1, 3)]


def test_what_could_not_be_stored_is_stored_with_the_next_change() -> None:
    queue = engine(retry=RetryPolicy(1))
    queue.acquire("ann", 3, NOW)
    settle(queue, "ann", (0, 0, Verdict.RELEASE), (1, 1, Verdict.ACCEPT))
    change = queue.take_change()
    assert change is not None
    queue.failed(change, NOW)
    again = queue.take_change()
    assert again is not None
    assert [(run.first, run.last, run.cell) for run in again.record.runs] == [(0, 0, EXHAUSTED), (1, 1, WAITING)]
    queue.committed(again)
    assert queue.ledger.window.start == 1


def test_a_retry_with_a_pause_leaves_the_window_and_comes_back_in_time() -> None:
    queue = engine(retry=RetryPolicy(5, Backoff.FIXED, delay_ms=500, jitter=0), window_max=4)
    queue.acquire("ann", 4, NOW)
    settle(queue, "ann", (0, 3, Verdict.RELEASE))
    assert queue.ledger.window.start == 4, "what backs off does not pin the window"
    assert queue.ledger.low_mark == 0, "but the log has to keep it"
    assert queue.acquire("ann", 10, NOW) == [Delivery(4, 7, 1)]
    assert queue.next_due_ms() == NOW + 500
    assert queue.acquire("ann", 10, NOW + 500) == [Delivery(offset, offset, 2) for offset in range(4)]
    settle(queue, "ann", (0, 5, Verdict.ACCEPT))
    commit(queue)
    assert queue.ledger.low_mark == 6


def test_too_many_strays_stop_what_is_new_and_nothing_else() -> None:
    queue = engine(retry=RetryPolicy(5, Backoff.FIXED, delay_ms=500, jitter=0), strays_max=3)
    queue.acquire("ann", 3, NOW)
    settle(queue, "ann", (0, 2, Verdict.RELEASE))
    assert not queue.has_deliverable
    assert queue.acquire("ann", 3, NOW) == []
    assert len(queue.acquire("ann", 3, NOW + 500)) == 3


def test_a_dead_letter_is_finished_only_when_its_copy_is_committed() -> None:
    queue = engine(has_dead_letters=True, retry=RetryPolicy(1))
    queue.acquire("ann", 3, NOW)
    settle(queue, "ann", (0, 0, Verdict.REJECT), (1, 1, Verdict.RELEASE), (2, 2, Verdict.ACCEPT))
    letters = commit(queue)
    assert letters == [DeadLetter(0, 1, REJECTED), DeadLetter(1, 1, EXHAUSTED)]
    assert queue.ledger.window.start == 3
    assert queue.ledger.low_mark == 0
    assert queue.ledger.strays.tally() == {COPYING: 2}
    queue.dead_letter_copied(0)
    queue.dead_letter_copied(0)
    commit(queue)
    assert queue.ledger.low_mark == 1


def test_a_new_leader_copies_again_what_was_not_surely_copied() -> None:
    queue = engine(has_dead_letters=True)
    queue.acquire("ann", 2, NOW)
    settle(queue, "ann", (0, 1, Verdict.REJECT))
    letters = commit(queue)
    loaded = QueueEngine(0, queue.options, SimRandomness(1))
    loaded.replay(queue.snapshot().record)
    assert loaded.loaded() == letters
    assert loaded.ledger.window.start == 2


def test_fewer_attempts_hold_for_what_was_tried_already() -> None:
    queue = engine(retry=RetryPolicy(5))
    for _ in range(3):
        queue.acquire("ann", 3, NOW)
        settle(queue, "ann", (0, 2, Verdict.RELEASE))
    queue.alter(QueueOptions(retry=RetryPolicy(3)))
    assert queue.acquire("ann", 9, NOW) == [Delivery(3, 11, 1)]
    commit(queue)
    assert queue.ledger.window.start == 3


def test_a_seek_forgets_what_was_and_ignores_what_comes_late() -> None:
    queue = engine()
    queue.acquire("ann", 10, NOW)
    settle(queue, "ann", (0, 4, Verdict.ACCEPT))
    late = queue.take_change()
    assert late is not None
    queue.reset(50)
    assert queue.committed(late) == []
    queue.failed(late, NOW)
    assert refusal(queue, "ann", [(60, 60, Verdict.ACCEPT)]) is ErrorCode.INVALID_REQUEST
    settled = queue.take_change()
    assert settled is not None
    assert (settled.record.epoch, settled.record.start, settled.record.is_snapshot) == (1, 50, True)
    assert queue.acquire("ann", 1, NOW) == [Delivery(50, 50, 1)]


@pytest.mark.parametrize("log_start", [3, 7, 10, 40])
def test_what_the_log_no_longer_has_is_passed_over(log_start: int) -> None:
    queue = engine(retry=RetryPolicy(5, Backoff.FIXED, delay_ms=500))
    queue.acquire("ann", 10, NOW)
    settle(queue, "ann", (1, 2, Verdict.RELEASE), (5, 5, Verdict.ACCEPT))
    change = queue.take_change()
    queue.log_begins_at(log_start)
    assert queue.ledger.low_mark == queue.ledger.window.start == log_start
    assert change is not None
    queue.committed(change)
    assert sum(queue.ledger.leases.holders().values()) == queue.ledger.window.leased + queue.ledger.window.closing
    commit(queue)
    assert queue.acquire("bob", 1, NOW) == [Delivery(max(10, log_start), max(10, log_start), 1)]


def test_what_is_filtered_out_moves_the_start_though_no_client_consumes() -> None:
    queue = engine()
    assert queue.admit(10, FILTERED) == 0
    assert queue.admit(5) == 10
    assert queue.ledger.window.start == 10
    change = queue.take_change()
    assert change is not None
    assert (change.record.start, change.record.frontier) == (10, 15)
    assert queue.acquire("ann", 9, NOW) == [Delivery(10, 14, 1), Delivery(15, 18, 1)]
    assert queue.ledger.window.cell(10) != WAITING


def test_gaps_are_finished_like_messages() -> None:
    queue = engine()
    queue.acquire("ann", 3, NOW)
    settle(queue, "ann", (0, 0, Verdict.ACCEPT), (1, 2, Verdict.GAP))
    change = queue.take_change()
    assert change is not None
    assert [(run.first, run.last, run.cell) for run in change.record.runs] == [(0, 0, ACKNOWLEDGED), (1, 2, GAP)]


def test_a_mass_expiry_is_done_in_parts() -> None:
    queue = engine(1000)
    for member in range(200):
        queue.acquire(f"member-{member}", 5, NOW)
    assert queue.pass_time(NOW + LEASE_MS)
    assert 0 < queue.ledger.window.waiting < 1000
    while queue.pass_time(NOW + LEASE_MS):
        pass
    assert queue.ledger.window.waiting == 1000


@pytest.mark.parametrize("name", ["lease_ms", "window_max", "strays_max"])
def test_limits_of_nothing_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        QueueOptions(**{name: 0})  # type: ignore[arg-type]  # the wrong numbers are the point


def test_a_lease_lasts_as_long_as_is_asked_for() -> None:
    queue = engine()
    queue.acquire("ann", 1, NOW, lease_ms=1_000)
    queue.pass_time(NOW + 1_000)
    assert queue.acquire("bob", 1, NOW + 1_000) == [Delivery(0, 0, 2)]


def test_a_renewal_lasts_as_long_as_is_asked_for() -> None:
    queue = engine()
    queue.acquire("ann", 1, NOW, lease_ms=1_000)
    queue.settle("ann", [Settlement(0, 0, Verdict.RENEW)], NOW, lease_ms=60_000)
    queue.pass_time(NOW + 59_000)
    assert queue.next_due_ms() == NOW + 60_000


def test_a_release_with_a_delay_keeps_the_message_back_whatever_the_policy_says() -> None:
    queue = engine()
    queue.acquire("ann", 2, NOW)
    queue.settle("ann", [Settlement(0, 0, Verdict.RELEASE)], NOW, delay_ms=5_000)
    assert queue.acquire("bob", 1, NOW + 4_999) == [Delivery(2, 2, 1)]
    assert queue.acquire("bob", 1, NOW + 5_000) == [Delivery(0, 0, 2)]


def test_a_release_without_a_pause_comes_back_at_once_whatever_the_policy_says() -> None:
    queue = engine(retry=RetryPolicy(backoff=Backoff.FIXED, delay_ms=1_000))
    queue.acquire("ann", 1, NOW)
    queue.settle("ann", [Settlement(0, 0, Verdict.RELEASE)], NOW, delay_ms=0)
    assert queue.acquire("bob", 1, NOW) == [Delivery(0, 0, 2)]


def test_what_could_not_be_delivered_is_taken_back_and_does_not_count() -> None:
    queue = engine(retry=RetryPolicy(backoff=Backoff.FIXED, delay_ms=1_000))
    queue.acquire("ann", 10, NOW)
    settle(queue, "ann", (0, 0, Verdict.RELEASE))
    assert queue.acquire("ann", 1, NOW + 2_000) == [Delivery(0, 0, 2)]
    queue.take_back("ann", [Delivery(0, 0, 2), Delivery(5, 9, 1)])
    assert queue.acquire("bob", 6, NOW + 2_000) == [Delivery(0, 0, 2), Delivery(5, 9, 1)]


def test_what_another_holder_has_meanwhile_is_not_taken_back() -> None:
    queue = engine()
    queue.acquire("ann", 2, NOW)
    settle(queue, None, (0, 1, Verdict.RELEASE))
    queue.acquire("bob", 2, NOW)
    queue.take_back("ann", [Delivery(0, 1, 1)])
    assert refusal(queue, "ann", [(0, 1, Verdict.ACCEPT)]) is ErrorCode.INVALID_RECORD_STATE
    settle(queue, "bob", (0, 1, Verdict.ACCEPT))
