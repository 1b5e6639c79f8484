"""Stream offsets: the form of Spark's Kafka source, stable as text, and lag out of it."""

import json
from dataclasses import dataclass

from martlet.base.ids import TopicPartition
from martlet.spark.progress import lag_between, source_lag
from martlet.spark.stream_offsets import StreamOffsets

A0, A1, A10, B0 = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 10), TopicPartition("b", 0))


def test_offsets_look_like_those_of_sparks_kafka_source() -> None:
    offsets = StreamOffsets({A1: 7, A0: 5, B0: 1}, {"a": "id"})
    assert offsets.to_json() == {"a": {"0": 5, "1": 7, "topicId": "id"}, "b": {"0": 1}}


def test_the_same_progress_is_the_same_text() -> None:
    one = StreamOffsets({A10: 1, A0: 5, B0: 2}, {"b": "y", "a": "x"})
    other = StreamOffsets({B0: 2, A0: 5, A10: 1}, {"a": "x", "b": "y"})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json()), "SPK-19"
    assert StreamOffsets.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_topic_with_another_id_was_recreated_in() -> None:
    old, new = StreamOffsets({A0: 5}, {"a": "x"}), StreamOffsets({A0: 5}, {"a": "y"})
    assert old.recreated_in(new) == {"a"}
    assert old.recreated_in(old) == set()
    assert old.recreated_in(StreamOffsets({A0: 5})) == set(), "a broker without topic ids is believed"


def test_a_partition_that_is_not_seen_keeps_its_place_as_long_as_its_topic_is_the_same() -> None:
    start = StreamOffsets({A0: 5, A1: 7, B0: 1}, {"a": "x", "b": "z"})
    seen = StreamOffsets({A0: 6}, {"a": "x"})
    assert seen.with_unseen_of(start) == StreamOffsets({A0: 6, A1: 7}, {"a": "x"})
    recreated = StreamOffsets({A0: 6}, {"a": "y"})
    assert recreated.with_unseen_of(start) == recreated


def test_a_target_is_cut_to_what_is_still_there() -> None:
    target = StreamOffsets({A0: 5, A1: 9, B0: 3}, {"a": "x", "b": "y"})
    assert target.at_most(StreamOffsets({A0: 7, A1: 2}, {"a": "x"})) == StreamOffsets({A0: 5, A1: 2}, {"a": "x"})


@dataclass
class Reported:
    """Like an entry of a query's progress."""

    endOffset: str | None  # noqa: N815 - Spark's name
    latestOffset: str | None  # noqa: N815 - Spark's name


def test_lag_is_what_lies_between_processed_and_latest() -> None:
    end, latest = '{"a": {"0": 5}}', '{"a": {"0": 7, "1": 4, "topicId": "x"}}'
    assert lag_between(end, latest) == {A0: 2, A1: 4}
    assert source_lag(Reported(end, latest)) == 6


def test_lag_is_unknown_when_spark_does_not_say() -> None:
    assert source_lag(Reported(None, '{"a": {"0": 7}}')) is None
    assert source_lag(Reported("12", "12")) is None
    assert source_lag(Reported('"oops"', '{"a": {"0": 7}}')) is None
