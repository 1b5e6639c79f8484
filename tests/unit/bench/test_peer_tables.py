"""The comparison's tables: every comparison in one of them, with its spread and how many rounds it had."""

from typing import Any

from bench.peers.report import RATE, Sample
from bench.peers.tables import format_markdown

RUN: dict[str, Any] = {
    "machine": {"processors": "2 × Test"},
    "versions": {"kafka version": "4.3.1"},
    "missing": {"redis": "redis-server is not installed"},
    "configurations": {"kafka, cached": "as shipped"},
    "failures": ["latency, cached, nats: TimeoutError: 300 s"],
}


CASE = "1 KB, client, cached"


def sample(system: str, value: float, number: int = 0, *, case: str = CASE, figure: str = RATE) -> Sample:
    return Sample("publish", case, figure, "msg/s", value, system, number)


def test_the_report_says_what_is_missing_and_what_failed() -> None:
    text = format_markdown(RUN, [sample("martlet", 100), sample("kafka", 50)])
    assert text.startswith("- processors: 2 × Test")
    assert "- redis: **missing** (redis-server is not installed)" in text
    assert "- latency, cached, nats: TimeoutError: 300 s" in text


def test_a_target_stands_with_its_verdict_and_its_rounds() -> None:
    samples = [sample("martlet", 90), sample("kafka", 100), sample("martlet", 120, 1), sample("kafka", 100, 1)]
    text = format_markdown(RUN, samples)
    line = f"| publish | {CASE} | {RATE} | 105 msg/s | 100 | 1.05 [0.90–1.20] | 2 | ratio ≥ 1 | ok |"
    assert line in _section(text, "Where targets are, beside Kafka as shipped")
    assert "## The other" not in text
    assert "## Beside" not in text


def test_every_comparison_stands_in_one_table() -> None:
    systems = ("martlet", "kafka", "kafka-tuned", "nats", "sink")
    cases = (CASE, "10 KB, client, cached")
    text = format_markdown(RUN, [sample(system, 100, case=case) for system in systems for case in cases])
    for case in cases:
        assert len([line for line in text.splitlines() if f"| {case} |" in line]) == 3
    assert "10 KB" in "".join(_section(text, "The other workloads, beside Kafka as shipped"))
    others = _section(text, "Beside other queues, by their own clients")
    assert f"| publish | {CASE} | {RATE} | 100 msg/s | 1.00 (100) |" in others
    limits = _section(text, "Beside a tuned Kafka, and the load generator's own limit (sink)")
    assert f"| publish | {CASE} | {RATE} | 100 msg/s | 1.00 (100) | 1.00 (100) |" in limits


def test_a_peer_without_a_figure_has_an_empty_cell() -> None:
    samples = [
        sample("martlet", 100),
        sample("nats", 50),
        sample("martlet", 8, case="other"),
        sample("redis", 4, case="other"),
    ]
    others = _section(format_markdown(RUN, samples), "Beside other queues, by their own clients")
    assert f"| publish | {CASE} | {RATE} | 100 msg/s | 2.00 (50.0) |   |" in others
    assert f"| publish | other | {RATE} | 8.00 msg/s |   | 2.00 (4.00) |" in others


def test_a_small_ratio_keeps_its_digits() -> None:
    text = format_markdown(RUN, [sample("martlet", 1), sample("kafka", 300)])
    assert "| 0.0033 [0.0033–0.0033] |" in text


def _section(text: str, heading: str) -> list[str]:
    return text.split(f"## {heading}\n", 1)[1].split("## ", 1)[0].splitlines()
