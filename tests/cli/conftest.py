"""What the end-to-end tests of the command share: a real broker, and the command run against it."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.unit.cli.command_line import Ran
from tests.unit.cli.command_line import martlet as run_martlet

Martlet: TypeAlias = Callable[..., Ran]


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, which commands of the tests would inherit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker() as running:
        yield running


@pytest.fixture
def clean_environment() -> dict[str, str]:
    """The environment without anybody's MARTLET_* or profiles."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MARTLET_")}
    return kept | {"MARTLET_PROFILES": os.devnull}


@pytest.fixture
def martlet(broker: RunningBroker) -> Martlet:
    """Runs `martlet` command lines against the broker, inside this process."""

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        return run_martlet(*arguments, stdin=stdin, environment={"MARTLET_BOOTSTRAP": broker.bootstrap_servers})

    return run
