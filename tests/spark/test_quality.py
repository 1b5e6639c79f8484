"""What passes goes on unchanged; what fails is in quarantine with every reason."""

import json

from martlet.spark.pipelines.quality import REASON, SOURCE
from tests.spark.pipeline_runs import PipelineRuns
from tests.spark.topics import Message, Topics

COLUMNS = "id long not null, amount double, tags array<string>"
RULES = ("positive=amount > 0", "tagged=size(tags) > 0")


def reasons(message: Message) -> list[str]:
    return [(value or b"").decode() for name, value in message.headers if name == REASON]


def test_messages_that_fail_are_in_quarantine_with_all_reasons_and_the_rest_goes_on(
    topics: Topics, pipelines: PipelineRuns
) -> None:
    topic, passed, quarantine = topics.new(), topics.new(), topics.new()
    good = Message(b'{"id": 1, "amount": 2.5, "tags": ["a"]}', b"key-1", headers=[("from", b"till-3")])
    bad = {
        b"not json": ["the value is not a JSON object"],
        b'{"amount": 1.0, "tags": ["a"]}': ["id: is missing"],
        b'{"id": "x7", "amount": "much", "tags": ["a"]}': [
            "id: x7 is not bigint",
            "amount: much is not double",
            "positive: amount > 0",
        ],
        b'{"id": 4, "amount": -1, "tags": []}': ["positive: amount > 0", "tagged: size(tags) > 0"],
    }
    topics.publish(topic, [good, *(Message(value, b"bad", headers=[("from", b"x")]) for value in bad)])
    pipelines.finish("quality", topic=topic, to=passed, quarantine=quarantine, columns=COLUMNS, rule=RULES)
    (went_on,) = topics.contents(passed)[0]
    assert went_on._replace(timestamp_ms=None) == good
    found = {message.value: message for message in topics.contents(quarantine)[0]}
    assert {value: reasons(message) for value, message in found.items()} == bad
    assert all(message.key == b"bad" for message in found.values())
    places = {value: dict(message.headers)[SOURCE] for value, message in found.items()}
    assert places == {value: f"{topic}/0/{at}".encode() for at, value in enumerate(bad, start=1)}


def test_a_field_may_be_called_like_a_column_of_messages(topics: Topics, pipelines: PipelineRuns) -> None:
    topic, passed, quarantine = topics.new(), topics.new(), topics.new()
    values = [json.dumps({"offset": number, "key": "k"}).encode() for number in (5, 50)]
    topics.publish(topic, [Message(value) for value in values])
    pipelines.finish(
        "quality",
        topic=topic,
        to=passed,
        quarantine=quarantine,
        columns="offset int, key string",
        rule=("low=offset < 9",),
    )
    assert topics.values(passed) == values[:1]
    assert topics.values(quarantine) == values[1:]
