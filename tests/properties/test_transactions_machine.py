"""Random histories of one transactional id, against a plain book of what was decided.

Requests of any age arrive at any time, once or more often; clients, leaders and answers are lost; markers are late and
come twice. The partitions are the plainest possible: the epoch of the last marker, and whose rows are open.
"""

import contextlib

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.transactions.records import ProducerPair
from martlet.transactions.requests import OfTransaction, TransactionsOptions, WriteMarkers
from tests.unit.transactions.transaction_bench import SECOND, TransactionBench, code_of

PARTITIONS = [TopicPartition("orders", index) for index in range(2)]
WAYS_TO_END = st.booleans()


class TransactionHistory(RuleBasedStateMachine):
    """TXN-3 to TXN-5 of the machine, for the second generation, which keeps them against requests of any age."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = TransactionBench(TransactionsOptions(two_phase=True))
        self.pairs: list[ProducerPair] = []
        """Every pair that was ever given, in order."""
        self.epochs: dict[TopicPartition, ProducerPair] = {}
        self.open: dict[TopicPartition, ProducerPair] = {}
        self.committed: set[ProducerPair] = set()
        self.aborted: set[ProducerPair] = set()
        self.asked_to_commit: set[ProducerPair] = set()
        self.markers: list[WriteMarkers] = []

    def given(self, pair: ProducerPair) -> None:
        if pair not in self.pairs:
            self.pairs.append(pair)

    def pick(self, age: int) -> ProducerPair:
        return self.pairs[-1 - age % len(self.pairs)] if self.pairs else ProducerPair(1, 0)

    # --- clients

    @rule()
    def begin(self) -> None:
        with contextlib.suppress(ApiError):
            self.given(self.bench.init())

    @rule(age=st.integers(0, 3))
    def begin_with_pair(self, age: int) -> None:
        with contextlib.suppress(ApiError):
            self.given(self.bench.init(expected=self.pick(age)))

    @rule(age=st.integers(0, 3), index=st.integers(0, 1))
    def produce(self, age: int, index: int) -> None:
        """A broker asks for the add, then appends if the partition has seen no later epoch."""
        pair, partition = self.pick(age), PARTITIONS[index]
        if code_of(self.bench.add, pair, frozenset((partition,))) is ErrorCode.NONE:
            last = self.epochs.get(partition)
            assert last is None or last.id != pair.id or last.epoch <= pair.epoch, "the partition is ahead"
            assert self.open.get(partition, pair) == pair, "rows of two transactions"
            self.open[partition] = pair
            self.epochs[partition] = pair

    @rule(age=st.integers(0, 3), commit=WAYS_TO_END)
    def end(self, age: int, commit: bool) -> None:
        pair = self.pick(age)
        of = OfTransaction("app", pair)
        try:
            answer = self.bench.apply(self.bench.machine.end_transaction(of, commit, SECOND, self.bench.now_ms))
        except ApiError:
            return
        if commit:
            self.asked_to_commit.add(pair)
            assert pair not in self.aborted, "reported as committed what is aborted"
        assert answer not in self.pairs[:-1], "a pair that was given before"
        self.given(answer)

    @rule()
    def run_out_of_time(self) -> None:
        self.bench.wait(60_000)

    # --- the cluster

    @rule()
    def change_leader(self) -> None:
        self.markers += self.bench.markers
        self.bench.start()

    @rule()
    def write_markers(self) -> None:
        for effect in self.bench.markers:
            self.mark(effect)
        self.markers += self.bench.write_markers()

    @rule(place=st.integers(0, 20))
    def repeat_a_marker(self, place: int) -> None:
        """Of a leader that was replaced, or sent twice."""
        if self.markers:
            self.mark(self.markers[place % len(self.markers)])

    def mark(self, effect: WriteMarkers) -> None:
        for partition in effect.partitions:
            last = self.epochs.get(partition)
            is_open = partition in self.open
            if last is not None and last.id == effect.pair.id:
                if effect.pair.epoch < last.epoch or (effect.pair.epoch == last.epoch and is_open):
                    continue  # refused: it is old
            elif last is not None and last.id > effect.pair.id:
                continue
            rows_of = self.open.pop(partition, None)
            self.epochs[partition] = effect.pair
            if rows_of is not None:
                (self.committed if effect.is_commit else self.aborted).add(rows_of)

    # --- what must hold

    @invariant()
    def each_transaction_has_one_end(self) -> None:
        assert not self.committed & self.aborted

    @invariant()
    def only_what_was_asked_for_is_committed(self) -> None:
        assert self.committed <= self.asked_to_commit

    @invariant()
    def what_is_open_is_known(self) -> None:
        stored = self.bench.machine.table.get("app")
        if stored is not None and stored.state.is_idle:
            assert not self.open, "rows that will never be closed"

    @invariant()
    def a_new_leader_knows_the_same(self) -> None:
        before = self.bench.machine.table.get("app")
        other = TransactionBench(self.bench.options)
        other.log = list(self.bench.log)
        other.start()
        assert other.machine.table.get("app") == before


TestTransactionHistory = TransactionHistory.TestCase
