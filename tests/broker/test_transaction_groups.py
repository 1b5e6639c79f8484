"""Groups of transactions over the wire: runs, children of both generations, steps that end all or nothing."""

from itertools import count
from pathlib import Path

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.fetch import FetchPartitionResult
from martlet.wire.messages.end_transaction_group import (
    EndTransactionGroupRequest,
    EndTransactionGroupResponse,
    Winner,
)
from martlet.wire.messages.find_coordinator import FindCoordinatorRequest
from martlet.wire.messages.open_transaction_group import (
    OpenTransactionGroupRequest,
    OpenTransactionGroupResponse,
)
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic
from tests.broker.test_transaction_apis import TransactionalProducer, read, wait_stable

_numbers = count()
RUN, LATER_RUN = b"a" * 16, b"b" * 16
PLACE = "/checkpoints/1"


class Run:
    """One run of a program that writes to one topic."""

    def __init__(self, client: RawClient, group: str | None = None, topic: str | None = None) -> None:
        self.client = client
        self.group = group or f"group-{next(_numbers)}"
        self.topic = topic or create_topic(client, 2)
        self.token = (-1, -1)

    def open(self, run: bytes = RUN, next_sequence: int = 0, **flags: bool) -> OpenTransactionGroupResponse:
        request = OpenTransactionGroupRequest(self.group, run, PLACE, next_sequence, **flags)
        while True:
            answer = self.client.call(request, 0)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
        assert isinstance(answer, OpenTransactionGroupResponse)
        if answer.error_code == 0:
            self.token = (answer.producer_id, answer.producer_epoch)
        return answer

    def child(
        self, task: int, attempt: int = 0, *, sequence: int = 0, second: bool = True, value: bytes = b""
    ) -> TransactionalProducer:
        """An attempt that has written one row."""
        name = f"txg:{self.group}#{self.token[1]}.{sequence}.{task}.{attempt}"
        child = TransactionalProducer(self.client, second=second, name=name, topic=self.topic)
        assert child.init() == 0
        if not second:
            assert child.add(task % 2) == [0]
        assert child.produce(value or f"{sequence}.{task}.{attempt}".encode(), partition=task % 2).error_code == 0
        return child

    def end(
        self, sequence: int, *winners: TransactionalProducer, note: bytes = b"", token: tuple[int, int] | None = None
    ) -> EndTransactionGroupResponse:
        named = [Winner(winner.name, *winner.pair) for winner in winners]
        request = EndTransactionGroupRequest(self.group, *(token or self.token), sequence, named, note)
        answer = self.client.call(request, 0)
        assert isinstance(answer, EndTransactionGroupResponse)
        return answer


@pytest.fixture
def run(client: RawClient) -> Run:
    made = Run(client)
    assert made.open().error_code == 0
    return made


def rows(result: FetchPartitionResult) -> bytes:
    return bytes(result.records)


def test_a_group_and_its_children_have_one_coordinator(client: RawClient) -> None:
    keys = ["txg:some-group", "txg:some-group#0.0.0.0"]
    answer = client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=keys), 4)
    assert len({found.node_id for found in answer.coordinators}) == 1
    assert all(found.error_code == 0 for found in answer.coordinators)


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
def test_a_step_shows_its_winners_and_nothing_of_the_others(run: Run, second: bool) -> None:
    winners = [run.child(task, second=second) for task in range(4)]
    run.child(1, 1, second=second)
    held = read(run.client, run.topic, committed=True)
    assert held.last_stable_offset == 0

    ended = run.end(0, *winners, note=b"4 rows")

    assert (ended.error_code, ended.already_done, ended.last_sequence, ended.note) == (0, False, 0, b"4 rows")
    even, odd = (wait_stable(run.client, run.topic, partition) for partition in range(2))
    assert not even.aborted_transactions
    assert len(odd.aborted_transactions or ()) == 1
    assert b"0.0.0" in rows(even)
    assert b"0.2.0" in rows(even)


def test_a_step_ended_again_is_done_already_with_the_note_of_the_first_time(run: Run) -> None:
    winner = run.child(0)
    assert run.end(0, winner, note=b"first").error_code == 0
    again = run.end(0, winner, note=b"second")
    assert (again.error_code, again.already_done, again.last_sequence) == (0, True, 0)
    assert (again.note, again.decided_by) == (b"first", RUN)
    wait_stable(run.client, run.topic)
    assert run.end(0, winner).already_done, "after the markers, too"


def test_a_winner_that_is_not_open_leaves_the_whole_step_as_it_was(run: Run) -> None:
    fine, lost = run.child(0), run.child(2)
    assert lost.end(False) == 0
    refused = run.end(0, fine, lost)
    assert refused.error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert lost.name in (refused.error_message or "")
    assert read(run.client, run.topic, committed=True).last_stable_offset == 0, "the other one is open still"
    assert run.end(0, fine).error_code == 0
    assert b"0.0.0" in rows(wait_stable(run.client, run.topic))


def test_a_child_is_committed_by_its_group_alone(run: Run) -> None:
    for second in (False, True):
        child = run.child(0, int(second), second=second)
        assert child.end() == ErrorCode.INVALID_TXN_STATE
        assert child.end(False) == 0


def test_a_new_run_aborts_what_the_old_one_left_and_decides_in_its_place(run: Run) -> None:
    old_token, left = run.token, run.child(0)
    opened = run.open(LATER_RUN)
    assert opened.error_code == 0
    assert opened.producer_epoch > old_token[1]
    aborted = wait_stable(run.client, run.topic)
    assert len(aborted.aborted_transactions or ()) == 1
    assert run.end(0, left, token=old_token).error_code == ErrorCode.PRODUCER_FENCED
    assert run.open(RUN).error_code == ErrorCode.PRODUCER_FENCED
    late = TransactionalProducer(run.client, name=left.name, topic=run.topic)
    assert late.init() == ErrorCode.PRODUCER_FENCED
    winner = run.child(0)
    assert run.end(0, winner).error_code == 0


def test_a_task_that_comes_after_the_decision_is_refused(run: Run) -> None:
    early = run.child(0)
    assert run.end(0, early).error_code == 0
    late = TransactionalProducer(run.client, name=early.name.rpartition(".")[0] + ".7", topic=run.topic)
    assert late.init() == ErrorCode.PRODUCER_FENCED


def test_giving_up_aborts_what_is_open_and_decides_nothing(run: Run) -> None:
    run.child(0)
    given_up = run.end(-1)
    assert (given_up.error_code, given_up.last_sequence) == (0, -1)
    assert len(wait_stable(run.client, run.topic).aborted_transactions or ()) == 1
    assert run.end(0, run.child(0, 1)).error_code == 0


def test_what_no_run_may_ask_is_refused_with_a_sentence(client: RawClient) -> None:
    unknown = Run(client)
    assert unknown.end(0, token=(5, 0)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    behind = unknown.open(next_sequence=7)
    assert behind.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert "nothing is known" in (behind.error_message or "")
    assert unknown.open(next_sequence=7, start_over=True).last_sequence == 6
    request = OpenTransactionGroupRequest(unknown.group, LATER_RUN, "/elsewhere", 7)
    refused = client.call(request, 0)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert PLACE in refused.error_message
    for name in ("", "a#b"):
        assert client.call(OpenTransactionGroupRequest(name, RUN), 0).error_code == ErrorCode.INVALID_REQUEST
    owner = TransactionalProducer(client, name=f"txg:{unknown.group}", topic=unknown.topic)
    assert owner.init() == ErrorCode.INVALID_REQUEST


def test_what_was_decided_is_decided_after_the_broker_was_killed(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data").start()
    try:
        with RawClient(process.address) as client:
            run = Run(client)
            assert run.open().error_code == 0
            winners = [run.child(task) for task in range(4)]
            run.child(0, 1)
            assert run.end(0, *winners, note=b"kept").error_code == 0
        process.kill()
        process.start()
        with RawClient(process.address) as client:
            after = Run(client, run.group, run.topic)
            opened = after.open(next_sequence=0)
            assert (opened.producer_id, opened.producer_epoch) == run.token
            assert (opened.last_sequence, opened.note) == (0, b"kept")
            assert after.end(0, *winners).already_done
            even = wait_stable(client, run.topic)
            assert len(even.aborted_transactions or ()) == 1
            assert not wait_stable(client, run.topic, 1).aborted_transactions
    finally:
        process.kill()
