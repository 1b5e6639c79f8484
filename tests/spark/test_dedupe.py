"""Repeats are left out, within a batch and between batches."""

from tests.spark.pipeline_runs import PipelineRuns
from tests.spark.topics import Message, Topics


def test_only_the_first_of_equal_messages_goes_on_also_between_batches_and_runs(
    topics: Topics, pipelines: PipelineRuns
) -> None:
    topic, unique = topics.new(partitions=2), topics.new()
    payment = [
        Message(f'{{"id": "{number % 10}", "try": {number}}}'.encode(), b"k", number % 2) for number in range(30)
    ]
    topics.publish(topic, [*payment, Message(b"no id", partition=0), Message(b"no id", partition=1)])
    pipelines.finish("dedupe", topic=topic, to=unique, by="$.id", messages_per_batch=7)
    # An old message is no reason to lose it, and no reason to let a repeat pass.
    topics.publish(topic, [*payment[:5], Message(b'{"id": "old"}', partition=1, timestamp_ms=1_000)])
    pipelines.finish("dedupe", topic=topic, to=unique, by="$.id")
    values = [value or b"" for value in topics.values(unique)]
    assert sorted(value[:10] for value in values if value[:1] == b"{") == [
        *(f'{{"id": "{n}"'.encode() for n in range(10)),
        b'{"id": "ol',
    ]
    assert values.count(b"no id") == 2


def test_messages_can_be_compared_by_value(topics: Topics, pipelines: PipelineRuns) -> None:
    topic, unique = topics.new(), topics.new()
    topics.publish(topic, [Message(b"a"), Message(b"b"), Message(b"a"), Message(None), Message(None)])
    pipelines.finish("dedupe", topic=topic, to=unique)
    assert sorted(topics.values(unique), key=str) == [None, None, b"a", b"b"]
