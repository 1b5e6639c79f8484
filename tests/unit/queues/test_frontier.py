"""A subscription meets its messages: filtered, expired, scheduled, parked, the most urgent first; also after a load."""

import pytest
from sim.disk import SimDisk
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError
from martlet.queues.cells import ACKNOWLEDGED, CLOSING, EXPIRED, STRAY
from martlet.queues.delay_index import DelayIndex
from martlet.queues.engine import Delivery, QueueEngine, QueueOptions, Settlement, Verdict
from martlet.queues.features import Features, Seen
from martlet.queues.inspection import depth, status, why_nothing_is_delivered
from martlet.queues.record_codec import decode_state, encode_state
from martlet.queues.retry import Backoff, RetryPolicy

NOW = 1_000_000
A, B = b"a", b"b"


def schedule() -> DelayIndex:
    index = DelayIndex(SimDisk(SimRandomness(1)), "delay")
    index.open(0)
    return index


def queue(features: Features, seen: list[Seen], **options: object) -> QueueEngine:
    """A queue that has looked at these messages."""
    made = QueueEngine(0, QueueOptions(**options), SimRandomness(1), features)  # type: ignore[arg-type]
    return meets(made, seen)


def meets(made: QueueEngine, seen: list[Seen], now_ms: int = NOW) -> QueueEngine:
    if isinstance(made.frontier.features.schedule, DelayIndex):  # type: ignore[union-attr]
        for message in seen:
            if message.due_ms:
                made.frontier.features.schedule.add(message.due_ms, message.offset)  # type: ignore[union-attr]
        made.frontier.features.schedule.saw(made.end + len(seen))  # type: ignore[union-attr]
    made.end += len(seen)
    look(made, {message.offset: message for message in seen}, now_ms)
    return made


def look(made: QueueEngine, known: dict[int, Seen], now_ms: int = NOW) -> None:
    while (wanted := made.look_wanted(100)) is not None:
        first, end = wanted
        found = [known[offset] for offset in range(first, end) if offset in known]
        if made.take_seen(first, end, found, now_ms) == first:
            return


def offsets(deliveries: list[Delivery]) -> list[int]:
    return [offset for delivery in deliveries for offset in range(delivery.first, delivery.last + 1)]


def commit(made: QueueEngine) -> bytes:
    change = made.take_change()
    assert change is not None
    made.committed(change)
    return encode_state(change.record)


def test_what_the_filter_leaves_out_moves_the_start_though_nobody_acknowledges() -> None:
    made = queue(Features(), [Seen(offset, is_wanted=False) for offset in range(500)])
    assert made.ledger.window.start == made.low_mark == 500
    change = made.take_change()
    assert change is not None
    assert (change.record.start, change.record.runs) == (500, ())


def test_gaps_between_messages_are_finished_by_the_way() -> None:
    made = queue(Features(), [Seen(0)])
    made.end = 10
    look(made, {3: Seen(3), 7: Seen(7)})
    assert offsets(made.acquire("ann", 10, NOW)) == [0, 3, 7]


def test_what_has_expired_is_not_delivered_and_goes_to_the_dead_letters_if_there_are_any() -> None:
    seen = [Seen(0, expires_ms=NOW), Seen(1, expires_ms=NOW + 500), Seen(2)]
    made = queue(Features(), seen, has_dead_letters=True)
    assert made.next_wall_ms() == NOW + 500
    assert not made.pass_wall_time(NOW + 500, NOW)
    assert offsets(made.acquire("ann", 10, NOW)) == [2]
    change = made.take_change()
    assert change is not None
    assert [(letter.offset, letter.reason) for letter in made.committed(change)] == [(0, EXPIRED), (1, EXPIRED)]


def test_a_message_that_expires_in_a_workers_hands_may_be_acknowledged_but_never_comes_again() -> None:
    made = queue(Features(), [Seen(0, expires_ms=NOW + 10), Seen(1, expires_ms=NOW + 10)])
    made.acquire("ann", 10, NOW)
    made.pass_wall_time(NOW + 11, NOW + 11)
    made.settle("ann", [Settlement(0, 0, Verdict.ACCEPT), Settlement(1, 1, Verdict.RELEASE)], NOW + 11)
    made.pass_wall_time(NOW + 12, NOW + 12)
    assert made.acquire("bob", 10, NOW + 12) == []
    assert made.ledger.window.cell(0) == CLOSING + ACKNOWLEDGED
    assert made.ledger.window.cell(1) == CLOSING + EXPIRED


def test_a_delayed_message_holds_up_nothing_and_comes_when_it_is_due() -> None:
    made = queue(Features(schedule=schedule()), [Seen(0, due_ms=NOW + 86_400_000), Seen(1, due_ms=NOW + 50), Seen(2)])
    assert made.ledger.window.start == 2
    assert offsets(made.acquire("ann", 10, NOW)) == [2]
    assert made.next_wall_ms() == NOW + 50
    assert made.low_mark == 0, "the log is kept for what is scheduled"
    assert depth(made).scheduled == 2
    assert why_nothing_is_delivered(made, NOW) is None
    made.pass_wall_time(NOW + 50, NOW)
    look(made, {1: Seen(1, due_ms=NOW + 50)}, NOW + 50)
    assert offsets(made.acquire("ann", 10, NOW)) == [1]
    assert made.next_wall_ms() == NOW + 86_400_000


def test_a_clock_that_was_ahead_makes_nothing_published_later_early() -> None:
    made = queue(Features(schedule=schedule()), [Seen(0)])
    made.pass_wall_time(NOW + 3_600_000, NOW)
    meets(made, [Seen(1, due_ms=NOW + 60_000)], NOW)
    assert offsets(made.acquire("ann", 10, NOW)) == [0]
    assert made.next_due_ms() is not None
    made.pass_time(NOW + 60_000)
    look(made, {1: Seen(1, due_ms=NOW + 60_000)}, NOW + 60_000)
    assert 1 in offsets(made.acquire("bob", 10, NOW + 60_000))


def test_a_cancelled_message_never_comes_and_one_that_is_out_cannot_be_cancelled() -> None:
    seen = [Seen(0, due_ms=NOW + 50), Seen(1), Seen(2)]
    made = queue(Features(schedule=schedule()), seen)
    assert offsets(made.acquire("ann", 1, NOW)) == [1]
    made.cancel(0, NOW + 50)
    assert status(made, 0).state == "cancelled"
    made.cancel(2)
    with pytest.raises(ApiError, match="cannot be cancelled: leased"):
        made.cancel(1)
    with pytest.raises(ApiError, match="no message at offset 3"):
        made.cancel(3)
    loaded = QueueEngine(0, made.options, SimRandomness(1), made.frontier.features)  # type: ignore[union-attr]
    loaded.replay(decode_state(commit(made)))
    loaded.loaded()
    for one in (made, loaded):
        one.pass_wall_time(NOW + 60, NOW)
        look(one, {message.offset: message for message in seen})
    assert made.acquire("bob", 10, NOW) == []
    assert offsets(loaded.acquire("bob", 10, NOW)) == [1]


def test_what_was_cancelled_before_it_was_met_is_finished_when_it_is() -> None:
    made = QueueEngine(0, QueueOptions(), SimRandomness(1), Features())
    made.end = 2
    made.cancel(1)
    look(made, {0: Seen(0), 1: Seen(1)})
    assert offsets(made.acquire("ann", 10, NOW)) == [0]


def test_the_most_urgent_goes_first_and_what_comes_back_keeps_its_place() -> None:
    made = queue(Features(has_priority=True), [Seen(0, priority=1), Seen(1, priority=9), Seen(2, priority=9)])
    assert offsets(made.acquire("ann", 1, NOW)) == [1]
    made.settle("ann", [Settlement(1, 1, Verdict.RELEASE)], NOW)
    assert [offsets(made.acquire("ann", 1, NOW)) for _ in range(3)] == [[1], [2], [0]]


def test_a_message_that_backs_off_keeps_its_level_outside_of_the_window() -> None:
    retry = RetryPolicy(backoff=Backoff.FIXED, delay_ms=100, jitter=0)
    made = queue(Features(has_priority=True), [Seen(0, priority=9), Seen(1, priority=0)], retry=retry)
    made.acquire("ann", 1, NOW)
    made.settle("ann", [Settlement(0, 0, Verdict.RELEASE)], NOW)
    assert made.ledger.window.start == 1
    assert made.has_deliverable
    made.pass_time(NOW + 100)
    assert offsets(made.acquire("ann", 1, NOW + 100)) == [0]


def test_one_of_a_key_is_out_and_the_next_follows_when_its_end_is_committed() -> None:
    made = queue(Features(has_key_order=True), [Seen(0, key=A), Seen(1, key=A), Seen(2, key=B), Seen(3)])
    assert offsets(made.acquire("ann", 10, NOW)) == [0, 2, 3]
    made.settle("ann", [Settlement(0, 0, Verdict.ACCEPT)], NOW)
    assert made.acquire("bob", 10, NOW) == [], "its end could still be lost"
    commit(made)
    assert offsets(made.acquire("bob", 10, NOW)) == [1]


def test_a_full_parking_says_behind_which_key_and_goes_on_when_it_moves() -> None:
    features = Features(has_key_order=True, parked_max=2)
    seen = [*(Seen(offset, key=A) for offset in range(5)), Seen(5, key=B)]
    made = queue(features, seen)
    assert offsets(made.acquire("ann", 10, NOW)) == [0]
    assert made.ledger.window.frontier == 3
    assert made.look_wanted(10) is None
    assert depth(made).parked == 2
    reason = why_nothing_is_delivered(made, NOW)
    assert reason is not None
    assert "2 behind key 'a', whose offset 0 is leased by ann, which is the limit" in reason
    made.settle("ann", [Settlement(0, 0, Verdict.ACCEPT)], NOW)
    commit(made)
    assert made.look_wanted(10) == (3, 6)


def test_a_suspect_is_leased_alone_at_its_last_attempt_and_the_policy_does_not_notice() -> None:
    made = queue(Features(has_priority=True), [Seen(offset) for offset in range(9)], retry=RetryPolicy(2))
    assert offsets(made.acquire("ann", 2, NOW)) == [0, 1]
    made.settle("ann", [Settlement(0, 1, Verdict.RELEASE)], NOW)
    assert made.acquire("ann", 5, NOW) == [Delivery(0, 0, 2)]
    assert made.acquire("ann", 5, NOW) == [Delivery(1, 1, 2)]
    assert offsets(made.acquire("ann", 5, NOW)) == [2, 3, 4, 5, 6]


def test_after_a_load_nothing_is_handed_out_before_the_messages_were_looked_at_again() -> None:
    seen = {offset: Seen(offset, priority=offset, key=A if offset < 3 else None) for offset in range(6)}
    features = Features(has_priority=True, has_key_order=True)
    made = queue(features, list(seen.values()))
    assert offsets(made.acquire("ann", 1, NOW)) == [5]
    made.settle("ann", [Settlement(5, 5, Verdict.ACCEPT)], NOW)
    loaded = QueueEngine(0, made.options, SimRandomness(1), features)
    loaded.replay(decode_state(commit(made)))
    loaded.loaded()
    loaded.end = 6
    assert not loaded.has_deliverable
    assert loaded.acquire("ann", 10, NOW) == []
    assert loaded.look_wanted(4) == (0, 4)
    look(loaded, seen)
    assert offsets(loaded.acquire("ann", 10, NOW)) == [0, 3, 4]


def test_a_message_that_compaction_took_while_it_waited_is_a_gap() -> None:
    made = queue(Features(), [Seen(0), Seen(1)])
    made.acquire("ann", 1, NOW)
    loaded = QueueEngine(0, made.options, SimRandomness(1), Features())
    loaded.replay(decode_state(commit(made)))
    loaded.loaded()
    look(loaded, {1: Seen(1)})
    assert offsets(loaded.acquire("ann", 10, NOW)) == [1]
    assert loaded.ledger.window.start == 1


def test_while_part_of_the_schedule_is_missing_nothing_is_skipped() -> None:
    index = schedule()
    made = queue(Features(schedule=index), [Seen(0, due_ms=NOW + 10)])
    index.flush()
    (run,) = index._runs
    index._lose(run)
    assert not made.pass_wall_time(NOW + 100, NOW)
    assert made.next_wall_ms() is None
    index.restore(index.missing[0], [(NOW + 10, 0)])
    made.pass_wall_time(NOW + 100, NOW)
    assert made.look_wanted(1) == (0, 1)


def test_a_seek_begins_with_new_eyes() -> None:
    made = queue(Features(schedule=schedule()), [Seen(0, due_ms=NOW + 50), Seen(1, key=A)])
    made.acquire("ann", 5, NOW)
    made.reset(1)
    look(made, {1: Seen(1)})
    made.pass_wall_time(NOW + 100, NOW)
    assert offsets(made.acquire("ann", 5, NOW)) == [1], "what lies before the new start is not its message"
    assert made.look_wanted(5) is None


def test_the_log_begins_later_and_what_was_scheduled_there_is_gone() -> None:
    made = queue(Features(schedule=schedule()), [Seen(0, due_ms=NOW + 50), Seen(1), Seen(2)])
    made.log_begins_at(2)
    made.pass_wall_time(NOW + 100, NOW)
    assert made.look_wanted(5) is None
    assert offsets(made.acquire("ann", 5, NOW)) == [2]
    assert made.ledger.window.cell(2) != STRAY


def test_features_may_change_while_messages_are_out() -> None:
    seen = {offset: Seen(offset, key=A) for offset in range(3)}
    made = queue(Features(), list(seen.values()))
    assert offsets(made.acquire("ann", 2, NOW)) == [0, 1]
    made.use(Features(has_key_order=True))
    look(made, seen)
    assert made.acquire("bob", 5, NOW) == []
    made.settle("ann", [Settlement(1, 1, Verdict.RELEASE)], NOW)
    assert made.acquire("bob", 5, NOW) == [], "its turn comes after that of the first"
    made.settle("ann", [Settlement(0, 0, Verdict.ACCEPT)], NOW)
    commit(made)
    assert offsets(made.acquire("bob", 5, NOW)) == [1]
    made.use(None)
    assert offsets(made.acquire("cid", 5, NOW)) == [2]
