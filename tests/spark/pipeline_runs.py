"""Pipelines run in the tests' own Spark session, from their options to their last status."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from martlet.spark.pipelines.catalogue import READY
from martlet.spark.pipelines.flows import PipelineRun, RunOptions
from martlet.spark.pipelines.state_directory import RunDirectory
from martlet.spark.pipelines.status import RunState, RunStatus
from martlet.spark.pipelines.supervisor import Runner


class PipelineRuns:
    """Runs with their state in one directory, on one broker."""

    def __init__(self, spark: SparkSession, bootstrap: str, state: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.state = state

    def directory(self, name: str) -> RunDirectory:
        return RunDirectory(str(self.state), name)

    def finish(self, name: str, *, messages_per_batch: int | None = None, **options: Any) -> RunStatus:
        """A ready pipeline over all there is now; fails unless it finishes."""
        pipeline = READY[name]
        status = self.run(
            name,
            lambda run: pipeline.start(run, pipeline.options(**options)),
            until_end=True,
            messages_per_batch=messages_per_batch,
        )
        assert status.state is RunState.FINISHED, status.last_error
        return status

    def run(
        self,
        name: str,
        define: Callable[[PipelineRun], None],
        *,
        tell: Callable[[RunStatus], None] = lambda status: None,
        **options: Any,
    ) -> RunStatus:
        """Any pipeline until it ends, however it does."""
        directory = self.directory(name)
        chosen = RunOptions(bootstrap=self.bootstrap, group=name, starting={"startingOffsets": "earliest"}, **options)
        status = RunStatus(name, name, RunState.STARTING, 0, "local[2,3]", 0, 0)
        with directory.hold():
            run = PipelineRun(self.spark, directory, chosen)
            define(run)
            return Runner(run, directory, status, tell).run_to_end()


def forget(commits: Path, batch: int) -> None:
    """Remove a batch from a checkpoint's list of those that are done, with the checksum that Spark keeps beside it."""
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink(missing_ok=True)
