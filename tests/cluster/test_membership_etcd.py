"""Brokers and their etcd: a cluster's life, and what becomes of brokers when etcd is away, another, or unwilling."""

import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from martlet.cli.exit_codes import ExitCode
from tests.cluster.publishing import publish
from tests.cluster.running_cluster import RunningCluster
from tests.stores.etcd_process import EtcdProcess, free_port

_SECONDS_MAX = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(3, directory=tmp_path / "cluster", direct=True) as running:
        yield running


def read_all(cluster: RunningCluster, topic: str, count: int) -> list[int]:
    """That many messages of its only partition."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[int] = []
    deadline = time.monotonic() + _SECONDS_MAX
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(int(message.value() or b""))
    consumer.close()
    return values


def readiness(cluster: RunningCluster, number: int) -> tuple[int, str]:
    url = f"http://{cluster.brokers[number].operations}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def incarnation(cluster: RunningCluster, number: int) -> int:
    identity = cluster.brokers[number].data / f"broker-{number}" / "martlet.identity"
    return int(json.loads(identity.read_text())["incarnation"])


def run_broker(directory: Path, **settings: object) -> "subprocess.CompletedProcess[str]":
    """A broker that is not expected to get far."""
    command = [sys.executable, "-c", "from martlet.cli.main import main; main()", "broker"]
    defaults = {"data": directory, "kafka": "127.0.0.1:0", "operations": "127.0.0.1:0", "lease_ms": 3_000}
    for key, value in (defaults | settings).items():
        command += ["--set", f"{key}={value}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)


@pytest.mark.timeout(240)
def test_a_cluster_outlives_a_kill_and_a_stop_of_every_broker(cluster: RunningCluster) -> None:
    cluster.create_topic("t", partitions=1, replication=3, config={"min.insync.replicas": "2"})
    publish(cluster, "t", range(100))
    sent = 100
    for end in (cluster.kill, cluster.stop):
        for _ in range(2):
            leader = cluster.leader_of("t")
            end(leader)
            publish(cluster, "t", range(sent, sent + 100))
            sent += 100
            cluster.start(leader)
            cluster.wait_in_sync("t")
    assert read_all(cluster, "t", sent) == list(range(sent))
    for number in cluster.brokers:
        cluster.stop(number)
        assert "stopped cleanly" in cluster.brokers[number].tail(3)


@pytest.mark.timeout(240)
def test_brokers_serve_on_when_etcd_is_away_until_their_leases_end_and_come_back_with_it(
    cluster: RunningCluster,
) -> None:
    cluster.create_topic("t", partitions=1, replication=3, config={"min.insync.replicas": "2"})
    before = {number: incarnation(cluster, number) for number in cluster.brokers}
    cluster.etcd.kill()
    killed = time.monotonic()
    publish(cluster, "t", range(10), idempotent=False)
    assert time.monotonic() - killed < cluster.lease_seconds, "this machine is too slow to tell"
    cluster.wait_until(lambda: all(readiness(cluster, number)[0] == 503 for number in cluster.brokers), "the fence")
    assert "lost touch" in readiness(cluster, 1)[1]
    time.sleep(cluster.lease_seconds)
    assert all(broker.is_running for broker in cluster.brokers.values())
    cluster.etcd.start()
    cluster.wait_until(lambda: all(readiness(cluster, number)[0] == 200 for number in cluster.brokers), "their return")
    publish(cluster, "t", range(10, 20))
    assert read_all(cluster, "t", 20) == list(range(20))
    assert {number: incarnation(cluster, number) for number in cluster.brokers} == before, "no broker was restarted"


@pytest.mark.timeout(240)
def test_brokers_end_when_their_etcd_was_recreated_and_keep_their_data(cluster: RunningCluster) -> None:
    cluster.create_topic("t", partitions=1, replication=3)
    publish(cluster, "t", range(10))
    cluster.etcd.kill()
    shutil.rmtree(cluster.directory / "etcd" / "data")
    cluster.etcd.start()
    cluster.wait_until(lambda: not any(b.is_running for b in cluster.brokers.values()), "the end of all brokers")
    for broker in cluster.brokers.values():
        assert "had to stop" in broker.tail(5)
        assert list(broker.log_of("t-0").glob("*.log"))
    refused = run_broker(cluster.brokers[1].data, metadata=f"etcd://127.0.0.1:{cluster.etcd.port}/cluster", broker_id=1)
    assert refused.returncode == ExitCode.CONFLICT
    assert "the metadata store is empty" in refused.stderr
    assert list(cluster.brokers[1].log_of("t-0").glob("*.log"))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("keys", ["everything", "one after the other"])
def test_brokers_end_when_their_metadata_is_deleted_and_keep_their_data(cluster: RunningCluster, keys: str) -> None:
    cluster.create_topic("t", partitions=1, replication=3)
    publish(cluster, "t", range(10))
    if keys == "everything":
        cluster.etcd.delete_everything()
    else:
        cluster.etcd.delete_one_after_the_other()
    cluster.wait_until(lambda: not any(b.is_running for b in cluster.brokers.values()), "the end of all brokers")
    for broker in cluster.brokers.values():
        assert "had to stop" in broker.tail(5)
        assert list(broker.log_of("t-0").glob("*.log")), "no log is touched for what may be a mistake"
    if keys == "everything":
        assert "the metadata of cluster" in cluster.brokers[1].tail(5)


@pytest.mark.timeout(240)
def test_a_second_process_of_a_broker_is_refused_and_learns_where_the_first_one_is(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    metadata = f"etcd://127.0.0.1:{cluster.etcd.port}/cluster"
    refused = run_broker(tmp_path / "elsewhere", metadata=metadata, broker_id=2)
    assert refused.returncode == ExitCode.CONFLICT
    assert f"broker 2 is running already at {cluster.servers_of(2)}" in refused.stderr
    assert cluster.brokers[2].is_running


def test_an_etcd_that_does_not_know_the_user_is_refused_at_once(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd") as etcd:
        etcd.call("/v3/auth/user/add", {"name": "root", "password": "r"})
        etcd.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        etcd.call("/v3/auth/enable", {})
        (tmp_path / "password").write_text("pass-of-etcd-77\n")
        metadata = f"etcd://127.0.0.1:{etcd.port}"
        nameless = run_broker(tmp_path / "one", metadata=metadata)
        refused = run_broker(
            tmp_path / "two", metadata=metadata, metadata_user="root", metadata_password_file=tmp_path / "password"
        )
    assert nameless.returncode == refused.returncode == ExitCode.FAILURE
    assert "it asks for user and password" in nameless.stderr
    assert "check the user and the password" in refused.stderr
    assert "Traceback" not in nameless.stderr + refused.stderr
    assert "pass-of-etcd-77" not in refused.stdout + refused.stderr


def test_a_start_that_waits_for_etcd_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from martlet.cli.main import main; main()", "broker"]
    metadata = f"etcd://127.0.0.1:{free_port()}"
    for key, value in {
        "data": tmp_path,
        "kafka": "127.0.0.1:0",
        "operations": "127.0.0.1:0",
        "metadata": metadata,
        "log_format": "text",
    }.items():
        command += ["--set", f"{key}={value}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "etcd cannot be reached" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    with process.stderr:
        rest = process.stderr.read()
    assert process.wait(30) == ExitCode.OK
    assert "stopped before it served" in rest
