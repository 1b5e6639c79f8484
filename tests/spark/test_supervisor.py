"""The runner: stops between batches, starts again what failed on the way, and says what is wrong in one sentence."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from martlet.base.ids import TopicPartition
from martlet.spark.pipelines.flows import BatchOfRows, PipelineRun
from martlet.spark.pipelines.state_directory import RunDirectory
from martlet.spark.pipelines.status import RunState, RunStatus
from martlet.spark.pipelines.user_flow import PipelineFileError, load_flows, start_flows
from tests.spark.pipeline_runs import PipelineRuns
from tests.spark.topics import Message, Topics

TRY_SECONDS = 0.2


class StopAfter:
    """Asks a run to stop once it has processed this many rows, and keeps every status."""

    def __init__(self, directory: RunDirectory, rows: int) -> None:
        self.statuses: list[RunStatus] = []
        self._directory = directory
        self._rows = rows

    def __call__(self, status: RunStatus) -> None:
        self.statuses.append(status)
        if status.flows and status.flows[0].rows >= self._rows:
            self._directory.ask_to_stop()


def copy_to(target: str, source: str) -> Callable[[PipelineRun], None]:
    """One topic into another."""

    def define(run: PipelineRun) -> None:
        run.write_topic(run.read_stream(source), target, name="copy")

    return define


def test_a_stopped_run_ends_between_batches_and_the_next_one_goes_on_without_loss_or_repeats(
    topics: Topics, pipelines: PipelineRuns
) -> None:
    source, target = topics.new(partitions=2), topics.new()
    topics.fill(source, 1000, partitions=2)
    stopping = StopAfter(pipelines.directory("copy"), 200)
    first = pipelines.run("copy", copy_to(target, source), tell=stopping, messages_per_batch=100)
    assert first.state is RunState.STOPPED
    assert [status.state for status in stopping.statuses][-2:] == [RunState.STOPPING, RunState.STOPPED]
    copied = len(topics.values(target))
    assert copied == first.flows[0].rows
    assert 200 <= copied < 1000
    assert first.flows[0].lag_messages == 1000 - copied
    lags = [lag or 0 for partition, lag in topics.group_lag("copy").items() if partition.topic == source]
    assert sum(lags) == 1000 - copied
    pipelines.run("copy", copy_to(target, source), until_end=True)
    assert sorted(topics.values(target), key=str) == sorted(topics.values(source), key=str)


def test_a_run_with_an_interval_stops_at_once_between_two_triggers(topics: Topics, pipelines: PipelineRuns) -> None:
    source, target = topics.new(), topics.new()
    topics.fill(source, 10)
    stopping = StopAfter(pipelines.directory("copy"), 10)
    status = pipelines.run("copy", copy_to(target, source), tell=stopping, every_seconds=3600)
    assert (status.state, status.flows[0].rows, status.flows[0].lag_messages) == (RunState.STOPPED, 10, 0)


def test_a_flow_that_fails_on_the_way_is_started_again_from_its_checkpoint(
    topics: Topics, pipelines: PipelineRuns, tmp_path: Path
) -> None:
    source = topics.new()
    topics.fill(source, 30)
    seen: list[int] = []

    def define(run: PipelineRun) -> None:
        def take(batch: BatchOfRows) -> None:
            if batch.number == 1 and not (tmp_path / "failed").exists():
                (tmp_path / "failed").touch()
                raise RuntimeError("the broker is away")
            seen.extend(row["offset"] for row in batch.rows.select("offset").collect())

        run.write_batches(run.read_stream(source), take, name="take")

    status = pipelines.run("take", define, until_end=True, messages_per_batch=10)
    assert status.state is RunState.FINISHED
    assert (status.flows[0].restarts, status.last_error) == (1, "RuntimeError: the broker is away")
    assert sorted(seen) == list(range(30))


def test_a_flow_that_fails_at_its_start_ends_the_run_with_the_words_of_the_error(
    topics: Topics, pipelines: PipelineRuns
) -> None:
    status = pipelines.run("copy", copy_to("target", "no-such-topic"), until_end=True)
    assert status.state is RunState.FAILED
    assert "no-such-topic" in str(status.last_error)
    assert "\n" not in str(status.last_error)
    assert pipelines.directory("copy").read_status() == status


def test_flows_of_a_users_file_run_with_their_parameters(
    topics: Topics, pipelines: PipelineRuns, tmp_path: Path
) -> None:
    source, long, short = topics.new(), topics.new(), topics.new()
    file = tmp_path / "split.py"
    file.write_text(
        f"""
from pyspark.sql.functions import length, udf
from martlet.spark.pipelines import flow

@udf("string")
def shout(value):
    return plain(value)

def plain(value):
    return bytes(value).decode().upper()

@flow(reads="{source}", writes="{long}")
def long(messages, limit=3):
    return messages.where(length("value") > limit).withColumn("value", shout("value"))

@flow(reads="{source}", writes="{short}")
def short(messages, limit=3):
    return messages.where(length("value") <= limit)
""",
        "utf-8",
    )
    topics.publish(source, [Message(b"a"), Message(b"abcd"), Message(b"abcdef")])
    flows = load_flows(str(file))
    status = pipelines.run("split", lambda run: start_flows(run, flows, {"limit": "5"}), until_end=True)
    assert [flow.lag_messages for flow in status.flows] == [0, 0]
    assert [flow.name for flow in status.flows] == ["long", "short"]
    assert topics.values(long) == [b"ABCDEF"]
    assert topics.values(short) == [b"a", b"abcd"]


def test_two_flows_on_one_topic_keep_their_places_in_groups_of_their_own(
    topics: Topics, pipelines: PipelineRuns, tmp_path: Path
) -> None:
    source, target = topics.new(), topics.new()
    topics.fill(source, 30)
    file = tmp_path / "both.py"
    flow = """
@flow(reads="{source}", writes="{target}")
def {name}(messages):
    return messages
"""
    head = "from martlet.spark.pipelines import flow\n"
    file.write_text(head + flow.format(source=source, target=target, name="first"), "utf-8")
    pipelines.run("both", lambda run: start_flows(run, load_flows(str(file)), {}), until_end=True)
    topics.fill(source, 5, first=30)
    file.write_text(head + flow.format(source=source, target=target, name="second"), "utf-8")
    status = pipelines.run("both", lambda run: start_flows(run, load_flows(str(file)), {}), until_end=True)
    place = TopicPartition(source, 0)
    assert (topics.group_lag("both.first"), topics.group_lag("both.second")) == ({place: 5}, {place: 0})
    assert [flow.lag_messages for flow in status.flows] == [0]


def test_maintenance_that_fails_unforeseen_is_reported_and_does_not_end_the_run(
    topics: Topics, pipelines: PipelineRuns, tmp_path: Path
) -> None:
    source = topics.new()
    topics.fill(source, 3)

    def define(run: PipelineRun) -> None:
        def maintenance() -> None:
            raise ValueError("a file is broken")

        run.write_lake(run.read_stream(source).select("value"), str(tmp_path / "table"), maintenance=maintenance)

    status = pipelines.run("keep", define, until_end=True)
    assert (status.state, status.flows[0].rows) == (RunState.FINISHED, 3)
    assert status.last_error == "ValueError: a file is broken"


def test_a_flow_whose_function_has_a_mistake_is_reported_with_its_line(
    topics: Topics, pipelines: PipelineRuns, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        f"""
from martlet.spark.pipelines import flow

@flow(reads="{topics.new()}", writes="target")
def wrong(messages):
    return messages.where(nonsense)
""",
        "utf-8",
    )
    with pytest.raises(PipelineFileError, match=r"wrong.py, line 6: NameError: name 'nonsense' is not defined"):
        pipelines.run("wrong", lambda run: start_flows(run, load_flows(str(file)), {}), until_end=True)


def test_work_that_fails_in_an_unforeseen_way_ends_the_run_as_failed(pipelines: PipelineRuns) -> None:
    def work() -> int:
        raise ValueError("a file is broken")

    status = pipelines.run("work", lambda run: run.do_batch(work, name="work"))
    assert (status.state, status.last_error) == (RunState.FAILED, "ValueError: a file is broken")
    assert pipelines.directory("work").read_status() == status


def test_a_run_that_was_asked_to_stop_while_it_waits_for_messages_ends(topics: Topics, pipelines: PipelineRuns) -> None:
    source, target = topics.new(), topics.new()
    directory = pipelines.directory("copy")
    running = threading.Event()

    def tell(status: RunStatus) -> None:
        if status.state is RunState.RUNNING and not running.is_set():
            running.set()
            threading.Timer(TRY_SECONDS, directory.ask_to_stop).start()

    status = pipelines.run("copy", copy_to(target, source), tell=tell)
    assert (status.state, status.flows[0].rows) == (RunState.STOPPED, 0)
