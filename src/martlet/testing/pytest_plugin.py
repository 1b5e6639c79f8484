"""Pytest fixtures that come with Martlet: a real broker for a test or for the whole session.

    def test_orders(martlet_broker):
        producer = Producer({"bootstrap.servers": martlet_broker.bootstrap_servers})

Importing this module must cost nothing, because pytest loads it in every project that has Martlet installed; the
broker is imported by the first test that asks for one.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from martlet.testing.running_broker import RunningBroker


@pytest.fixture
def martlet_broker() -> "Iterator[RunningBroker]":
    """A broker of this test's own, empty at its start and gone at its end."""
    from martlet.testing.running_broker import RunningBroker

    with RunningBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def martlet_broker_session() -> "Iterator[RunningBroker]":
    """One broker for all tests of the session; use topic names of your own."""
    from martlet.testing.running_broker import RunningBroker

    with RunningBroker() as broker:
        yield broker
