"""The fraud rules alone: when they tell, when they keep still, and that a card's history stays small."""

from hypothesis import given
from hypothesis import strategies as st

from martlet.spark.pipelines.fraud_rules import Alert, CardHistory, FraudLimits, Payment, judge

LIMITS = FraudLimits(velocity_payments=3, velocity_seconds=10, amount_max=1_000.0, amount_factor=5.0)


def judged(*payments: tuple[float, float], limits: FraudLimits = LIMITS) -> list[list[str]]:
    """The rules broken by each payment of (second, amount)."""
    history, broken = CardHistory(), []
    for number, (second, amount) in enumerate(payments):
        history, alerts = judge(history, Payment(f"p{number}", int(second * 1000), amount), limits)
        broken.append([alert.rule for alert in alerts])
    return broken


def test_velocity_is_reported_at_the_payment_that_is_one_too_many_and_once_for_a_burst() -> None:
    burst = [(second, 5.0) for second in (0, 1, 2, 3, 4, 13)]
    assert judged(*burst) == [[], [], ["velocity"], [], [], []]


def test_a_card_that_was_quiet_for_long_enough_is_reported_again() -> None:
    bursts = [(second, 5.0) for second in (0, 1, 2, 30, 31, 32)]
    assert judged(*bursts) == [[], [], ["velocity"], [], [], ["velocity"]]


def test_payments_further_apart_than_the_limit_are_no_velocity() -> None:
    assert judged(*[(second * 5.0, 5.0) for second in range(20)]) == [[]] * 20


def test_a_late_payment_counts_with_those_around_its_own_time() -> None:
    assert judged((0, 5.0), (4, 5.0), (2, 5.0)) == [[], [], ["velocity"]]


def test_an_amount_above_the_limit_is_reported_at_once() -> None:
    assert judged((0, 1_000.0), (100, 1_000.01)) == [[], ["amount"]]


def test_an_unusual_amount_needs_a_few_payments_to_compare_with_and_does_not_become_usual() -> None:
    usual = [(100.0 * n, 10.0) for n in range(5)]
    assert judged((0, 10.0), (100, 90.0)) == [[], []]
    assert judged(*usual, (600, 60.0), (700, 60.0), (800, 49.0)) == [[]] * 5 + [["unusual"], ["unusual"], []]


def test_an_alert_says_which_payment_when_how_much_and_why() -> None:
    _, alerts = judge(CardHistory(), Payment("p1", 5_000, 2_000.0), LIMITS)
    assert alerts == [Alert("amount", "p1", 5_000, 2_000.0, "2000.00 is more than 1000.00")]


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0.01, 100_000)), max_size=60))
def test_a_history_never_holds_more_times_than_decide(payments: list[tuple[int, float]]) -> None:
    history = CardHistory()
    for second, amount in payments:
        history, _ = judge(history, Payment("p", second * 1000, amount), LIMITS)
        assert len(history.recent_ms) <= LIMITS.velocity_payments
        assert list(history.recent_ms) == sorted(history.recent_ms)
