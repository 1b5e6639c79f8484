"""A realistic stream of payments for the demo: calm cards, and a few that someone else has got hold of.

Everything follows from the seed, so the alerts that must come are known beforehand: the rules themselves say which.
Time runs faster than ours: a few hours of payments pass in less than a minute.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from martlet.spark.pipelines.fraud_rules import Alert, CardHistory, FraudLimits, Payment, judge

MERCHANTS: Final = ("grocer", "petrol", "railway", "bookshop", "pharmacy", "cinema", "hotel", "electronics")
COUNTRIES: Final = ("CH", "DE", "FR", "IT", "AT")


@dataclass(frozen=True)
class PaymentsPlan:
    """How many of what."""

    payments: int = 20_000
    cards: int = 400
    hours: float = 4.0
    bursts: int = 12
    large: int = 8
    unusual: int = 10
    seed: int = 1


@dataclass(frozen=True, slots=True)
class CardPayment:
    """A payment with its card, as it is published."""

    card: str
    payment: Payment
    merchant: str
    country: str

    def value(self) -> bytes:
        at = datetime.fromtimestamp(self.payment.at_ms / 1000, UTC).isoformat()
        fields = {
            "payment": self.payment.payment,
            "card": self.card,
            "amount": self.payment.amount,
            "currency": "CHF",
            "merchant": self.merchant,
            "country": self.country,
            "at": at,
        }
        return json.dumps(fields).encode()


def make_payments(plan: PaymentsPlan, start_ms: int) -> list[CardPayment]:
    """All payments, in the order of their times."""
    chance = random.Random(plan.seed)
    cards = [f"{4000 + n // 10_000:04} {n % 10_000:04} {chance.randrange(10_000):04}" for n in range(plan.cards)]
    usual = {card: chance.lognormvariate(3.5, 0.5) for card in cards}
    span_ms = int(plan.hours * 3_600_000)
    numbers = iter(range(1_000_000_000))

    def pay(card: str, at_ms: int, amount: float) -> CardPayment:
        payment = Payment(f"p{next(numbers)}", start_ms + at_ms, round(amount, 2))
        return CardPayment(card, payment, chance.choice(MERCHANTS), chance.choice(COUNTRIES))

    stream: list[CardPayment] = []
    for number in range(plan.payments):
        card = cards[number % plan.cards]
        stream.append(pay(card, chance.randrange(span_ms), usual[card] * chance.uniform(0.4, 2.0)))
    for _ in range(plan.bursts):
        card, begin = chance.choice(cards), chance.randrange(span_ms)
        stream += [pay(card, begin + n * chance.randrange(1_000, 6_000), usual[card]) for n in range(7)]
    for _ in range(plan.large):
        stream.append(pay(chance.choice(cards), chance.randrange(span_ms), chance.uniform(6_000, 20_000)))
    for _ in range(plan.unusual):
        card = chance.choice(cards)
        stream.append(pay(card, chance.randrange(span_ms // 2, span_ms), usual[card] * chance.uniform(20, 40)))
    return sorted(stream, key=lambda each: each.payment.at_ms)


def expected_alerts(payments: list[CardPayment], limits: FraudLimits) -> Iterator[tuple[str, Alert]]:
    """What the rules say of these payments, one after the other."""
    histories: dict[str, CardHistory] = {}
    for each in payments:
        histories[each.card], alerts = judge(histories.get(each.card, CardHistory()), each.payment, limits)
        for alert in alerts:
            yield each.card, alert
