"""What the transactions machine answers in every state, in both generations of the protocol."""

from dataclasses import replace

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.transactions.records import NO_PAIR, ProducerPair, TransactionStored
from martlet.transactions.requests import TIMEOUT_NEVER, TransactionFilter, TransactionsOptions, WriteMarkers
from martlet.transactions.states import TransactionState, check_transition, state_of_label
from tests.unit.transactions.transaction_bench import (
    FIRST,
    FIRST_ID,
    ORDERS,
    SECOND,
    TIMEOUT_MS,
    TransactionBench,
    code_of,
    partitions,
)

PAIR = ProducerPair(7, 5)
PREVIOUS = ProducerPair(7, 4)
LAST = ProducerPair(7, 32_766)


def in_state(state: TransactionState, pair: ProducerPair = PAIR, *, client_version: int = 2) -> TransactionBench:
    """An id "app" in this state, of the second generation."""
    bench = TransactionBench()
    has_partitions = state is TransactionState.ONGOING or state.is_prepared
    names = ORDERS if has_partitions else frozenset()
    stored = TransactionStored("app", *pair, TIMEOUT_MS, state, names, bench.now_ms, bench.now_ms)
    bench.put(replace(stored, client_version=client_version))
    return bench


# --- whole conversations


def test_a_transaction_of_the_second_generation_raises_the_epoch_at_its_end() -> None:
    bench = TransactionBench()
    pair = bench.init()
    assert pair == (FIRST_ID, 0)
    bench.add(pair)
    assert bench.state() is TransactionState.ONGOING

    following = bench.end(pair)

    assert following == (FIRST_ID, 1)
    assert bench.state() is TransactionState.PREPARE_COMMIT
    assert bench.write_markers() == [WriteMarkers("app", ProducerPair(FIRST_ID, 1), True, ORDERS, 2)]
    assert bench.state() is TransactionState.COMPLETE_COMMIT
    bench.add(following)
    assert bench.stored().partitions == ORDERS


def test_a_transaction_of_the_first_generation_keeps_the_epoch() -> None:
    bench = TransactionBench()
    pair = bench.init()
    for is_commit in (True, False):
        bench.add(pair, generation=FIRST)
        assert bench.end(pair, commit=is_commit, generation=FIRST) == NO_PAIR
        assert bench.write_markers() == [WriteMarkers("app", pair, is_commit, ORDERS, 0)]
    assert bench.stored().producer_epoch == 0


def test_nothing_is_written_for_partitions_that_are_in_the_transaction() -> None:
    bench = TransactionBench()
    pair = bench.init()
    bench.add(pair)
    count = len(bench.log)
    bench.add(pair, partitions("orders-0"))
    assert len(bench.log) == count
    bench.add(pair, partitions("audit-0"))
    assert bench.stored().partitions == ORDERS | partitions("audit-0")


def test_a_new_producer_aborts_what_the_last_one_left_open() -> None:
    bench = TransactionBench()
    old = bench.init()
    bench.add(old)

    assert code_of(bench.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(bench.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert bench.write_markers() == [WriteMarkers("app", ProducerPair(FIRST_ID, 1), False, ORDERS, 2)]

    assert bench.init() == (FIRST_ID, 2)
    assert code_of(bench.add, old) is ErrorCode.PRODUCER_FENCED
    assert code_of(bench.end, old) is ErrorCode.PRODUCER_FENCED
    assert code_of(bench.end, old, generation=FIRST) is ErrorCode.PRODUCER_FENCED


def test_an_empty_transaction_is_aborted_in_one_append_without_markers() -> None:
    bench = TransactionBench()
    pair = bench.init()
    assert bench.end(pair, commit=False) == (FIRST_ID, 1)
    assert bench.appends[-1] == 2
    assert bench.markers == []
    assert bench.state() is TransactionState.COMPLETE_ABORT


def test_an_open_transaction_without_partitions_is_committed_without_markers() -> None:
    bench = TransactionBench()
    pair = bench.init()
    bench.add(pair, frozenset())
    assert bench.end(pair) == (FIRST_ID, 1)
    assert bench.state() is TransactionState.COMPLETE_COMMIT


# --- EndTxn, state by state


@pytest.mark.parametrize(
    ("state", "commit", "pair", "outcome"),
    [
        (TransactionState.EMPTY, True, PAIR, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.EMPTY, True, PREVIOUS, ErrorCode.PRODUCER_FENCED),
        (TransactionState.EMPTY, False, PAIR, ErrorCode.NONE),
        (TransactionState.EMPTY, False, PREVIOUS, ErrorCode.PRODUCER_FENCED),
        (TransactionState.ONGOING, True, PAIR, ErrorCode.NONE),
        (TransactionState.ONGOING, True, PREVIOUS, ErrorCode.PRODUCER_FENCED),
        (TransactionState.ONGOING, False, PREVIOUS, ErrorCode.PRODUCER_FENCED),
        (TransactionState.PREPARE_COMMIT, True, PAIR, ErrorCode.CONCURRENT_TRANSACTIONS),
        (TransactionState.PREPARE_COMMIT, False, PREVIOUS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (TransactionState.PREPARE_ABORT, True, ProducerPair(99, 9), ErrorCode.CONCURRENT_TRANSACTIONS),
        (TransactionState.COMPLETE_COMMIT, True, PAIR, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_COMMIT, True, PREVIOUS, PAIR),
        (TransactionState.COMPLETE_COMMIT, False, PAIR, ErrorCode.NONE),
        (TransactionState.COMPLETE_COMMIT, False, PREVIOUS, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_ABORT, True, PAIR, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_ABORT, True, PREVIOUS, ErrorCode.PRODUCER_FENCED),
        (TransactionState.COMPLETE_ABORT, False, PAIR, ErrorCode.NONE),
        (TransactionState.COMPLETE_ABORT, False, PREVIOUS, PAIR),
        (TransactionState.COMPLETE_ABORT, False, ProducerPair(7, 3), ErrorCode.PRODUCER_FENCED),
        (TransactionState.COMPLETE_ABORT, False, ProducerPair(8, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_an_end_of_the_second_generation_in_each_state(
    state: TransactionState, commit: bool, pair: ProducerPair, outcome: ErrorCode | ProducerPair
) -> None:
    bench = in_state(state)
    before = len(bench.log)
    if isinstance(outcome, ProducerPair):
        assert bench.end(pair, commit=commit) == outcome
        assert len(bench.log) == before
    else:
        assert code_of(bench.end, pair, commit=commit) is outcome
    if outcome is ErrorCode.NONE:
        assert bench.stored().producer_epoch == PAIR.epoch + 1


@pytest.mark.parametrize(
    ("state", "commit", "pair", "code"),
    [
        (TransactionState.EMPTY, True, PAIR, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.EMPTY, False, PAIR, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.ONGOING, True, PAIR, ErrorCode.NONE),
        (TransactionState.ONGOING, True, PREVIOUS, ErrorCode.PRODUCER_FENCED),
        (TransactionState.ONGOING, True, ProducerPair(8, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (TransactionState.PREPARE_COMMIT, True, PAIR, ErrorCode.CONCURRENT_TRANSACTIONS),
        (TransactionState.PREPARE_COMMIT, True, PREVIOUS, ErrorCode.PRODUCER_FENCED),
        (TransactionState.PREPARE_ABORT, True, ProducerPair(8, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (TransactionState.COMPLETE_COMMIT, True, PAIR, ErrorCode.NONE),
        (TransactionState.COMPLETE_COMMIT, False, PAIR, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_ABORT, False, PAIR, ErrorCode.NONE),
        (TransactionState.COMPLETE_ABORT, True, PAIR, ErrorCode.INVALID_TXN_STATE),
        (TransactionState.COMPLETE_ABORT, True, PREVIOUS, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_an_end_of_the_first_generation_in_each_state(
    state: TransactionState, commit: bool, pair: ProducerPair, code: ErrorCode
) -> None:
    bench = in_state(state, client_version=0)
    assert code_of(bench.end, pair, commit=commit, generation=FIRST) is code
    assert bench.stored().producer_epoch == PAIR.epoch


def test_an_unknown_id_and_an_empty_one_are_told_apart() -> None:
    bench = TransactionBench()
    assert code_of(bench.end, PAIR) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code_of(bench.add, PAIR) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code_of(bench.verify, PAIR) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for call in (bench.add, bench.verify, bench.end):
        assert code_of(call, PAIR, name="") is ErrorCode.INVALID_REQUEST
    assert code_of(bench.init, "") is ErrorCode.INVALID_REQUEST


# --- adding and verifying


@pytest.mark.parametrize("state", [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT])
def test_nothing_is_added_while_a_decision_is_carried_out(state: TransactionState) -> None:
    bench = in_state(state)
    for pair in (PAIR, PREVIOUS, ProducerPair(8, 0)):
        assert code_of(bench.add, pair) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(bench.verify, PAIR) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(bench.verify, PREVIOUS) is ErrorCode.PRODUCER_FENCED


def test_verifying_names_what_is_not_in_the_open_transaction() -> None:
    bench = in_state(TransactionState.ONGOING)
    assert bench.verify(PAIR) == frozenset()
    assert bench.verify(PAIR, ORDERS | partitions("x-1")) == partitions("x-1")
    assert in_state(TransactionState.COMPLETE_COMMIT).verify(PAIR) == ORDERS
    assert code_of(bench.verify, ProducerPair(8, 5)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_has_a_bounded_number_of_partitions() -> None:
    bench = TransactionBench(TransactionsOptions(partitions_max=2))
    pair = bench.init()
    bench.add(pair)
    assert code_of(bench.add, pair, partitions("x-0")) is ErrorCode.TRANSACTION_ABORTABLE
    assert bench.stored().partitions == ORDERS


# --- InitProducerId


def test_the_timeout_has_bounds() -> None:
    bench = TransactionBench()
    for timeout_ms in (0, -1, 900_001):
        assert code_of(bench.init, timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    bench.init(timeout_ms=900_000)


def test_a_producer_that_names_its_pair_gets_the_next_one_and_again_the_same() -> None:
    bench = TransactionBench()
    pair = bench.init()
    raised = bench.init(expected=pair)
    assert raised == (FIRST_ID, 1)
    assert bench.init(expected=pair) == raised
    bench.start()
    assert bench.init(expected=pair) == raised
    assert code_of(bench.init, expected=ProducerPair(FIRST_ID, 5)) is ErrorCode.PRODUCER_FENCED
    assert code_of(bench.init, expected=ProducerPair(3, 0)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_without_a_pair_fences_one_that_asks_again() -> None:
    bench = TransactionBench()
    pair = bench.init()
    bench.init(expected=pair)
    assert bench.init() == (FIRST_ID, 2)
    assert code_of(bench.init, expected=pair) is ErrorCode.PRODUCER_FENCED
    assert code_of(bench.init, expected=ProducerPair(FIRST_ID, 1)) is ErrorCode.PRODUCER_FENCED


def test_an_unknown_id_takes_any_pair() -> None:
    assert TransactionBench().init(expected=ProducerPair(5, 3)) == (FIRST_ID, 0)


def test_an_id_whose_epochs_are_used_up_goes_on_with_another_producer_id() -> None:
    bench = in_state(TransactionState.EMPTY, LAST)
    rotated = bench.init(expected=LAST)
    assert rotated == (FIRST_ID, 0)
    assert bench.init(expected=LAST) == rotated
    bench = in_state(TransactionState.EMPTY, LAST)
    assert bench.init() == (FIRST_ID, 0)
    assert code_of(bench.init, expected=LAST) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_at_the_last_epoch_answers_with_the_next_producer_id(commit: bool) -> None:
    bench = in_state(TransactionState.ONGOING, LAST)

    following = bench.end(LAST, commit=commit)

    assert following == (FIRST_ID, 0)
    assert bench.stored().producer_epoch == 32_767
    bench.start()
    assert bench.write_markers() == [WriteMarkers("app", ProducerPair(7, 32_767), commit, ORDERS, 2)]
    assert bench.end(LAST, commit=commit) == following, "a repeat gets the same answer"
    bench.start()
    assert bench.end(LAST, commit=commit) == following
    bench.add(following)
    assert code_of(bench.end, LAST, commit=commit) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_time_out_and_a_fence_at_the_last_epoch_change_the_producer_id_too() -> None:
    bench = in_state(TransactionState.ONGOING, LAST)
    assert code_of(bench.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.write_markers()
    assert bench.init() == (FIRST_ID, 1)
    bench = in_state(TransactionState.ONGOING, LAST)
    bench.start()
    bench.wait(TIMEOUT_MS)
    bench.write_markers()
    assert (bench.stored().producer_id, bench.stored().producer_epoch) == (FIRST_ID, 0)


# --- time


def test_a_transaction_that_is_open_too_long_is_aborted_with_a_raised_epoch() -> None:
    bench = TransactionBench()
    pair = bench.init()
    bench.add(pair, generation=FIRST)
    bench.wait(TIMEOUT_MS - 1)
    bench.add(pair, partitions("x-0"), generation=FIRST)
    assert bench.state() is TransactionState.ONGOING
    bench.wait(1)
    assert bench.state() is TransactionState.PREPARE_ABORT
    bench.write_markers()
    assert code_of(bench.end, pair, generation=FIRST) is ErrorCode.PRODUCER_FENCED
    assert code_of(bench.end, pair) is ErrorCode.PRODUCER_FENCED, "its commit is not taken for done"
    assert bench.end(pair, commit=False) == (FIRST_ID, 1)


def test_the_time_out_counts_on_under_a_new_leader() -> None:
    bench = TransactionBench()
    bench.add(bench.init())
    bench.wait(TIMEOUT_MS - 1)
    bench.start()
    bench.wait(1)
    assert bench.state() is TransactionState.PREPARE_ABORT


def test_the_time_out_of_one_transaction_does_not_end_the_next() -> None:
    bench = TransactionBench()
    pair = bench.init()
    bench.add(pair)
    bench.wait(TIMEOUT_MS - 1)
    pair = bench.end(pair)
    bench.write_markers()
    bench.add(pair)
    bench.wait(TIMEOUT_MS - 1)
    assert bench.state() is TransactionState.ONGOING


def test_an_unused_id_is_forgotten_after_a_week_and_one_in_use_never() -> None:
    bench = TransactionBench()
    bench.init("idle")
    bench.add(bench.init("never", two_phase=False), name="never")
    week_ms = bench.options.id_expiration_ms
    bench.put(TransactionStored("open", 5, 0, TIMEOUT_NEVER, TransactionState.ONGOING, ORDERS, 0, 0))
    bench.wait(week_ms - 1)
    assert bench.machine.table.get("idle") is not None
    bench.wait(3_600_001)
    assert bench.machine.table.get("idle") is None
    assert bench.machine.table.get("open") is not None
    assert code_of(bench.end, ProducerPair(FIRST_ID, 0), name="idle") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_many_idle_ids_are_forgotten_piece_by_piece() -> None:
    bench = TransactionBench()
    for number in range(2_500):
        bench.init(f"id-{number}")
    bench.appends.clear()
    bench.wait(bench.options.id_expiration_ms + 3_600_000)
    assert len(bench.machine.table) == 0
    assert bench.appends == [1_000, 1_000, 500]


# --- markers and new leaders


def test_a_new_leader_writes_the_markers_of_what_is_decided() -> None:
    bench = TransactionBench()
    pair = bench.init()
    bench.add(pair)
    bench.end(pair)
    bench.start()
    (effect,) = bench.write_markers()
    assert effect == WriteMarkers("app", ProducerPair(FIRST_ID, 1), True, ORDERS, 2)
    assert bench.state() is TransactionState.COMPLETE_COMMIT


def test_markers_that_could_not_be_written_are_tried_again() -> None:
    bench = TransactionBench()
    pair = bench.init()
    bench.add(pair)
    bench.end(pair)
    bench.write_markers(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "no way out"))
    assert bench.state() is TransactionState.PREPARE_COMMIT
    bench.wait(1_000)
    bench.write_markers()
    assert bench.state() is TransactionState.COMPLETE_COMMIT


def test_a_late_outcome_does_not_complete_the_next_transaction() -> None:
    bench = TransactionBench()
    pair = bench.init()
    bench.add(pair)
    pair = bench.end(pair)
    (late,) = bench.write_markers()
    bench.add(pair)
    bench.end(pair)
    bench.apply(bench.machine.on_effect_done(late, None, bench.now_ms))
    assert bench.state() is TransactionState.PREPARE_COMMIT


# --- the two-phase form


def prepared_bench() -> tuple[TransactionBench, ProducerPair]:
    bench = TransactionBench(TransactionsOptions(two_phase=True))
    pair = bench.init(two_phase=True)
    bench.add(pair)
    return bench, pair


def test_the_two_phase_form_is_refused_where_it_is_not_enabled() -> None:
    bench = TransactionBench()
    assert code_of(bench.init, two_phase=True) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert code_of(bench.init, keep=True) is ErrorCode.UNSUPPORTED_VERSION


def test_a_prepared_transaction_has_no_time_out_and_survives_its_client() -> None:
    bench, _ = prepared_bench()
    bench.wait(30 * 86_400_000)
    bench.start()
    assert bench.state() is TransactionState.ONGOING


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_ended_by_who_took_it_over_last(commit: bool) -> None:
    bench, data = prepared_bench()
    first = bench.initialised("app", two_phase=True, keep=True)
    assert first == ((FIRST_ID, 1), data)
    second = bench.initialised("app", two_phase=True, keep=True)
    assert second == ((FIRST_ID, 2), data)
    bench.start()
    for old in (data, first.pair):
        assert code_of(bench.end, old, commit=commit) is ErrorCode.PRODUCER_FENCED
        assert code_of(bench.add, old) is ErrorCode.PRODUCER_FENCED
    assert code_of(bench.add, second.pair, partitions("x-0")) is ErrorCode.INVALID_TXN_STATE

    following = bench.end(second.pair, commit=commit)

    assert following == (FIRST_ID, 3)
    assert bench.write_markers() == [WriteMarkers("app", ProducerPair(FIRST_ID, 1), commit, ORDERS, 2)]
    assert bench.end(second.pair, commit=commit) == following
    bench.add(following)


def test_a_prepared_transaction_is_aborted_by_a_producer_that_does_not_keep_it() -> None:
    bench, _ = prepared_bench()
    taken = bench.init(two_phase=True, keep=True)
    assert code_of(bench.init) is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.write_markers()
    pair = bench.init()
    assert pair == (FIRST_ID, taken.epoch + 2)
    assert code_of(bench.end, taken) is ErrorCode.PRODUCER_FENCED


def test_keeping_where_nothing_is_prepared_gives_an_ordinary_answer() -> None:
    bench = TransactionBench(TransactionsOptions(two_phase=True))
    assert bench.initialised("app", two_phase=True, keep=True) == ((FIRST_ID, 0), NO_PAIR)


def test_a_kept_transaction_whose_epochs_are_used_up_is_ended_under_another_id() -> None:
    bench = TransactionBench(TransactionsOptions(two_phase=True))
    bench.put(TransactionStored("app", *LAST, TIMEOUT_NEVER, TransactionState.ONGOING, ORDERS, 0, 0, client_version=2))
    taken = bench.initialised("app", two_phase=True, keep=True)
    assert taken == ((FIRST_ID, 0), LAST)
    assert bench.end(taken.pair) == (FIRST_ID, 1)
    assert bench.write_markers() == [WriteMarkers("app", ProducerPair(7, 32_767), True, ORDERS, 2)]
    assert bench.stored().previous_producer_id == 7


# --- tools


def test_an_id_is_described_as_its_record_stands() -> None:
    bench = in_state(TransactionState.ONGOING)
    assert bench.apply(bench.machine.describe("app", bench.now_ms)) == bench.stored()
    assert code_of(bench.machine.describe, "no", 0) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_list_shows_what_passes_its_filters() -> None:
    bench = TransactionBench()
    bench.init("idle")
    bench.add(bench.init("open"), name="open")
    bench.wait(10)

    def listed(wanted: TransactionFilter) -> list[str]:
        found = bench.apply(bench.machine.list_transactions(wanted, bench.now_ms))
        return [stored.transactional_id for stored in found]

    assert listed(TransactionFilter()) == ["idle", "open"]
    assert listed(TransactionFilter(frozenset((TransactionState.ONGOING,)))) == ["open"]
    assert listed(TransactionFilter(producer_ids=frozenset((FIRST_ID,)))) == ["idle"]
    assert listed(TransactionFilter(older_than_ms=9)) == ["open"]
    assert listed(TransactionFilter(older_than_ms=10)) == []
    assert bench.machine.statistics()[TransactionState.ONGOING] == 1
    assert bench.machine.oldest_age_ms(bench.now_ms) == 10
    assert TransactionBench().machine.oldest_age_ms(bench.now_ms) == 0


def test_states_have_the_names_that_tools_print() -> None:
    assert [state.label for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
    assert state_of_label("CompleteAbort") is TransactionState.COMPLETE_ABORT
    assert state_of_label("completeabort") is None


def test_no_decision_is_taken_back() -> None:
    with pytest.raises(Exception, match="from PrepareCommit to PrepareAbort"):
        check_transition(TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def test_generations_mix_on_one_id() -> None:
    bench = TransactionBench()
    pair = bench.init()
    bench.add(pair, generation=FIRST)
    bench.end(pair, generation=FIRST)
    bench.write_markers()
    assert code_of(bench.end, ProducerPair(pair.id, pair.epoch - 1)) is ErrorCode.PRODUCER_FENCED
    bench.add(pair, generation=SECOND)
    assert bench.end(pair) == (pair.id, pair.epoch + 1)


def test_a_snapshot_holds_every_id_as_it_stands() -> None:
    bench = TransactionBench()
    for number in range(450):
        bench.init(f"id-{number}")
    bench.add(bench.init("open"), name="open")
    steps = list(bench.machine.live_records())
    assert [len(step) for step in steps] == [200, 200, 51]
    other = TransactionBench()
    for step in steps:
        for record in step:
            other.machine.replay(record)
    assert list(other.machine.table.all()) == list(bench.machine.table.all())
