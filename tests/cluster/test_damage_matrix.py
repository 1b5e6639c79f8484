"""The damage matrix on one of three copies: each cell of the table happens to a topic of its own, all on one broker.

All brokers end, the disk of one suffers, all start again: it leads a third of the topics, if it is found complete. No
broker ends by itself, and without an operator every message can be read in the end and all copies are alike. Meanwhile
nothing wrong is served, nor anything skipped.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from bench.chaos.replicas import difference

from martlet.base.errors import ErrorCode
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch_of, new_producer_id, publish
from tests.cluster.running_cluster import RunningCluster
from tests.damage.cells import CELLS
from tests.damage.judge import Refused, Truth, batches_in
from tests.damage.topics import (
    LedElsewhere,
    MatrixTopic,
    create_topics,
    publish_rounds,
    publish_start,
    read_committed,
    read_from,
    wait_until_noted,
)

_DAMAGED = 2
_HEALED_SECONDS_MAX = 60.0


@contextmanager
def _clients(cluster: RunningCluster) -> Iterator[dict[int, RawClient]]:
    with ExitStack() as stack:
        yield {number: stack.enter_context(RawClient(cluster.servers_of(number))) for number in cluster.brokers}


def _led_by(cluster: RunningCluster, topics: Sequence[MatrixTopic]) -> dict[int, list[MatrixTopic]]:
    found: dict[int, list[MatrixTopic]] = {number: [] for number in cluster.brokers}
    described = cluster.metadata().topics
    for topic in topics:
        leader = described[topic.name].partitions[0].leader
        if leader in found:
            found[leader].append(topic)
    return found


def _publish(cluster: RunningCluster, topics: list[MatrixTopic], producer_id: int, start: int) -> None:
    def to_leaders(topics: Sequence[MatrixTopic], rounds: int) -> None:
        for number, led in _led_by(cluster, topics).items():
            publish_rounds(clients[number], led, producer_id, rounds)

    with _clients(cluster) as clients:
        publish_start(cluster.bootstrap_servers, topics, start, to_leaders)


def _wait_in_sync(cluster: RunningCluster, topics: list[MatrixTopic]) -> None:
    def are_in_sync() -> bool:
        described = cluster.metadata().topics
        return all(len(described[topic.name].partitions[0].isrs) == len(cluster.brokers) for topic in topics)

    cluster.wait_until(are_in_sync, "all copies to be in sync")


def _end_all(cluster: RunningCluster, ending: str) -> None:
    # The one to be damaged last: it alone may be in sync then, and the others are eligible because that is too few.
    for number in sorted(cluster.brokers, key=lambda number: number == _DAMAGED):
        getattr(cluster, ending)(number)


def _start_all(cluster: RunningCluster) -> None:
    for number in cluster.brokers:
        cluster.start(number, wait=False)
    cluster.wait_until_all_serve()


def _filled(cluster: RunningCluster, topics: list[MatrixTopic], ending: str) -> None:
    with _clients(cluster) as clients:
        create_topics(clients[1], topics, replication=3)
        producer_id = new_producer_id(clients[1])
    _wait_in_sync(cluster, topics)
    _publish(cluster, topics, producer_id, 0)
    _end_all(cluster, "stop")
    _start_all(cluster)
    _wait_in_sync(cluster, topics)
    _publish(cluster, topics, producer_id, 1)
    _wait_in_sync(cluster, topics)
    for number in cluster.brokers:
        wait_until_noted(cluster.brokers[number].log_of(""), topics)
    _end_all(cluster, ending)


def _harm(cluster: RunningCluster, topics: list[MatrixTopic], *, is_clean: bool) -> None:
    for topic in topics:
        logs = _copies(cluster, topic)
        topic.truth = Truth(batches_in(logs[_DAMAGED]))
        assert difference(topic.name, logs) is None
        topic.hurt = topic.cell.harm(logs[_DAMAGED], is_clean)


def _copies(cluster: RunningCluster, topic: MatrixTopic) -> dict[int, Path]:
    return {number: broker.log_of(f"{topic.name}-0") for number, broker in cluster.brokers.items()}


def _is_all_there(client: RawClient, topic: MatrixTopic) -> bool:
    """Whether all of a topic can be read now; fails when anything that is served is wrong."""

    def read(read_with: Callable[[RawClient, MatrixTopic, int], bytes], offset: int) -> bytes:
        try:
            return read_with(client, topic, offset)
        except Refused as refused:
            raise _NotYet from refused

    try:
        return not any(topic.truth.refused(partial(read, read_with)) for read_with in (read_from, read_committed))
    except (_NotYet, LedElsewhere):
        return False


class _NotYet(Exception):
    """Read again later."""


def _judge(cluster: RunningCluster, topics: list[MatrixTopic]) -> list[str]:
    """Read and publish until all is well, or it has taken too long."""
    faults: list[str] = []
    pending, deadline = list(topics), time.monotonic() + _HEALED_SECONDS_MAX
    with _clients(cluster) as clients:
        while pending and time.monotonic() < deadline:
            for number, led in _led_by(cluster, pending).items():
                for topic in led:
                    try:
                        if _is_all_there(clients[number], topic) and _takes_more(clients[number], topic):
                            pending.remove(topic)
                    except AssertionError as error:
                        faults.append(f"{topic.cell.name}: {error}")
                        pending.remove(topic)
            time.sleep(0.1)
    faults += [f"{topic.cell.name}: not all can be read" for topic in pending]
    while (unlike := _unlike(cluster, topics)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return faults + unlike


def _takes_more(client: RawClient, topic: MatrixTopic) -> bool:
    result = publish(client, topic.name, batch_of(b"new", key=b"k"))
    if result.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return False
    assert result.error_code == ErrorCode.NONE, ErrorCode(result.error_code).name
    # What was refused with such an error may have been stored all the same.
    assert result.base_offset >= topic.truth.end_offset
    return True


def _unlike(cluster: RunningCluster, topics: list[MatrixTopic]) -> list[str]:
    found = []
    for topic in topics:
        try:
            text = difference(topic.name, _copies(cluster, topic))
        except OSError as error:
            text = str(error)
        found += [f"{topic.cell.name}: {text}"] if text else []
    return found


@pytest.mark.timeout(400)
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_one_damaged_copy_of_three_is_made_whole_by_the_others(ending: str) -> None:
    cells = [cell for cell in CELLS if not cell.config]  # each broker compacts its copy when it likes
    topics = [MatrixTopic(cell, f"cell-{number:03d}") for number, cell in enumerate(cells)]
    with RunningCluster(3, direct=True, checkpoint_interval_ms=50) as cluster:
        _filled(cluster, topics, ending)
        _harm(cluster, topics, is_clean=ending == "stop")
        _start_all(cluster)
        processes = {number: broker.process_id for number, broker in cluster.brokers.items()}
        faults = _judge(cluster, topics)
        assert not faults, "\n" + "\n".join(faults)
        assert {number: broker.process_id for number, broker in cluster.brokers.items()} == processes
