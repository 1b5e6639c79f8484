"""The end of a group of transactions in every interleaving within small bounds, also with a guard taken away."""

from dataclasses import replace

import pytest

from martlet.coordinator.result import Result
from martlet.transactions.machine import TransactionsMachine
from martlet.transactions.records import TransactionRecord, TransactionStored
from martlet.transactions.requests import TransactionsOptions
from martlet.transactions.transaction_groups import EndGroupWish, GroupEnded, TransactionGroups
from martlet.transactions.transitions import client_pair
from martlet.transactions.work import TransactionWork
from tests.unit.transactions.group_end_model import Budget, GroupEndModel, explore

WORLDS_MAX = 60_000


@pytest.mark.parametrize("budget", [Budget(), Budget(restarts=1, repeats=1)], ids=["plain", "restart"])
def test_no_step_is_torn_and_every_step_can_be_finished(budget: Budget) -> None:
    count, found, way = explore(GroupEndModel(budget), limit=WORLDS_MAX)
    assert found is None, f"{found}: {way}"
    assert count > 5_000


class LostWinnersAreLeftOut(TransactionGroups):
    """A winner that is not open any more does not stop the decision."""

    def _winners(self, wish: EndGroupWish, owner: str) -> dict[str, TransactionStored]:
        open_ones = [
            of
            for of in wish.winners
            if (stored := self._table.get(of.transactional_id)) is not None and client_pair(stored) == of.pair
        ]
        return super()._winners(wish._replace(winners=tuple(open_ones)), owner)


class StepsAreNotStored(TransactionGroups):
    """The decision forgets to say which step it was."""

    def end_group(self, wish: EndGroupWish, work: TransactionWork) -> Result[TransactionRecord, GroupEnded]:
        result = super().end_group(wish, work)
        records = [
            replace(record, group=replace(record.group, last_sequence=-1))
            if isinstance(record, TransactionStored) and record.group is not None
            else record
            for record in result.records
        ]
        return replace(result, records=records)


@pytest.mark.parametrize(
    ("mutant", "budget"),
    [
        (LostWinnersAreLeftOut, Budget(timeouts=1)),
        (StepsAreNotStored, Budget()),
    ],
)
def test_a_guard_that_is_taken_away_is_missed(mutant: type[TransactionGroups], budget: Budget) -> None:
    def make() -> TransactionsMachine:
        machine = TransactionsMachine(TransactionsOptions(), lambda: 1)
        machine._groups = mutant(machine.table, TransactionsOptions(), lambda: 1)
        return machine

    _, found, _ = explore(GroupEndModel(budget, make), limit=200_000)
    assert found is not None
