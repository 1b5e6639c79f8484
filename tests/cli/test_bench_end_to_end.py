"""`martlet bench` against a real broker: what it counts is what was moved."""

import json

from tests.cli.conftest import Martlet


def test_what_was_published_is_counted_and_consumed_again(martlet: Martlet) -> None:
    martlet("topic", "create", "load", "--partitions", "3")
    published = json.loads(martlet("bench", "publish", "load", "--messages", "2100", "--size", "50", "--json").stdout)
    assert (published["messages"], published["bytes"]) == (2_100, 105_000)
    assert published["messages_per_second"] > 0
    consumed = json.loads(martlet("bench", "consume", "load", "--json").stdout)
    assert (consumed["messages"], consumed["bytes"] > 105_000) == (2_100, True)
    shown = martlet("bench", "consume", "load", "--messages", "1").stdout
    assert {"messages", "bytes", "seconds", "messages/s", "MB/s"} == {line.split()[0] for line in shown.splitlines()}


def test_latency_is_measured_of_every_message(martlet: Martlet) -> None:
    martlet("topic", "create", "quick")
    report = json.loads(martlet("bench", "latency", "quick", "--messages", "20", "--rate", "500", "--json").stdout)
    for name in ("acknowledged", "delivered"):
        assert report[name]["count"] == 20
        assert 0 < report[name]["percentiles_ms"]["p50"] <= report[name]["percentiles_ms"]["p99.9"]
        assert sum(bucket["count"] for bucket in report[name]["buckets"]) == 20
    assert "TIME" in martlet("bench", "latency", "quick", "--messages", "5", "--rate", "500").stdout


def test_a_topic_that_does_not_exist_is_never_made(martlet: Martlet) -> None:
    for load in ("publish", "consume", "latency"):
        assert martlet("bench", load, "no-such-load").exit_code == 3
