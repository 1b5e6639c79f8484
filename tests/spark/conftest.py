"""One Spark session for all tests of this folder, a broker of each module's own, and topics made on demand."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers.systems.cache import Missing
from bench.spark.connector import connector_jars
from pyspark.sql import SparkSession

from martlet.spark.session import start_session
from martlet.testing.running_broker import RunningBroker
from tests.spark import class_archive
from tests.spark.pipeline_runs import PipelineRuns
from tests.spark.topics import Topics

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "768m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
}


def _missing_connector() -> str | None:
    """Why Spark's own Kafka connector is not at hand; nothing of ours needs it, and `./dev test` fetches it before."""
    try:
        connector_jars(may_fetch=False)
    except Missing as missing:
        return str(missing)
    return None


_MISSING_CONNECTOR = _missing_connector()
collect_ignore = ["test_kafka_connector.py"] if _MISSING_CONNECTOR else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _MISSING_CONNECTOR:
        terminalreporter.write_line(
            f"Left out, without Spark's Kafka connector: {collect_ignore}: {_MISSING_CONNECTOR}"
        )


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> None:
    """Every JVM that a test here starts begins with Spark's classes at hand."""
    os.environ.setdefault(class_archive.VARIABLE, class_archive.java_options())


@pytest.fixture(scope="session")
def spark(quick_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, and tasks that are tried again, unlike plain local[2]."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = start_session(
        "martlet-tests", master="local[2,3]", settings=SETTINGS | {"spark.sql.warehouse.dir": str(warehouse)}
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: RunningBroker) -> Iterator[Topics]:
    with Topics(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A new place for a query's checkpoint."""
    return str(tmp_path / "checkpoint")


@pytest.fixture
def pipelines(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> PipelineRuns:
    """Pipelines run in the session, with a state of this test's own."""
    return PipelineRuns(spark, broker.bootstrap_servers, tmp_path / "state")
