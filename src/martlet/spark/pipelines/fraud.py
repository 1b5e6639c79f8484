"""`fraud`: payments in, alerts out. The rules are in `fraud_rules`; here is what Spark needs around them.

A payment is a JSON object with `payment`, `card`, `amount` and `at` (a time); other fields are let pass. Payments of a
card are judged in the order of their times, over a history that Spark keeps per card and drops when the card has paid
nothing for a day. What cannot be read as a payment becomes an alert of the rule `unreadable`, so that nothing is passed
over in silence.

Alerts are JSON objects keyed by card. At least once: after a failure, an alert may be raised again; `payment` and
`rule` together say which it is. Proved by: tests/spark/test_fraud.py.
"""

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from martlet.spark.pipelines.catalogue import FraudOptions
from martlet.spark.pipelines.flows import PipelineRun
from martlet.spark.pipelines.fraud_rules import CardHistory, FraudLimits, Payment, judge

if TYPE_CHECKING:
    import pandas as pd

PAYMENT: Final = "payment string, card string, amount double, at timestamp"
ALERT: Final = "rule string, card string, payment string, at timestamp, amount double, detail string"

# As text, because Spark 4.3 cannot read the schema of a state that has an array in it.
_HISTORY: Final = "history string"
_FORGET_MS: Final = 86_400_000
_READ_AT: Final = "read_at"

Judge = Callable[[Any, "Iterator[pd.DataFrame]", GroupState], "Iterator[pd.DataFrame]"]


def start(run: PipelineRun, options: FraudOptions) -> None:
    limits = FraudLimits(options.velocity_payments, options.velocity_seconds, options.amount_max, options.amount_factor)
    alerts = find_fraud(read_payments(run.read_stream(options.topic)), limits)
    run.write_topic(as_messages(alerts), options.to, name="fraud")


def read_payments(messages: DataFrame) -> DataFrame:
    """The messages as payments, and whether they could be read as such."""
    payment = F.from_json(F.col("value").cast("string"), PAYMENT)
    place = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    read = messages.select(payment.alias("read"), place.alias("place"), "timestamp")
    is_payment = F.col("read.card").isNotNull() & F.col("read.amount").isNotNull() & F.col("read.at").isNotNull()
    return read.select(
        "read.card",
        F.coalesce("read.payment", "place").alias("payment"),
        F.unix_millis(F.coalesce("read.at", "timestamp")).alias("at_ms"),
        F.col("read.amount").alias("amount"),
        F.coalesce(is_payment, F.lit(False)).alias("is_payment"),
    )


def find_fraud(payments: DataFrame, limits: FraudLimits) -> DataFrame:
    """The alerts of every card's payments, over its history."""
    # Forgetting goes by the hour in which a card was read last. With Spark's timeout by processing time there would be
    # an empty batch at every trigger, and a run until the end would have none.
    read_at = F.date_trunc("hour", F.current_timestamp())
    return (
        payments.withColumn(_READ_AT, read_at)
        .withWatermark(_READ_AT, "1 hour")
        .groupBy("card")
        .applyInPandasWithState(_judge_card(limits), ALERT, _HISTORY, "append", GroupStateTimeout.EventTimeTimeout)
    )


def as_messages(alerts: DataFrame) -> DataFrame:
    return alerts.select(F.col("card").alias("key"), F.to_json(F.struct(*alerts.columns)).alias("value"))


def _judge_card(limits: FraudLimits) -> Judge:
    """The function that Spark calls once for each card of a batch."""

    def judge_card(key: Any, frames: "Iterator[pd.DataFrame]", state: GroupState) -> "Iterator[pd.DataFrame]":
        import pandas as pd

        if state.hasTimedOut:
            state.remove()
            return
        history = _remembered(state)
        found: list[tuple[Any, ...]] = []
        payments, read_ms = [], 0
        for frame in frames:
            is_payment = frame["is_payment"]
            payments += [Payment(*row) for row in _rows(frame[is_payment])]
            found += [("unreadable", key[0], *row, "no payment can be read") for row in _rows(frame[~is_payment])]
            read_ms = max(read_ms, int(frame[_READ_AT].max().timestamp() * 1000))
        for payment in sorted(payments, key=lambda each: each.at_ms):
            history, alerts = judge(history, payment, limits)
            found += [(alert.rule, key[0], *alert[1:]) for alert in alerts]
        if payments:
            state.update((json.dumps(history),))
            state.setTimeoutTimestamp(read_ms + _FORGET_MS)
        if found:
            raised = pd.DataFrame(found, columns=["rule", "card", "payment", "at", "amount", "detail"])
            raised["at"] = pd.to_datetime(raised["at"], unit="ms", utc=True)
            yield raised

    return judge_card


def _remembered(state: GroupState) -> CardHistory:
    if not state.exists:
        return CardHistory()
    recent, payments, usual, alerted = json.loads(state.get[0])
    return CardHistory(tuple(recent), payments, usual, alerted)


def _rows(frame: "pd.DataFrame") -> Iterator[tuple[str, int, float]]:
    """Payment, time and amount of each row, as plain Python values."""
    columns = (frame["payment"].tolist(), frame["at_ms"].tolist(), frame["amount"].tolist())
    return zip(*columns, strict=True)
