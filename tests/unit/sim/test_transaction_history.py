"""The judge over transactions finds each anomaly: a judge that cannot find anything would prove nothing."""

from sim.transaction_history import Place, Transaction, TransactionAnomaly, TransactionHistory

A, B = "target-0", "target-1"
SOURCE = "source-0"

Written = list[tuple[str, bytes]]


def kinds(history: TransactionHistory, **asked: object) -> set[TransactionAnomaly]:
    return {violation.anomaly for violation in history.judge(**asked)}  # type: ignore[arg-type]


def carried(history: TransactionHistory, *offsets: int, producer: str = "p") -> tuple[Transaction, Written]:
    """A transaction that makes two values of each input; how it ends is for the caller."""
    transaction = history.begin(producer)
    written = [
        (target, history.writing(transaction, target, Place(SOURCE, offset))) for offset in offsets for target in (A, B)
    ]
    history.leaving(transaction, SOURCE, offsets[-1] + 1)
    return transaction, written


def done(history: TransactionHistory, *offsets: int, producer: str = "p") -> Written:
    transaction, written = carried(history, *offsets, producer=producer)
    history.committing(transaction)
    history.committed(transaction)
    return written


def read_back(history: TransactionHistory, written: Written) -> None:
    """Everything stands in the order given."""
    for partition in (A, B):
        values = [value for where, value in written if where == partition]
        history.final(partition, list(enumerate(values)))


def test_a_history_without_fault_has_no_violation() -> None:
    history = TransactionHistory()
    written = done(history, 0, 1)
    carried(history, 2)
    written += done(history, 2, 3)
    read_back(history, written)
    inputs = [Place(SOURCE, offset) for offset in range(4)]
    assert history.judge({SOURCE: 4}, inputs) == []
    assert history.counts() == {"given up": 1, "unknown": 0, "done": 2, "values": 8}


def test_a_value_of_a_transaction_that_was_never_committed_is_an_aborted_read() -> None:
    history = TransactionHistory()
    _, written = carried(history, 0)
    history.saw("r", A, 0, written[0][1])
    read_back(history, [])
    assert kinds(history) == {TransactionAnomaly.ABORTED_READ}


def test_a_part_of_a_transaction_is_torn_whether_its_end_is_known_or_not() -> None:
    for is_known in (True, False):
        history = TransactionHistory()
        transaction, written = carried(history, 0)
        history.committing(transaction)
        if is_known:
            history.committed(transaction)
        read_back(history, written[:1])
        assert kinds(history) == {TransactionAnomaly.TORN}


def test_what_was_committed_and_is_not_there_is_lost_and_what_is_unknown_may_be_missing() -> None:
    history = TransactionHistory()
    done(history, 0)
    unknown, _ = carried(history, 1)
    history.committing(unknown)
    read_back(history, [])
    (violation,) = history.judge()
    assert violation.anomaly is TransactionAnomaly.LOST
    assert "p/0" in violation.text


def test_an_input_that_was_passed_without_an_output_is_lost() -> None:
    history = TransactionHistory()
    read_back(history, done(history, 0, 2))
    assert kinds(history, inputs=[Place(SOURCE, offset) for offset in range(3)]) == {TransactionAnomaly.LOST}


def test_a_value_at_two_offsets_and_an_input_in_two_transactions_are_duplicates() -> None:
    twice = TransactionHistory()
    written = done(twice, 0)
    read_back(twice, [*written, *written])
    assert kinds(twice) == {TransactionAnomaly.DUPLICATE}
    again = TransactionHistory()
    read_back(again, [*done(again, 0), *done(again, 0, producer="q")])
    assert kinds(again) == {TransactionAnomaly.DUPLICATE}


def test_transactions_of_one_producer_in_another_order_are_noticed() -> None:
    history = TransactionHistory()
    first, second = done(history, 0), done(history, 1)
    read_back(history, [*second, *first])
    assert kinds(history) == {TransactionAnomaly.ORDER}


def test_two_values_at_one_offset_and_a_reader_that_goes_back_are_noticed() -> None:
    history = TransactionHistory()
    first, second = done(history, 0), done(history, 1)
    history.saw("r", A, 0, second[0][1])
    read_back(history, [*first, *second])
    assert TransactionAnomaly.MOVED in kinds(history)
    back = TransactionHistory()
    written = done(back, 0, 1)
    for offset in (1, 0):
        back.saw("r", A, offset, written[2 * offset][1])
    read_back(back, written)
    assert kinds(back) == {TransactionAnomaly.MOVED}


def test_a_reader_that_was_not_given_a_committed_value_has_skipped_it() -> None:
    history = TransactionHistory()
    written = done(history, 0, 1, 2)
    for offset in (0, 2):
        history.saw("r", A, offset, written[2 * offset][1])
    read_back(history, written)
    assert kinds(history) == {TransactionAnomaly.SKIPPED}


def test_a_position_that_no_committed_transaction_left_or_that_lies_behind_an_output_is_noticed() -> None:
    history = TransactionHistory()
    transaction, _ = carried(history, 0, 1)
    read_back(history, done(history, 0))
    assert transaction.positions == {SOURCE: 2}
    assert kinds(history, positions={SOURCE: 1}) == set()
    assert kinds(history, positions={SOURCE: 2}) == {TransactionAnomaly.OFFSETS}
    assert kinds(history, positions={SOURCE: 0}) == {TransactionAnomaly.OFFSETS}


def test_a_value_that_was_never_written_and_a_partition_that_was_not_read_are_strange() -> None:
    history = TransactionHistory()
    history.saw("r", A, 0, b"what?")
    assert kinds(history) == {TransactionAnomaly.STRANGE}
