"""One broker for all clients, and one more behind a relay that loses answers."""

from collections.abc import Iterator

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.broker.scrape import unexpected_errors
from tests.clients.lossy_proxy import LossyProxy


@pytest.fixture(scope="session")
def broker() -> Iterator[RunningBroker]:
    """Shared: use topics of your own."""
    with RunningBroker() as running:
        yield running
        assert unexpected_errors(running.operations_url) == 0


@pytest.fixture(scope="session")
def servers(broker: RunningBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def lossy() -> Iterator[LossyProxy]:
    proxy = LossyProxy()
    with RunningBroker(advertised=proxy.servers) as running:
        proxy.start(running)
        yield proxy
        proxy.close()
