"""One fault at a time on a real cluster: what a client may see of it, and what it may never see.

All tests share a cluster and leave it whole. The faults in every combination are in `test_chaos.py`.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.batches import build_values_batch
from bench.chaos.clients import EpochWatch
from bench.chaos.replicas import differences
from bench.failover import SteadyPublisher, longest_pause
from bench.wire_client import RequestRefused, WireClient
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition

from martlet.base.errors import ErrorCode
from tests.cluster.links import CLIENTS, STORE, Cut
from tests.cluster.publishing import publish
from tests.cluster.running_cluster import RunningCluster

_AFTER_LEASE_SECONDS = 2.0
_SLOW_MACHINE_SECONDS = 8.0
"""Other tests share the machine; the exact figures come from `./dev bench failover`."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    racks = {number: {"rack": f"rack-{number}"} for number in (1, 2, 3)}
    with RunningCluster(3, directory=tmp_path_factory.mktemp("cluster"), own_settings=racks) as running:
        yield running


@pytest.fixture
def topic(cluster: RunningCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.removeprefix("test_")[:60]
    cluster.create_topic(name, partitions=1, replication=3, config={"min.insync.replicas": "2"})
    yield name
    cluster.heal(deliver=False)
    for number, broker in cluster.brokers.items():
        if not broker.is_running:
            cluster.start(number)
    cluster.wait_in_sync(name)


def wire_client(cluster: RunningCluster, number: int, seconds: float = 30) -> WireClient:
    return WireClient(int(cluster.servers_of(number).rpartition(":")[2]), timeout_seconds=seconds)


def is_refused(client: WireClient, topic: str, value: bytes) -> bool:
    """Whether a publish is answered with "not the leader", or by the end of the connection."""
    try:
        result = client.publish(topic, 0, build_values_batch([value]), timeout_ms=2_000)
    except OSError:
        return True
    return result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def new_leader(cluster: RunningCluster, topic: str, old: int) -> int:
    """Wait until the other brokers know of another leader."""
    others = [number for number in cluster.brokers if number != old]

    found: set[int] = set()

    def agree() -> bool:
        answers = [cluster.metadata(topic, from_broker=number).topics[topic].partitions[0] for number in others]
        found.clear()
        found.update(int(one.leader) for one in answers)
        return len(found) == 1 and not found & {old, -1}

    # What was answered then counts: a client may ask any broker, and one that is cut off knows less.
    cluster.wait_until(agree, f"another leader than {old}")
    return found.pop()


def test_a_killed_leader_is_replaced_and_nothing_is_lost(cluster: RunningCluster, topic: str) -> None:
    assert publish(cluster, topic, 100) == list(range(100))
    old = cluster.leader_of(topic)
    killed_at = time.monotonic()
    cluster.kill(old)
    new = new_leader(cluster, topic, old)
    seconds = time.monotonic() - killed_at
    assert new != old
    assert seconds < cluster.lease_seconds + _AFTER_LEASE_SECONDS + _SLOW_MACHINE_SECONDS
    assert publish(cluster, topic, 10) == list(range(100, 110))
    cluster.start(old)
    cluster.wait_in_sync(topic)
    assert differences(cluster, topic, 1) == []


def test_a_clean_stop_hands_the_leadership_over_first(cluster: RunningCluster, topic: str) -> None:
    publish(cluster, topic, 10)
    old = cluster.leader_of(topic)
    cluster.stop(old)
    others = [number for number in cluster.brokers if number != old]
    found = {cluster.metadata(topic, from_broker=n).topics[topic].partitions[0].leader for n in others}
    # No lease had to run out: the others know of the new leader as soon as the process has ended.
    assert old not in found
    assert -1 not in found
    assert publish(cluster, topic, 10) == list(range(10, 20))


def test_a_clean_stop_of_a_leader_is_no_error_and_no_long_pause_for_a_producer(
    cluster: RunningCluster, topic: str
) -> None:
    with SteadyPublisher(cluster.bootstrap_servers, topic) as publisher:
        begun_at = time.perf_counter()
        cluster.stop(cluster.leader_of(topic))
        publisher.wait_for_news(time.perf_counter())
        assert publisher.errors == []
        # Less than a lease: no client had to wait until one ran out. The exact figure is the benchmark's.
        assert longest_pause(publisher.times_after(begun_at)) < cluster.lease_seconds


def test_a_leader_that_stops_says_so_to_its_producers_before_it_closes_their_connections(
    cluster: RunningCluster, topic: str
) -> None:
    old = cluster.leader_of(topic)
    with wire_client(cluster, old) as client:
        client.topic(topic)
        cluster.brokers[old].ask_to_stop()
        while not (error := client.publish(topic, 0, build_values_batch([b"message"])).error_code):
            time.sleep(0.005)
    cluster.stop(old)
    assert ErrorCode(error) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_was_replaced_while_paused_acknowledges_nothing(cluster: RunningCluster, topic: str) -> None:
    publish(cluster, topic, 10)
    old = cluster.leader_of(topic)
    results: list[bool] = []
    with wire_client(cluster, old) as client:
        info = client.topic(topic)
        assert client.publish(topic, 0, build_values_batch([b"before"])).error_code == 0
        cluster.pause(old)
        thread = threading.Thread(target=lambda: results.append(is_refused(client, topic, b"zombie")))
        thread.start()
        new_leader(cluster, topic, old)
        assert publish(cluster, topic, 10) == list(range(11, 21))
        cluster.resume(old)
        thread.join(30)
        assert results == [True]
        # By now it may follow, and answer as a follower does; but never from a log of its own.
        with wire_client(cluster, old) as reader, contextlib.suppress(RequestRefused):
            assert b"zombie" not in bytes(reader.fetch(info, 0, 11, max_bytes=1 << 20).records)
    cluster.wait_in_sync(topic)
    assert differences(cluster, topic, 1) == []


def test_a_leader_cut_off_from_everybody_but_a_client_acknowledges_nothing(cluster: RunningCluster, topic: str) -> None:
    publish(cluster, topic, 10)
    old = cluster.leader_of(topic)
    with wire_client(cluster, old) as client:
        client.topic(topic)
        cluster.isolate(old, Cut.SILENT)
        result = client.publish(topic, 0, build_values_batch([b"into the void"]), timeout_ms=2_000)
        assert result.error_code != 0
        new_leader(cluster, topic, old)
        publish(cluster, topic, 10, servers=cluster.servers_of(*(one for one in cluster.brokers if one != old)))
        assert is_refused(client, topic, b"into the void")
    cluster.heal()
    cluster.wait_in_sync(topic)
    assert differences(cluster, topic, 1) == []


def test_a_broker_with_an_empty_disk_gets_everything_back(cluster: RunningCluster, topic: str) -> None:
    publish(cluster, topic, 500)
    cluster.wait_in_sync(topic)
    number = cluster.leader_of(topic)
    cluster.wipe(number)
    assert publish(cluster, topic, 10) == list(range(500, 510))
    cluster.start(number)
    cluster.wait_in_sync(topic)
    assert differences(cluster, topic, 1) == []


@pytest.mark.timeout(240)
def test_the_last_copy_in_sync_does_not_lead_with_an_empty_disk_and_costs_no_other_what_it_holds(
    cluster: RunningCluster,
) -> None:
    topic = "last-copy"
    cluster.create_topic(topic, partitions=1, replication=3, config={"min.insync.replicas": "1"})
    assert publish(cluster, topic, 50) == list(range(50))
    last = cluster.leader_of(topic)
    others = [number for number in cluster.brokers if number != last]
    for number in others:
        cluster.kill(number)

    def seen(number: int) -> tuple[int, list[int]]:
        partition = cluster.metadata(topic, from_broker=number).topics[topic].partitions[0]
        return int(partition.leader), list(partition.isrs)

    cluster.wait_until(lambda: seen(last) == (last, [last]), f"broker {last} to be alone in sync")
    cluster.wipe(last)
    for number in (*others, last):
        cluster.start(number)
    cluster.wait_until_all_serve()
    time.sleep(2 * cluster.lease_seconds)
    assert {seen(number)[0] for number in cluster.brokers} == {-1}
    said = [broker.output.read_text() for broker in cluster.brokers.values()]
    assert any("get no leader by themselves" in text and f"{topic}-0" in text for text in said)
    admin = cluster.admin()
    (outcome,) = admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, 0)]).result(10).values()
    assert outcome is None
    assert cluster.leader_of(topic) in others
    assert publish(cluster, topic, 1) == [50], "everything that the others held is still there"
    cluster.wait_in_sync(topic)
    assert differences(cluster, topic, 1) == []


def test_a_follower_with_an_empty_disk_sends_readers_to_the_leader(cluster: RunningCluster, topic: str) -> None:
    publish(cluster, topic, 10)
    leader = cluster.leader_of(topic)
    follower = next(number for number in cluster.brokers if number != leader)
    cluster.wipe(follower)
    cluster.links.cut(follower, leader, Cut.CLOSED)  # it stays empty
    cluster.start(follower)

    def code_at_the_follower() -> int:
        with wire_client(cluster, follower) as client, pytest.raises(RequestRefused) as caught:
            client.fetch(client.topic(topic), 0, 10, max_bytes=1_000)
        return caught.value.code

    passing = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID)
    cluster.wait_until(lambda: code_at_the_follower() not in passing, f"broker {follower} to follow")
    assert code_at_the_follower() == ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_damaged_tail_of_a_follower_is_fetched_again(cluster: RunningCluster, topic: str) -> None:
    publish(cluster, topic, 200)
    cluster.wait_in_sync(topic)
    leader = cluster.leader_of(topic)
    follower = next(number for number in cluster.brokers if number != leader)
    cluster.kill(follower)
    _flip_a_byte(cluster.brokers[follower].log_of(f"{topic}-0"))
    publish(cluster, topic, 10)
    cluster.start(follower)
    cluster.wait_in_sync(topic)
    assert differences(cluster, topic, 1) == []


def _flip_a_byte(directory: Path) -> None:
    log = max(directory.glob("*.log"))
    data = bytearray(log.read_bytes())
    assert data
    data[-5] ^= 0xFF
    log.write_bytes(data)


def test_a_follower_that_cannot_reach_its_leader_leaves_the_in_sync_set_and_returns(
    cluster: RunningCluster, topic: str
) -> None:
    publish(cluster, topic, 10)
    leader = cluster.leader_of(topic)
    follower, other = (number for number in cluster.brokers if number != leader)
    cluster.links.cut(follower, leader, Cut.ANSWERS)
    publish(cluster, topic, 10)

    def in_sync() -> set[int]:
        return set(cluster.metadata(topic).topics[topic].partitions[0].isrs)

    cluster.wait_until(lambda: in_sync() == {leader, other}, f"broker {follower} to be out of sync")
    assert publish(cluster, topic, 10) == list(range(20, 30))
    cluster.heal()
    cluster.wait_in_sync(topic)
    assert cluster.leader_of(topic) == leader
    assert differences(cluster, topic, 1) == []


def test_a_consumer_of_a_followers_rack_reads_from_that_follower(cluster: RunningCluster, topic: str) -> None:
    publish(cluster, topic, 100)
    leader = cluster.leader_of(topic)
    follower = next(number for number in cluster.brokers if number != leader)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "client.rack": f"rack-{follower}",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert len(consumer.consume(100, 20)) == 100
        publish(cluster, topic, 100)
        # Only a follower can give it the rest.
        cluster.links.cut(CLIENTS, leader, Cut.SILENT)
        assert len(consumer.consume(100, 20)) == 100
    finally:
        cluster.heal(deliver=False)
        consumer.close()


def test_without_the_store_publishes_are_acknowledged_no_longer_than_the_lease(
    cluster: RunningCluster, topic: str
) -> None:
    publish(cluster, topic, 10)
    leader = cluster.leader_of(topic)
    with wire_client(cluster, leader) as client:
        client.topic(topic)
        cluster.etcd.kill()
        try:
            time.sleep(cluster.lease_seconds + 0.5)
            assert is_refused(client, topic, b"unled")
        finally:
            cluster.etcd.start()
    assert publish(cluster, topic, 5) == list(range(10, 15))


def test_a_store_outage_shorter_than_the_lease_is_not_noticed(cluster: RunningCluster, topic: str) -> None:
    publish(cluster, topic, 1)
    leader = cluster.leader_of(topic)
    with wire_client(cluster, leader) as client:
        client.topic(topic)
        cluster.etcd.pause()
        try:
            assert client.publish(topic, 0, build_values_batch([b"meanwhile"])).error_code == 0
        finally:
            cluster.etcd.resume()
    assert cluster.leader_of(topic) == leader


def test_a_broker_that_lost_the_store_alone_is_replaced_and_comes_back(cluster: RunningCluster, topic: str) -> None:
    publish(cluster, topic, 1)
    old = cluster.leader_of(topic)
    cluster.links.cut(old, STORE, Cut.SILENT)
    new_leader(cluster, topic, old)
    # Whichever broker the client tries first: the one that is cut off takes no connection.
    assert publish(cluster, topic, 5) == list(range(1, 6))
    cluster.heal()
    cluster.wait_in_sync(topic)
    assert cluster.brokers[old].is_running


def test_a_producer_with_requests_held_back_while_leaders_change_sends_nothing_twice(
    cluster: RunningCluster, topic: str
) -> None:
    old = cluster.leader_of(topic)
    other = next(number for number in cluster.brokers if number != old)
    epochs: list[str] = []
    offsets: list[int] = []
    settings = {
        "bootstrap.servers": cluster.servers_of(other),
        "enable.idempotence": True,
        "linger.ms": 0,
        "batch.num.messages": 1,
        "reconnect.backoff.max.ms": 200,
        **EpochWatch.SETTINGS,
    }
    producer = Producer(settings, logger=EpochWatch(epochs.append).logger)

    def send() -> None:
        producer.produce(topic, b"message", on_delivery=lambda _, message: offsets.append(message.offset() or 0))
        producer.poll(0)

    def leader_and_in_sync() -> tuple[int, list[int]]:
        answer = cluster.metadata(topic, from_broker=other).topics[topic].partitions[0]
        return answer.leader, answer.isrs

    send()
    producer.flush(30)
    # The next message gets as far as the leader alone, and is cut off there when another one has led.
    cluster.isolate(old, store=False)
    held = cluster.brokers[old].log_size(f"{topic}-0")
    send()
    cluster.wait_until(lambda: cluster.brokers[old].log_size(f"{topic}-0") > held, "the message to be written")
    # The one after that is under way until the old leader leads again. It is stopped, not cut off from the store: who
    # is back at once keeps its connections.
    cluster.links.cut(CLIENTS, old, Cut.SILENT)
    send()
    cluster.pause(old)
    cluster.wait_until(lambda: leader_and_in_sync()[0] not in (-1, old), "another leader")
    cluster.resume(old)
    for number in cluster.brokers:
        cluster.links.heal(old, number)
        cluster.links.heal(number, old)
    cluster.wait_until(lambda: old in leader_and_in_sync()[1], "the old leader to be in sync")
    admin = cluster.admin(other)
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)]).result(10)
    cluster.wait_until(lambda: leader_and_in_sync()[0] == old, "the old leader to lead again")
    cluster.links.heal(CLIENTS, old)
    producer.flush(30)
    assert (epochs, offsets) == ([], [0, 1, 2])


def test_a_compacted_store_history_is_caught_up_with(cluster: RunningCluster, topic: str) -> None:
    publish(cluster, topic, 1)
    # The broker that creates the topic must reach the store.
    controller = cluster.metadata().controller_id
    cluster.links.cut(next(number for number in cluster.brokers if number != controller), STORE, Cut.CLOSED)
    cluster.ask_for_topic(f"{topic}-later")
    cluster.etcd.put_as_a_stranger(10)
    cluster.etcd.compact(cluster.etcd.revision())
    cluster.heal()
    cluster.wait_in_sync(f"{topic}-later")
    cluster.wait_in_sync(topic)
    assert publish(cluster, topic, 5) == list(range(1, 6))
