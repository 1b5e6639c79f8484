"""One broker for all clients, and one more behind a relay that loses answers."""

import warnings
from collections.abc import Iterator

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.broker.scrape import unexpected_errors
from tests.clients.lossy_proxy import LossyProxy

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way Python deprecates; here warnings are errors.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # type: ignore[import-untyped]  # noqa: F401


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
