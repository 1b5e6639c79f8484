"""The fraud pipeline: alerts for what breaks a rule, none for the rest, over a history that outlives a run."""

import json
from typing import Any

from tests.spark.pipeline_runs import PipelineRuns
from tests.spark.topics import Message, Topics


def payment(number: int, card: str, amount: float, second: float) -> Message:
    at = f"2026-03-01T12:{int(second // 60):02}:{second % 60:06.3f}Z"
    value = {"payment": f"p{number}", "card": card, "amount": amount, "at": at, "merchant": "m", "country": "CH"}
    return Message(json.dumps(value).encode(), card.encode(), hash(card) % 2)


def alerts(topics: Topics, topic: str) -> list[tuple[str, str, str]]:
    alerts: list[dict[str, Any]] = [json.loads(value or b"") for value in topics.values(topic)]
    return sorted((alert["rule"], str(alert.get("card")), alert["payment"]) for alert in alerts)


def test_alerts_tell_velocity_amount_and_unusual_payments_and_what_cannot_be_read(
    topics: Topics, pipelines: PipelineRuns
) -> None:
    topic, found = topics.new(partitions=2), topics.new()
    calm = [payment(n, f"calm-{n % 20}", 20.0 + n % 7, n * 5) for n in range(100)]
    burst = [payment(200 + n, "burst", 5.0, 100 + n) for n in range(6)]
    large = [payment(300, "large", 9_000.0, 10)]
    topics.publish(topic, [*calm, *burst, *large, Message(b"garbage", b"?")])
    status = pipelines.finish("fraud", topic=topic, to=found, messages_per_batch=60)
    assert status.flows[0].rows == 108
    expected = [("amount", "large", "p300"), ("unreadable", "None", f"{topic}/0/{len_of(topics, topic) - 1}")]
    assert alerts(topics, found) == sorted([*expected, ("velocity", "burst", "p204")])
    # What a card usually pays is remembered over a restart.
    topics.publish(topic, [payment(400, "calm-3", 900.0, 600)])
    pipelines.finish("fraud", topic=topic, to=found)
    assert ("unusual", "calm-3", "p400") in alerts(topics, found)


def len_of(topics: Topics, topic: str) -> int:
    return len(topics.contents(topic)[0])
