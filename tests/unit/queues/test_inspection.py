"""Looking at a subscription: depth, the reason for a stall, one message, a page of them; and nothing changes."""

from sim.randomness import SimRandomness

from martlet.queues.engine import QueueEngine, QueueOptions, Settlement, Verdict
from martlet.queues.inspection import MessageStatus, depth, peek, status, why_nothing_is_delivered
from martlet.queues.retry import Backoff, RetryPolicy

NOW = 1_000_000


def engine(**options: object) -> QueueEngine:
    retry = RetryPolicy(5, Backoff.FIXED, delay_ms=500, jitter=0)
    made = QueueEngine(0, QueueOptions(retry=retry, **options), SimRandomness(1))  # type: ignore[arg-type]
    made.end = 20
    commit(made)
    return made


def commit(engine: QueueEngine) -> None:
    change = engine.take_change()
    if change is not None:
        engine.committed(change)


def a_bit_of_everything() -> QueueEngine:
    """0 acknowledged, 1 backs off, 2 rejected and being copied, 3 closing, 4–5 leased by ann, 6–19 wait."""
    queue = engine(has_dead_letters=True)
    queue.acquire("ann", 6, NOW)
    accept, release, reject = Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT
    settlements = [Settlement(0, 0, accept), Settlement(1, 1, release), Settlement(2, 2, reject)]
    queue.settle("ann", settlements, NOW)
    commit(queue)
    queue.settle("ann", [Settlement(3, 3, accept)], NOW)
    return queue


def test_every_message_that_is_not_finished_is_counted_once() -> None:
    seen = depth(a_bit_of_everything())
    assert (seen.waiting, seen.leased, seen.closing, seen.backing_off, seen.copying) == (14, 2, 1, 1, 1)
    assert seen.total == 19
    assert seen.oldest == 1


def test_one_message_is_found_wherever_it_is() -> None:
    queue = a_bit_of_everything()
    assert status(queue, 0) == MessageStatus("finished")
    assert status(queue, 1) == MessageStatus("backing off", 1, None, NOW + 500)
    assert status(queue, 2) == MessageStatus("being dead-lettered", 1)
    assert status(queue, 3) == MessageStatus("about to be acknowledged", 1)
    assert status(queue, 4) == MessageStatus("leased", 1, "ann", NOW + 30_000)
    assert status(queue, 6) == MessageStatus("waiting")
    assert status(queue, 20) == MessageStatus("not readable yet")


def test_a_page_shows_what_is_not_finished_and_changes_nothing() -> None:
    queue = a_bit_of_everything()
    commit(queue)
    before = queue.snapshot().record
    page = peek(queue, 0, 6)
    assert [offset for offset, _ in page] == [1, 2, 4, 5, 6, 7]
    assert page[2] == (4, status(queue, 4))
    assert [offset for offset, _ in peek(queue, 5, 3)] == [5, 6, 7]
    assert len(peek(queue, 15, 100)) == 5
    assert peek(queue, 20, 10) == []
    assert queue.snapshot().record == before


def test_a_full_window_is_reported_with_who_holds_it() -> None:
    queue = engine(window_max=4)
    assert why_nothing_is_delivered(queue, NOW) is None
    queue.acquire("ann", 3, NOW)
    queue.acquire("bob", 1, NOW + 1_000)
    assert why_nothing_is_delivered(queue, NOW + 5_000) == (
        "stalled: the window of 4 messages is full; 3 of them are leased by ann,"
        " the first of these leases ends in 25000 ms"
    )
    queue.settle("ann", [Settlement(0, 2, Verdict.ACCEPT)], NOW)
    queue.settle("bob", [Settlement(3, 3, Verdict.ACCEPT)], NOW)
    commit(queue)
    assert why_nothing_is_delivered(queue, NOW) is None


def test_too_many_outside_of_the_window_are_reported() -> None:
    queue = engine(strays_max=2)
    queue.acquire("ann", 2, NOW)
    queue.settle("ann", [Settlement(0, 1, Verdict.RELEASE)], NOW)
    assert why_nothing_is_delivered(queue, NOW) == (
        "stalled: 2 messages are outside of the window, which is the limit:"
        " 2 back off, 0 wait for the dead-letter topic"
    )


def test_an_empty_queue_and_one_that_is_all_handed_out_are_not_stalled() -> None:
    queue = engine()
    queue.acquire("ann", 100, NOW)
    assert why_nothing_is_delivered(queue, NOW) is None
