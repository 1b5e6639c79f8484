"""kill -9 in the middle of what groups do: no acknowledged offset is lost, and groups go on without anybody's help."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from martlet.groups.record_codec import GroupRecordCodec
from martlet.groups.records import ClassicGroupStored, DurableRecord, OffsetCommitted
from martlet.wire.messages.list_groups import ListGroupsRequest
from tests.broker.broker_process import BrokerProcess
from tests.broker.group_requests import commit, fetch_offsets, unique_group
from tests.broker.raw_client import ConnectionClosed, RawClient
from tests.broker.requests import create_topic
from tests.broker.scrape import scrape, wait_until

PARTITIONS = 6
MEMBERS = 3
STORM_ROUNDS = 5
STORM_GROUPS = 4
RECOVERY_SECONDS = 40.0
OFFSETS_TOPIC = "__consumer_offsets"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", group_initial_rebalance_delay_ms=100)
    process.start()
    yield process
    process.kill()


class Storm:
    """One group committing ever higher offsets as fast as it can, until its connection breaks."""

    def __init__(self, address: str, group: str, topic: str, start: int) -> None:
        self.group = group
        self.sent = start
        self.acknowledged = start
        self._rages = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(address, topic))
        self._thread.start()

    def _run(self, address: str, topic: str) -> None:
        try:
            with RawClient(address) as client:
                while True:
                    self.sent += 1
                    if set(commit(client, self.group, topic, dict.fromkeys(range(PARTITIONS), self.sent)).values()) == {
                        0
                    }:
                        self.acknowledged = self.sent
                        self._rages.set()
        except (ConnectionClosed, OSError):
            return

    def wait_for_first(self) -> None:
        """Until a commit is acknowledged, which takes its time on a busy machine."""
        assert self._rages.wait(RECOVERY_SECONDS)

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


def test_no_acknowledged_offset_is_lost_in_a_commit_storm(broker: BrokerProcess) -> None:
    chance = random.Random(5)
    with RawClient(broker.address) as client:
        topic = create_topic(client, PARTITIONS)
    starts = {unique_group(): 0 for _ in range(STORM_GROUPS)}
    for _ in range(STORM_ROUNDS):
        storms = [Storm(broker.address, group, topic, start) for group, start in starts.items()]
        for storm in storms:
            storm.wait_for_first()
        time.sleep(chance.uniform(0.1, 0.6))  # how long the storm rages, not a wait for anything
        broker.kill()
        for storm in storms:
            storm.join()
        broker.start()
        with RawClient(broker.address) as client:
            wait_until(lambda: client.call(ListGroupsRequest(), 4).error_code == 0, "everything is loaded")
            for storm in storms:
                _, found = fetch_offsets(client, storm.group, topic, *range(PARTITIONS))
                offsets = {one.committed_offset for one in found.values()}
                assert len(offsets) == 1, "a commit is kept whole or not at all"
                (offset,) = offsets
                assert storm.acknowledged <= offset <= storm.sent
                starts[storm.group] = offset
    assert all(start >= STORM_ROUNDS for start in starts.values()), "there was a storm"


class Member:
    """A consumer in a thread of its own that commits what it has seen, message by message or not at all."""

    def __init__(self, address: str, group: str, protocol: str, topic: str, seen: set[bytes]) -> None:
        self.assigned: set[int] = set()
        self.committed: set[tuple[int, int]] = set()
        """Partition and offset of every commit that was acknowledged."""
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self._seen = seen
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(settings, topic))
        self._thread.start()

    def _run(self, settings: dict[str, str | int | bool], topic: str) -> None:
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            self.assigned = {each.partition for each in consumer.assignment()}
            if message is not None and message.error() is None:
                self._take(consumer, message)
        consumer.close()

    def _take(self, consumer: Consumer, message: Message) -> None:
        value = message.value()
        if isinstance(value, bytes):
            self._seen.add(value)
        try:
            for done in consumer.commit(message=message, asynchronous=False) or ():
                if done.error is None:
                    self.committed.add((done.partition, done.offset))
        except KafkaException:
            return  # the broker is away, or the group rebalances: what was not committed will come again

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def make_member(broker: BrokerProcess) -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def make(*arguments: object) -> Member:
        members.append(Member(broker.address, *arguments))  # type: ignore[arg-type]
        return members[-1]

    yield make
    for member in members:
        member.close()


def is_rebalancing(broker: BrokerProcess) -> bool:
    samples = scrape(broker.operations_url).items()
    settled = ('state="Stable"', 'state="Empty"')
    return any(
        name.startswith("martlet_groups{") and count and not any(state in name for state in settled)
        for name, count in samples
    )


def stored_records(address: str, group: str) -> list[DurableRecord]:
    """What the log holds about a group, in the order of the log; nothing is compacted away so soon."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": unique_group(),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    codec, found = GroupRecordCodec(), list[DurableRecord]()
    try:
        partitions = consumer.list_topics(OFFSETS_TOPIC, timeout=RECOVERY_SECONDS).topics[OFFSETS_TOPIC].partitions
        consumer.assign([TopicPartition(OFFSETS_TOPIC, index, OFFSET_BEGINNING) for index in partitions])
        unread = set(partitions)
        give_up_at = time.monotonic() + RECOVERY_SECONDS
        while unread:
            assert time.monotonic() < give_up_at, f"{OFFSETS_TOPIC} cannot be read to its end: {unread}"
            message = consumer.poll(0.1)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                continue
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            record = codec.decode(key, value if isinstance(value, bytes) else None)
            if record is not None and record.group_id == group:
                found.append(record)
    finally:
        consumer.close()
    return found


def as_text(records: list[DurableRecord]) -> str:
    """The group's history in a line for each record: who went back, and in whose time, is to be seen in a failure."""
    lines = []
    for record in records:
        if isinstance(record, OffsetCommitted):
            lines.append(
                f"{record.committed_at_ms} partition {record.partition}: {record.offset}@{record.leader_epoch}"
            )
        elif isinstance(record, ClassicGroupStored):
            owners = {member.member_id[-6:]: member.assignment.hex() for member in record.members}
            lines.append(f"{record.changed_at_ms} generation {record.generation}: {owners}")
        else:
            lines.append(str(record))
    return "\n".join(lines)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_survives_a_kill_in_the_middle_of_a_rebalance(
    broker: BrokerProcess, make_member: Callable[..., Member], protocol: str
) -> None:
    with RawClient(broker.address) as client:
        topic = create_topic(client, PARTITIONS)
    group, seen, sent = unique_group(), set[bytes](), set[bytes]()
    producer = Producer({"bootstrap.servers": broker.address, "log_level": 0, "reconnect.backoff.max.ms": 500})

    def publish(count: int) -> None:
        for _ in range(count):
            value = str(len(sent)).encode()
            sent.add(value)
            producer.produce(topic, value, partition=len(sent) % PARTITIONS)
        assert producer.flush(RECOVERY_SECONDS) == 0

    def is_shared_out() -> bool:
        owned = sorted(partition for member in members for partition in member.assigned)
        return owned == list(range(PARTITIONS))

    members = [make_member(group, protocol, topic, seen) for _ in range(MEMBERS)]
    publish(60)
    wait_until(is_shared_out, "every partition has one owner", RECOVERY_SECONDS)
    newcomer = make_member(group, protocol, topic, seen)
    members.append(newcomer)
    # A quick rebalance may be over between two looks.
    wait_until(lambda: is_rebalancing(broker) or bool(newcomer.assigned), "the new member's arrival is dealt with")
    broker.kill()
    broker.start()
    publish(60)
    wait_until(lambda: sent <= seen, "every message is read", RECOVERY_SECONDS)
    wait_until(is_shared_out, "every partition has one owner again", RECOVERY_SECONDS)
    for member in members:
        member.close()
    acknowledged = set[tuple[int, int]]().union(*(member.committed for member in members))
    assert acknowledged
    history = stored_records(broker.address, group)
    commits = [(one.partition, one.offset) for one in history if isinstance(one, OffsetCommitted)]
    assert acknowledged - set(commits) == set(), f"an acknowledged commit is lost:\n{as_text(history)}"
    with RawClient(broker.address) as client:
        _, answers = fetch_offsets(client, group, topic, *range(PARTITIONS))
    found = {index: answer.committed_offset for index, answer in answers.items() if answer.committed_offset >= 0}
    assert found == dict(commits), f"what is answered is not the last that was stored:\n{as_text(history)}"
