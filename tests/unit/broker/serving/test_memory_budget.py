"""The bound on half-received requests: small ones are free, large ones wait their turn, one always goes on."""

from martlet.broker.serving.memory_budget import MemoryBudget

KIB = 1024


class Holder:
    def __init__(self) -> None:
        self.woken = 0

    def budget_available(self) -> None:
        self.woken += 1


def test_small_partial_requests_cost_nothing() -> None:
    budget = MemoryBudget(100 * KIB)
    assert all(budget.admit(Holder(), 60 * KIB) for _ in range(1000))
    assert budget.used_bytes == 0


def test_a_large_request_waits_while_the_budget_is_spent_and_is_woken_when_it_is_freed() -> None:
    budget = MemoryBudget(150 * KIB)
    first, second = Holder(), Holder()
    assert budget.admit(first, 100 * KIB)
    assert not budget.admit(second, 100 * KIB)
    assert budget.admit(first, 0)
    assert second.woken == 1
    assert budget.admit(second, 100 * KIB)
    assert budget.used_bytes == 100 * KIB


def test_one_request_alone_may_exceed_the_budget() -> None:
    budget = MemoryBudget(10 * KIB)
    holder = Holder()
    assert budget.admit(holder, 100 * KIB)
    assert budget.admit(holder, 200 * KIB)


def test_of_several_over_the_budget_one_always_goes_on() -> None:
    budget = MemoryBudget(10 * KIB)
    first, second, third = Holder(), Holder(), Holder()
    assert budget.admit(first, 100 * KIB)
    assert not budget.admit(second, 100 * KIB)
    assert not budget.admit(third, 100 * KIB)
    assert budget.admit(first, 200 * KIB), "the only one not waiting must be let on"


def test_a_closed_connection_gives_back_what_it_held() -> None:
    budget = MemoryBudget(150 * KIB)
    first, second = Holder(), Holder()
    budget.admit(first, 100 * KIB)
    budget.admit(second, 100 * KIB)
    budget.forget(first)
    assert second.woken == 1
    budget.forget(second)
    assert budget.used_bytes == 0
