"""The ledger notices what it is there to notice."""

import pytest

from tests.clients.group_ledger import Ledger


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger(2)
    ledger.assigned("a", [0, 1])
    ledger.received("a", 0, 0)
    return ledger


def test_a_group_that_keeps_the_rules_is_in_order(ledger: Ledger) -> None:
    ledger.received("a", 0, 1)
    ledger.revoked("a", [0])
    ledger.assigned("b", [0])
    ledger.received("b", 0, 1)
    ledger.received("b", 0, 2)
    ledger.check()
    assert ledger.done() == [3, 0]


def test_two_owners_are_noticed(ledger: Ledger) -> None:
    ledger.assigned("b", [1])
    assert len(ledger.violations) == 1


def test_a_message_for_another_member_is_noticed(ledger: Ledger) -> None:
    ledger.received("b", 0, 1)
    assert len(ledger.violations) == 1


def test_a_message_left_out_is_noticed(ledger: Ledger) -> None:
    ledger.received("a", 0, 2)
    assert len(ledger.violations) == 1


def test_messages_out_of_order_are_noticed(ledger: Ledger) -> None:
    for offset in (1, 2, 1, 3):
        ledger.received("a", 0, offset)
    assert len(ledger.violations) == 1


def test_messages_read_again_in_order_are_allowed(ledger: Ledger) -> None:
    for offset in (1, 2, 0, 1, 2, 3):
        ledger.received("a", 0, offset)
    ledger.check()
    assert len(ledger.repeats) == 1


def test_a_message_left_out_at_a_handover_is_noticed(ledger: Ledger) -> None:
    ledger.revoked("a", [0])
    ledger.assigned("b", [0])
    ledger.received("b", 0, 2)
    assert len(ledger.violations) == 1
