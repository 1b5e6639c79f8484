"""A broker that has lost its cluster, and that clients can reach as before: no client stays with it.

Each library is tried once; `./dev bench lost` does it twenty times on a loaded machine, and says how long it takes.
"""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from bench.lost import SECONDS_MAX, TOPIC, make_topics, measure
from bench.lost_client import WORKS
from confluent_kafka import KafkaException

from tests.cluster.links import STORE, Cut
from tests.cluster.running_cluster import RunningCluster

_SLOW_MACHINE_SECONDS = 8.0
"""Other tests share the machine."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with RunningCluster(brokers=3) as running:
        make_topics(running)
        yield running


@pytest.fixture(autouse=True)
def whole_afterwards(cluster: RunningCluster) -> Iterator[None]:
    yield
    cluster.heal()
    cluster.wait_in_sync(TOPIC)


def ask(cluster: RunningCluster, broker: int, path: str) -> tuple[int, str]:
    """What the operations port says."""
    try:
        with urllib.request.urlopen(f"http://{cluster.brokers[broker].operations}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("library", WORKS)
def test_its_clients_and_new_ones_work_with_the_other_brokers(cluster: RunningCluster, library: str) -> None:
    seconds = measure(cluster, library, TOPIC, library)
    assert len(seconds) == 4
    assert max(seconds.values()) < SECONDS_MAX + _SLOW_MACHINE_SECONDS, seconds


def test_it_takes_no_clients_says_why_and_is_not_listed_until_it_is_back(cluster: RunningCluster) -> None:
    lost = cluster.leader_of(TOPIC)
    others = [number for number in cluster.brokers if number != lost]
    cluster.links.cut(lost, STORE, Cut.SILENT)

    def listed() -> set[int]:
        return {broker for number in others for broker in cluster.metadata(from_broker=number).brokers}

    def leaders() -> set[int]:
        return {cluster.metadata(TOPIC, from_broker=n).topics[TOPIC].partitions[0].leader for n in others}

    cluster.wait_until(lambda: leaders() <= set(others), "another leader")
    assert listed() == set(others), "who connects now never hears of it"
    with pytest.raises(KafkaException):
        cluster.metadata(from_broker=lost)
    assert ask(cluster, lost, "/healthz") == (200, "ok\n")
    assert ask(cluster, lost, "/readyz") == (503, "not ready: the broker has lost touch with the metadata store\n")
    metrics = ask(cluster, lost, "/metrics")[1]
    assert "martlet_fenced 1.0" in metrics
    assert 'martlet_connections_dropped_total{reason="lost_cluster"}' in metrics
    assert "martlet_connections 0.0" in metrics
    cluster.heal()
    cluster.wait_until(lambda: set(cluster.metadata(from_broker=lost).brokers) == set(cluster.brokers), "it to be back")
    assert ask(cluster, lost, "/readyz")[0] == 200
    said = cluster.brokers[lost].output.read_text()
    assert "connections are closed and no others taken" in said
    assert "clients are welcome again" in said
