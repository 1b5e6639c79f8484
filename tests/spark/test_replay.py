"""The way back from an archive into a topic."""

import json
from datetime import UTC, datetime
from pathlib import Path

from martlet.spark.pipelines.status import RunState
from tests.spark.pipeline_runs import PipelineRuns
from tests.spark.topics import Message, Topics

NOON_MS = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
HOUR_MS = 3_600_000


def hourly(count: int) -> list[Message]:
    """A message an hour, in two partitions."""
    return [
        Message(
            json.dumps({"number": number}).encode(),
            f"key-{number % 7}".encode(),
            number % 2,
            NOON_MS + number * HOUR_MS,
            [("number", str(number).encode())],
        )
        for number in range(count)
    ]


def test_a_replay_takes_a_time_range_and_a_filter_and_keeps_what_a_message_had(
    topics: Topics, pipelines: PipelineRuns, tmp_path: Path
) -> None:
    topic, again, path = topics.new(partitions=2), topics.new(partitions=2), tmp_path / "archive"
    messages = hourly(72)
    topics.publish(topic, messages)
    pipelines.finish("archive", topic=topic, to=str(path))
    status = pipelines.finish(
        "replay",
        archive=str(path),
        to=again,
        since="2026-03-02T00:00",
        until="2026-03-03T12:00Z",
        where="get_json_object(string(value), '$.number') % 3 = 0",
        keep_partitions=True,
        keep_time=True,
    )
    expected = [messages[number] for number in range(12, 48) if number % 3 == 0]
    assert status.flows[0].rows == len(expected)
    assert topics.contents(again) == {
        partition: [message for message in expected if message.partition == partition] for partition in (0, 1)
    }


def test_a_replay_of_what_is_no_archive_says_so(pipelines: PipelineRuns, tmp_path: Path) -> None:
    from martlet.spark.pipelines.catalogue import READY, ReplayOptions

    options = ReplayOptions(archive=str(tmp_path / "nothing"), to="again")
    status = pipelines.run("replay", lambda run: READY["replay"].start(run, options))
    assert status.state is RunState.FAILED
    assert "is no archive; `martlet pipeline run archive --to" in str(status.last_error)
