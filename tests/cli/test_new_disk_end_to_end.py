"""A sole replica whose disk was replaced hands out no offset again until an operator says that the rest is lost."""

import shutil
import time
from pathlib import Path

from martlet.testing.running_broker import RunningBroker
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, describe, publish_values
from tests.unit.cli.command_line import martlet

_NO_LEADER = -1


def _leader(client: RawClient) -> int:
    return describe(client, "orders").partitions[0].leader_id


def _wait_for_leader(client: RawClient) -> int:
    deadline = time.monotonic() + 20
    while (leader := _leader(client)) == _NO_LEADER and time.monotonic() < deadline:
        time.sleep(0.1)
    return leader


def _start(data: Path) -> RunningBroker:
    return RunningBroker(data=str(data), lease_ms=3_000)


def test_a_sole_replica_on_a_new_disk_waits_for_an_operators_word(tmp_path: Path) -> None:
    with _start(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        create_topic(client, name="orders")
        assert publish_values(client, "orders", b"first") == 0
    shutil.rmtree(tmp_path / "broker-1")
    for number in range(2):  # a restart is no word
        with _start(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
            time.sleep(1)
            assert _leader(client) == _NO_LEADER
            create_topic(client, name=f"new-{number}")
            assert publish_values(client, f"new-{number}", b"what is made now is served") == 0
    with _start(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        ran = martlet("partition", "elect", "--unclean", "orders:0", "--yes", "--bootstrap", broker.bootstrap_servers)
        assert ran.exit_code == 0, ran.stderr
        assert _wait_for_leader(client) == 1
        assert publish_values(client, "orders", b"first again") == 0
    with _start(tmp_path) as broker, RawClient(broker.bootstrap_servers) as client:
        assert publish_values(client, "orders", b"goes on") == 1
