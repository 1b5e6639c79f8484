"""What one client wrote, every other reads; the same key goes to the same partition with every publisher."""

import json
from functools import cache

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.broker.requests import unique_topic
from tests.clients.client_behaviour import by_place
from tests.clients.messages import CODECS, ClientAdapter, Message, Place, check_places, make_messages
from tests.clients.test_kcat import kcat
from tests.clients.with_aiokafka import AiokafkaAdapter
from tests.clients.with_confluent import ConfluentAdapter
from tests.clients.with_kafka_python import KafkaPythonAdapter

ADAPTERS: dict[str, ClientAdapter] = {
    adapter.name: adapter for adapter in (ConfluentAdapter(), KafkaPythonAdapter(), AiokafkaAdapter())
}
PARTITIONS = 2
COUNT = 2000


@cache
def published(servers: str, writer: str, compression: str) -> tuple[str, dict[Place, Message]]:
    """A topic written by one client, once for all readers, and what must be in it."""
    topic = unique_topic(f"together-{writer.replace('_', '-')}")
    adapter = ADAPTERS[writer]
    adapter.create_topic(servers, topic, PARTITIONS)
    messages = make_messages(COUNT, keyed=True, seed=len(writer))
    places = adapter.publish(servers, topic, messages, compression=compression, idempotent=True)
    check_places(messages, places, PARTITIONS)
    return topic, by_place(messages, places)


@pytest.mark.parametrize("reader", ADAPTERS)
@pytest.mark.parametrize("writer", ADAPTERS)
@pytest.mark.parametrize("compression", CODECS)
def test_every_client_reads_what_every_client_wrote(
    broker: RunningBroker, compression: str, writer: str, reader: str
) -> None:
    topic, expected = published(broker.bootstrap_servers, writer, compression)
    read = ADAPTERS[reader].read(broker.bootstrap_servers, topic, dict.fromkeys(range(PARTITIONS), 0))
    assert read == expected


@pytest.mark.parametrize("writer", ADAPTERS)
@pytest.mark.parametrize("compression", CODECS)
def test_kcat_reads_what_every_client_wrote(servers: str, compression: str, writer: str) -> None:
    topic, expected = published(servers, writer, compression)
    printed = kcat(servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%p %o %T %k\n").splitlines()
    read = {}
    for line in printed:
        partition, offset, timestamp, key = line.split(" ", 3)
        read[Place(int(partition), int(offset))] = (int(timestamp), key.encode())
    assert read == {place: (message.timestamp_ms, message.key) for place, message in expected.items()}


@pytest.mark.parametrize("reader", ADAPTERS)
@pytest.mark.parametrize("compression", CODECS)
def test_every_client_reads_what_kcat_wrote(servers: str, compression: str, reader: str) -> None:
    topic = unique_topic("together-kcat")
    ADAPTERS[reader].create_topic(servers, topic, 1)
    lines = [f"k{number % 7}:value {number}" for number in range(500)]
    kcat(servers, "-P", "-t", topic, "-K:", "-z", compression, "-H", "by=kcat", stdin="\n".join(lines) + "\n")
    read = ADAPTERS[reader].read(servers, topic, {0: 0})
    texts = [f"{(message.key or b'').decode()}:{(message.value or b'').decode()}" for message in read.values()]
    assert texts == lines
    assert {message.headers for message in read.values()} == {(("by", b"kcat"),)}


def test_the_same_key_goes_to_the_same_partition_with_every_publisher(servers: str) -> None:
    topic = unique_topic("together-keys")
    ADAPTERS["confluent"].create_topic(servers, topic, 8)
    messages = make_messages(500, keyed=True)
    homes: dict[bytes | None, set[int]] = {}
    for adapter in ADAPTERS.values():
        places = adapter.publish(servers, topic, messages)
        for message, place in zip(messages, places, strict=True):
            homes.setdefault(message.key, set()).add(place.partition)
    assert {len(partitions) for partitions in homes.values()} == {1}


def test_all_clients_see_the_same_topics(servers: str) -> None:
    names = {}
    for name, adapter in ADAPTERS.items():
        names[name] = unique_topic(f"together-list-{name.replace('_', '-')}")
        adapter.create_topic(servers, names[name], 1)
    listed = {topic["topic"] for topic in json.loads(kcat(servers, "-L", "-J"))["topics"]}
    assert set(names.values()) <= listed
