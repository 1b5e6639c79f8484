"""A Spark session with the settings that suit Martlet, and the registration of the data source.

Rules: this is the only place that knows Spark's settings by name. A session made otherwise works too, after
`register`.

Why each setting: see `session_settings`. `PYSPARK_PYTHON` decides which Python runs planners and tasks; without it
Spark takes the first `python3` of the path, which need not have Martlet.
"""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from martlet.spark.interpreter import VARIABLE, check_interpreter
from martlet.spark.source import MartletDataSource


def register(spark: SparkSession) -> None:
    """Make `format("martlet")` known in this session, on executors too.

    Raises InterpreterRefused when its workers could not run the format.
    """
    if hasattr(spark, "_sc"):  # a session of Spark Connect has none; the server knows its own interpreter
        check_interpreter(spark.sparkContext.master or "", spark.sparkContext.pythonExec)
    spark.dataSource.register(MartletDataSource)


def session_settings() -> dict[str, str]:
    """The settings of `start_session`, for those who build sessions in another way."""
    return {
        # One time zone for all, so that timestamps in results do not depend on the machine.
        "spark.sql.session.timeZone": "UTC",
        # Lets the batch reader's option pushdown work.
        "spark.sql.python.filterPushdown.enabled": "true",
        # State kept on disk grows beyond the heap. It rules out RawLocalFileSystem, which would halve the time of a
        # small micro-batch: RocksDB's snapshots are copied by a call that needs Hadoop's LocalFileSystem.
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # Planners and workers import a good deal: on a busy machine that takes longer than the usual 15 s.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def start_session(name: str, *, master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session (or the one there is) that knows the format; `settings` win over ours."""
    program = os.environ.setdefault(VARIABLE, sys.executable)
    check_interpreter(master, dict(settings or {}).get("spark.pyspark.python", program))
    builder = SparkSession.builder.appName(name).master(master)
    for setting, value in (session_settings() | dict(settings or {})).items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
