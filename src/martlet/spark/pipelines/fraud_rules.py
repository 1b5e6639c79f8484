"""The rules that make a payment look like fraud, over what is remembered of its card. Pure: no Spark, no clock.

Rules: `velocity` (N payments of one card within N seconds; raised once until the card has been quiet for as
long), `amount` (a payment above a fixed limit), `unusual` (a payment many times what the card usually pays, once it has
paid a few times). Payments come roughly in the order of their times; one that comes late is judged by the payments of
the card around its own time.

Proved by: tests/unit/spark/test_fraud_rules.py.
"""

from typing import Final, NamedTuple

USUAL_AFTER_PAYMENTS: Final = 5
"""This many payments make an average worth comparing with."""


class FraudLimits(NamedTuple):
    """Where normal ends."""

    velocity_payments: int
    velocity_seconds: int
    amount_max: float
    amount_factor: float


class CardHistory(NamedTuple):
    """What is remembered of a card: little, whatever it pays."""

    recent_ms: tuple[int, ...] = ()
    """Times of the payments within the last `velocity_seconds`, the latest last."""
    payments: int = 0
    usual_amount: float = 0.0
    """The mean of what it paid, without what was alerted."""
    velocity_told_ms: int = -1
    """When `velocity` was raised last."""


class Payment(NamedTuple):
    """One payment of a card."""

    payment: str
    at_ms: int
    amount: float


class Alert(NamedTuple):
    """Why a payment looks like fraud."""

    rule: str
    payment: str
    at_ms: int
    amount: float
    detail: str


def judge(history: CardHistory, payment: Payment, limits: FraudLimits) -> tuple[CardHistory, list[Alert]]:
    """The card's history with the payment, and what is wrong with it."""
    alerts: list[Alert] = []

    def tell(rule: str, detail: str) -> None:
        alerts.append(Alert(rule, payment.payment, payment.at_ms, payment.amount, detail))

    usual = history.usual_amount
    if payment.amount > limits.amount_max:
        tell("amount", f"{payment.amount:.2f} is more than {limits.amount_max:.2f}")
    elif history.payments >= USUAL_AFTER_PAYMENTS and payment.amount > usual * limits.amount_factor:
        tell("unusual", f"{payment.amount:.2f} is {payment.amount / usual:.0f} times the usual {usual:.2f}")
    within_ms = limits.velocity_seconds * 1000
    newest = max(payment.at_ms, history.recent_ms[-1] if history.recent_ms else 0)
    recent = tuple(sorted(at for at in (*history.recent_ms, payment.at_ms) if at > newest - within_ms))
    told_ms = history.velocity_told_ms
    if len(recent) >= limits.velocity_payments:
        if told_ms < 0 or newest - told_ms >= within_ms:
            tell("velocity", f"{len(recent)} payments within {limits.velocity_seconds} s")
        told_ms = newest
    if alerts and alerts[0].rule in ("amount", "unusual"):
        payments, mean = history.payments, usual
    else:
        payments = history.payments + 1
        mean = usual + (payment.amount - usual) / payments
    # No more times than decide are kept, so a flood of payments does not grow the state.
    return CardHistory(recent[-limits.velocity_payments :], payments, mean, told_ms), alerts
