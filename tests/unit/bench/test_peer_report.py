"""The comparison's findings: ratios inside rounds, targets beside Kafka only, nothing made up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.peers.report import CPU, RATE, Sample, read_samples, rows, target_of, write_samples


def sample(system: str, value: float, number: int = 0, **more: Any) -> Sample:
    plain = Sample("publish", "1 KB, client, cached", RATE, "msg/s", value, system, number)
    return replace(plain, **more)


def test_ratios_are_taken_inside_each_round() -> None:
    samples = [sample("martlet", 100, 0), sample("kafka", 50, 0), sample("kafka", 400, 1), sample("martlet", 200, 1)]
    (row,) = rows(samples)
    assert row.ratios == (2.0, 0.5)
    assert row.peer == "kafka"
    assert row.ratio == 1.25


def test_a_round_that_one_side_did_not_finish_is_left_out() -> None:
    samples = [sample("martlet", 100, 0), sample("kafka", 50, 0), sample("martlet", 10, 1)]
    (row,) = rows(samples)
    assert row.ratios == (2.0,)
    assert row.value == 100


def test_a_peer_without_our_figure_makes_no_row() -> None:
    assert rows([sample("nats", 100), sample("martlet", 100, case="another")]) == []


def test_only_kafka_as_it_is_shipped_is_a_judge() -> None:
    key = ("publish", "1 KB, client, cached", RATE)
    assert target_of(key, "kafka-tuned") is None
    assert target_of(key, "nats") is None
    target = target_of(key, "kafka")
    assert target is not None
    assert target.text == "ratio ≥ 1"


def test_targets_are_those_that_were_set() -> None:
    wanted = {
        ("publish", "100 B, ready-made requests, flushed", RATE): "ratio ≥ 1",
        ("consume", "1 KB, client, cold data", RATE): "ratio ≥ 1",
        ("publish", "10 KB, client, cached", RATE): None,
        ("publish", "1 KB, client, cached", CPU): "ratio ≤ 1",
        ("latency", "200/s, client, flushed", "publish p99"): "ratio ≤ 1",
        ("latency", "4000/s, client, flushed", "publish p99"): None,
        ("start", "fresh", "start to the first message"): "ratio ≤ 0.2",
        ("start", "fresh", "idle memory"): "ratio ≤ 0.25",
        ("start", "fresh", "idle CPU"): None,
    }
    for key, text in wanted.items():
        target = target_of(key, "kafka")
        assert (target.text if target else None) == text, key


def test_a_missed_target_is_called_so() -> None:
    (row,) = rows([sample("martlet", 90), sample("kafka", 100)])
    assert row.verdict == "MISSED"


def test_written_samples_can_be_read_back(tmp_path: Path) -> None:
    samples = [sample("martlet", 100, point={"value_bytes": 1024.0}), sample("kafka", 50)]
    write_samples(tmp_path, {"failures": []}, samples)
    assert read_samples(tmp_path) == ({"failures": []}, samples)
