"""Groups of transactions: runs, children, and steps that are decided in one append."""

import pytest

from martlet.base.errors import ErrorCode
from martlet.transactions.names import ChildName, child_name, is_owner, shard_key
from martlet.transactions.records import ProducerPair, TransactionStored
from martlet.transactions.requests import OfTransaction, TransactionsOptions
from martlet.transactions.states import TransactionState
from martlet.transactions.transaction_groups import EndGroupWish, GroupEnded, GroupOpened, OpenGroupWish
from tests.unit.transactions.transaction_bench import (
    FIRST,
    TIMEOUT_MS,
    TransactionBench,
    code_of,
    partitions,
)

RUN = b"a" * 16
LATER_RUN = b"b" * 16
PLACE = "s3://checkpoints/fraud"


class GroupBench(TransactionBench):
    """The same bench with a group "fraud"."""

    def open(self, run: bytes = RUN, next_sequence: int = 0, place: str = PLACE, **flags: bool) -> GroupOpened:
        wish = OpenGroupWish("fraud", run, place, next_sequence, **flags)
        return self.apply(self.machine.open_group(wish, self.now_ms))

    def child(self, token: ProducerPair, sequence: int = 0, task: int = 0, attempt: int = 0) -> OfTransaction:
        """An attempt that has written its rows."""
        name = f"txg:fraud#{token.epoch}.{sequence}.{task}.{attempt}"
        pair = self.init(name)
        self.add(pair, name=name)
        return OfTransaction(name, pair)

    def decide(self, token: ProducerPair, sequence: int, *winners: OfTransaction, note: bytes = b"") -> GroupEnded:
        wish = EndGroupWish("fraud", token, sequence, winners, note)
        return self.apply(self.machine.end_group(wish, self.now_ms))

    def child_states(self) -> dict[str, TransactionState]:
        children = self.machine.table.children("txg:fraud")
        return {name.partition("#")[2]: stored.state for name, stored in children.items()}


def test_a_step_commits_its_winners_and_aborts_the_rest_in_one_append() -> None:
    bench = GroupBench()
    token = bench.open().token
    winners = [bench.child(token, task=task) for task in range(3)]
    loser = bench.child(token, task=1, attempt=1)
    bench.appends.clear()

    ended = bench.decide(token, 0, *winners, note=b"42 rows")

    assert not ended.already_done
    assert bench.appends == [5]
    assert bench.child_states() == {
        "0.0.0.0": TransactionState.PREPARE_COMMIT,
        "0.0.1.0": TransactionState.PREPARE_COMMIT,
        "0.0.2.0": TransactionState.PREPARE_COMMIT,
        "0.0.1.1": TransactionState.PREPARE_ABORT,
    }
    bench.start()
    markers = bench.write_markers()
    assert {effect.transactional_id: effect.is_commit for effect in markers} == {
        **{winner.transactional_id: True for winner in winners},
        loser.transactional_id: False,
    }
    assert all(effect.pair.epoch == 1 for effect in markers)
    assert bench.child_states() == {}
    assert bench.stored("txg:fraud").group == ended.progress


def test_a_step_ended_twice_is_answered_with_what_was_decided() -> None:
    bench = GroupBench()
    token = bench.open().token
    winner = bench.child(token)
    first = bench.decide(token, 0, winner, note=b"42 rows")
    bench.start()
    again = bench.decide(token, 0, winner, note=b"other")
    assert again == GroupEnded(True, first.progress)
    assert (again.progress.note, again.progress.decided_by, again.progress.last_sequence) == (b"42 rows", RUN, 0)


def test_a_winner_that_is_not_open_any_more_leaves_everything_as_it_is() -> None:
    bench = GroupBench()
    token = bench.open().token
    fine, lost = bench.child(token), bench.child(token, task=1)
    stale = OfTransaction(fine.transactional_id, ProducerPair(fine.pair.id, fine.pair.epoch + 1))
    bench.end(lost.pair, commit=False, name=lost.transactional_id)
    before = len(bench.log)
    assert code_of(bench.decide, token, 0, fine, lost) is ErrorCode.TRANSACTION_ABORTABLE
    assert code_of(bench.decide, token, 0, stale) is ErrorCode.TRANSACTION_ABORTABLE
    unknown = OfTransaction("txg:fraud#0.0.9.0", fine.pair)
    assert code_of(bench.decide, token, 0, unknown) is ErrorCode.TRANSACTION_ABORTABLE
    assert len(bench.log) == before


def test_a_winner_that_ran_out_of_time_refuses_the_end() -> None:
    bench = GroupBench()
    token = bench.open().token
    winner = bench.child(token)
    bench.wait(TIMEOUT_MS)
    assert code_of(bench.decide, token, 0, winner) is ErrorCode.TRANSACTION_ABORTABLE


def test_winners_are_children_of_this_step_and_one_for_each_task() -> None:
    bench = GroupBench()
    token = bench.open().token
    one, other = bench.child(token), bench.child(token, attempt=1)
    later = bench.child(token, sequence=1)
    assert code_of(bench.decide, token, 0, one, other) is ErrorCode.INVALID_REQUEST
    assert code_of(bench.decide, token, 0, later) is ErrorCode.INVALID_REQUEST
    assert code_of(bench.decide, token, 0, OfTransaction("app", one.pair)) is ErrorCode.INVALID_REQUEST
    assert code_of(bench.decide, token, -2, one) is ErrorCode.INVALID_REQUEST
    assert code_of(bench.decide, token, 0, one, note=bytes(4_097)) is ErrorCode.INVALID_REQUEST


def test_a_child_cannot_commit_itself_but_may_abort() -> None:
    bench = GroupBench()
    token = bench.open().token
    child = bench.child(token)
    for generation in (FIRST, 2):
        code = code_of(bench.end, child.pair, name=child.transactional_id, generation=generation)
        assert code is ErrorCode.INVALID_TXN_STATE
    bench.end(child.pair, commit=False, name=child.transactional_id)
    bench.write_markers()
    assert bench.child_states() == {}


def test_a_new_run_aborts_what_the_old_one_left_and_fences_it() -> None:
    bench = GroupBench()
    token = bench.open().token
    done, left = bench.child(token), bench.child(token, sequence=1)
    bench.decide(token, 0, done)
    bench.init("txg:fraud#0.1.1.0")

    opened = bench.open(LATER_RUN, 1)

    assert opened.token == ProducerPair(token.id, token.epoch + 1)
    assert opened.progress.last_sequence == 0
    assert bench.child_states() == {
        "0.0.0.0": TransactionState.PREPARE_COMMIT,
        "0.1.0.0": TransactionState.PREPARE_ABORT,
    }
    assert code_of(bench.decide, token, 1, left) is ErrorCode.PRODUCER_FENCED
    assert code_of(bench.open, RUN, 1) is ErrorCode.PRODUCER_FENCED
    assert code_of(bench.init, "txg:fraud#0.1.2.0") is ErrorCode.PRODUCER_FENCED
    assert bench.open(LATER_RUN, 1) == opened, "a run that asks again gets its token again"


def test_children_of_a_decided_step_neither_open_nor_grow() -> None:
    bench = GroupBench()
    token = bench.open().token
    winner = bench.child(token)
    late = "txg:fraud#0.0.5.0"
    pair = bench.init(late)
    bench.decide(token, 0, winner)
    assert code_of(bench.init, "txg:fraud#0.0.6.0") is ErrorCode.PRODUCER_FENCED
    assert code_of(bench.add, pair, name=late) is ErrorCode.INVALID_PRODUCER_ID_MAPPING, "it is forgotten"
    next_step = bench.child(token, sequence=1)
    assert bench.child_states()["0.1.0.0"] is TransactionState.ONGOING
    assert not bench.decide(token, 1, next_step).already_done


def test_giving_up_aborts_what_is_open_and_decides_nothing() -> None:
    bench = GroupBench()
    token = bench.open().token
    bench.child(token)
    ended = bench.decide(token, -1)
    assert ended.progress.last_sequence == -1
    bench.write_markers()
    assert bench.child_states() == {}
    assert not bench.decide(token, 0, bench.child(token, attempt=1)).already_done


def test_a_group_that_is_not_known_takes_no_run_in_the_middle() -> None:
    bench = GroupBench()
    assert code_of(bench.open, next_sequence=7) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    opened = bench.open(next_sequence=7, start_over=True)
    assert opened.progress.last_sequence == 6
    assert code_of(bench.decide, ProducerPair(1, 1), 7) is ErrorCode.PRODUCER_FENCED
    assert code_of(TransactionBench().machine.end_group, EndGroupWish("x", opened.token, 0), 0) is (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )


def test_a_run_with_its_books_elsewhere_must_say_so() -> None:
    bench = GroupBench()
    bench.open()
    assert code_of(bench.open, LATER_RUN, place="s3://other") is ErrorCode.INVALID_REQUEST
    opened = bench.open(LATER_RUN, 3, place="s3://other", take_over=True, start_over=True)
    assert (opened.progress.place, opened.progress.last_sequence) == ("s3://other", 2)


def test_runs_superseded_long_ago_are_forgotten() -> None:
    bench = GroupBench()
    for number in range(40):
        bench.open(bytes([number]) * 16)
    group = bench.stored("txg:fraud").group
    assert group is not None
    assert len(group.runs) == 17
    assert code_of(bench.open, bytes([30]) * 16) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    "name", ["txg:fraud#", "txg:fraud#1.2.3", "txg:fraud#01.2.3.4", "txg:fraud#1.2.3.4.5", "txg:#0.0.0.0"]
)
def test_an_id_that_is_like_a_child_and_is_none_is_refused(name: str) -> None:
    assert code_of(TransactionBench().init, name) is ErrorCode.INVALID_REQUEST


def test_the_owner_has_no_transaction_of_its_own() -> None:
    bench = GroupBench()
    token = bench.open().token
    assert code_of(bench.init, "txg:fraud") is ErrorCode.INVALID_REQUEST
    assert code_of(bench.add, token, name="txg:fraud") is ErrorCode.INVALID_REQUEST
    assert code_of(bench.end, token, name="txg:fraud", commit=False) is ErrorCode.INVALID_REQUEST
    assert code_of(bench.init, "txg:nothing#0.0.0.0") is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    "wish",
    [
        OpenGroupWish("", RUN, PLACE, 0),
        OpenGroupWish("a#b", RUN, PLACE, 0),
        OpenGroupWish("a", b"short", PLACE, 0),
        OpenGroupWish("a", RUN, "x" * 1_025, 0),
        OpenGroupWish("a", RUN, PLACE, -1),
    ],
)
def test_a_wish_out_of_bounds_is_refused(wish: OpenGroupWish) -> None:
    assert code_of(TransactionBench().machine.open_group, wish, 0) is ErrorCode.INVALID_REQUEST


def test_the_add_that_a_decision_could_not_hold_is_refused() -> None:
    bench = GroupBench(TransactionsOptions(children_max=2))
    token = bench.open().token
    first = bench.child(token)
    bench.child(token, task=1)
    assert code_of(bench.child, token, task=2) is ErrorCode.TRANSACTION_ABORTABLE
    bench.add(first.pair, partitions("x-0"), name=first.transactional_id)
    bench.end(first.pair, commit=False, name=first.transactional_id)
    bench.child(token, task=3)


def test_the_bytes_of_a_decision_are_bounded_too() -> None:
    bench = GroupBench()
    bench.open()
    many = frozenset(partition for number in range(1_500) for partition in partitions(f"{'t' * 240}{number}-0"))
    outcomes = []
    for task in range(4):
        name = f"txg:fraud#0.0.{task}.0"
        pair = bench.init(name)
        outcomes.append(code_of(bench.add, pair, many, name=name))
    assert outcomes == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ]


def test_owner_and_children_lie_in_one_shard() -> None:
    assert shard_key("txg:fraud#1.2.3.4") == shard_key("txg:fraud") == "txg:fraud"
    assert shard_key("app#1") == "app#1"
    assert child_name("txg:fraud#1.2.3.4") == ChildName("txg:fraud", 1, 2, 3, 4)
    assert child_name("app") is None
    assert is_owner("txg:fraud")
    assert not is_owner("txg:fraud#1.2.3.4")


def test_an_owner_is_remembered_longer_than_other_ids() -> None:
    bench = GroupBench()
    bench.open()
    bench.wait(bench.options.id_expiration_ms + 3_600_000)
    assert bench.machine.table.get("txg:fraud") is not None
    bench.wait(bench.options.owner_expiration_ms)
    assert bench.machine.table.get("txg:fraud") is None


def test_an_owner_whose_epochs_are_used_up_gets_another_producer_id() -> None:
    bench = GroupBench()
    bench.open()
    owner = bench.stored("txg:fraud")
    bench.put(TransactionStored(owner.transactional_id, 5, 32_766, 1, group=owner.group))
    assert bench.open(LATER_RUN).token.epoch == 0
