"""One broker for all tests of this folder, and the check after each that nothing failed inside it unforeseen."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import RawClient
from tests.broker.scrape import unexpected_errors


@pytest.fixture(scope="session")
def broker() -> Iterator[RunningBroker]:
    """Shared: use topics of your own."""
    with RunningBroker() as running:
        yield running
        assert unexpected_errors(running.operations_url) == 0


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def make_broker() -> Iterator[Callable[..., RunningBroker]]:
    """Starts brokers with settings of the test's own, and stops them after it."""
    started: list[RunningBroker] = []

    def start(**settings: Any) -> RunningBroker:
        started.append(RunningBroker(**settings).start())
        return started[-1]

    yield start
    for running in started:
        running.stop()


@pytest.fixture
def make_process(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts broker processes with settings of the test's own, and stops them after it."""
    started: list[BrokerProcess] = []

    def start(**settings: Any) -> BrokerProcess:
        started.append(BrokerProcess(tmp_path / f"broker-{len(started)}", **settings).start())
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def expects_errors() -> None:
    """Asked for by tests in which the broker is meant to log an error."""


@pytest.fixture(autouse=True)
def no_unforeseen_failure(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a client does, the broker logs no error about itself."""
    yield
    if "expects_errors" not in request.fixturenames:
        records = [*caplog.get_records("call"), *caplog.get_records("setup")]
        errors = [r for r in records if r.levelno >= logging.ERROR and r.name.startswith(("martlet", "asyncio"))]
        assert not errors, [error.getMessage() for error in errors]
