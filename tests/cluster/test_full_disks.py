"""A broker whose disk fills up while others have space: what it leads is led elsewhere, and what it copies waits.

It needs a file system so small that it can be filled, which only a process that may mount one can have. Where it may
not, `tests/unit/broker/test_full_disks.py` shows the same in the simulator.
"""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from bench.chaos.replicas import differences
from confluent_kafka import Producer

from tests.broker.small_disk import MEBIBYTE, fill, may_mount, mounted
from tests.cluster.running_cluster import RunningCluster

_PARTITIONS = 6
_RESERVE = 8 * MEBIBYTE
_OTHER_FILES = MEBIBYTE
"""What belongs to no message takes from the reserve: indexes, checkpoints."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "cluster" / "broker-1" / "data", mebibytes=32) as place:
        yield place


@pytest.fixture
def cluster(tmp_path: Path, small_disk: Path) -> Iterator[RunningCluster]:
    """Broker 1 has the small disk; what the others have does not count."""
    own = {1: {"disk_reserve_bytes": _RESERVE}}
    with RunningCluster(3, directory=tmp_path / "cluster", direct=True, own_settings=own) as running:
        assert running.brokers[1].data == small_disk
        yield running


def topic_with_all_in_sync(cluster: RunningCluster) -> str:
    cluster.create_topic("orders", partitions=_PARTITIONS, replication=3, config={"min.insync.replicas": "2"})
    assert 1 in leaders(cluster)
    return "orders"


def leaders(cluster: RunningCluster) -> set[int]:
    return {one.leader for one in cluster.metadata("orders", from_broker=2).topics["orders"].partitions.values()}


class Publishing:
    """Messages to every partition in turn, as fast as they are taken; every one is waited for in the end."""

    def __init__(self, cluster: RunningCluster, message_bytes: int) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({**settings, "message.timeout.ms": 60_000, "queue.buffering.max.kbytes": 4_096})
        self._message = bytes(message_bytes)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._publish)
        self.acknowledged = [0] * _PARTITIONS
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _publish(self) -> None:
        number = 0
        while not self._ended.is_set():
            try:
                self._producer.produce("orders", self._message, partition=number, on_delivery=self._delivered)
                number = (number + 1) % _PARTITIONS
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0)
            self._ended.wait(0.001)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged[message.partition()] += 1  # type: ignore[attr-defined]

    def goes_on(self, cluster: RunningCluster, seconds: float) -> None:
        """Wait until every partition has taken something more."""
        before = list(self.acknowledged)
        cluster.wait_until(
            lambda: all(now > then for now, then in zip(self.acknowledged, before, strict=True)),
            "something to be published to every partition",
            seconds=seconds,
        )


if may_mount():

    def test_what_a_full_broker_leads_goes_on_elsewhere_and_the_broker_comes_back_by_itself(
        cluster: RunningCluster, small_disk: Path
    ) -> None:
        topic = topic_with_all_in_sync(cluster)
        with Publishing(cluster, message_bytes=100) as publishing:
            publishing.goes_on(cluster, seconds=30)
            fill(small_disk / "filler", leave_bytes=MEBIBYTE)
            cluster.wait_until(lambda: leaders(cluster) == {2, 3}, "others to lead", seconds=15)
            publishing.goes_on(cluster, seconds=15)
            (small_disk / "filler").unlink()
            cluster.wait_in_sync(topic)
        assert publishing.errors == []
        cluster.wait_in_sync(topic)
        assert differences(cluster, topic, _PARTITIONS) == []

    def test_messages_never_take_the_reserve_of_a_leader_or_follower_and_publishing_goes_on(
        cluster: RunningCluster, small_disk: Path
    ) -> None:
        topic_with_all_in_sync(cluster)
        with Publishing(cluster, message_bytes=50_000) as publishing:
            cluster.wait_until(lambda: leaders(cluster) == {2, 3}, "the disk to be full", seconds=60)
            publishing.goes_on(cluster, seconds=15)
            publishing.goes_on(cluster, seconds=15)
        assert publishing.errors == []
        assert shutil.disk_usage(small_disk).free >= _RESERVE - _OTHER_FILES
