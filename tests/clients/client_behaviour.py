"""What every client must be able to do, once; each client's test file runs it with its own adapter."""

from collections.abc import Sequence
from typing import ClassVar

import pytest

from martlet.testing.running_broker import RunningBroker
from martlet.wire.batch import iterate_batches
from martlet.wire.compression import Compression
from martlet.wire.fetch import FetchPartition
from tests.broker.raw_client import RawClient
from tests.broker.requests import fetch_request, unique_topic
from tests.clients.lossy_proxy import LossyProxy
from tests.clients.messages import (
    CODECS,
    ClientAdapter,
    Message,
    Place,
    check_places,
    ends_of,
    expect_offsets,
    make_messages,
)

COUNT = 10_000
PARTITIONS = 3


def stored_codecs(servers: str, topic: str, partitions: int) -> set[str]:
    """The compressions of the batches as they lie in the log."""
    with RawClient(servers) as client:
        asked = [FetchPartition(partition, partition_max_bytes=20 << 20) for partition in range(partitions)]
        results = client.fetch(fetch_request(topic, *asked)).topics[0].partitions
        headers = [header for result in results for _, header in iterate_batches(bytes(result.records))]
        return {Compression(header.compression).name.lower() for header in headers}


def by_place(messages: Sequence[Message], places: Sequence[Place]) -> dict[Place, Message]:
    return dict(zip(places, messages, strict=True))


class ClientBehaviour:
    """Subclasses name their adapter; the tests are inherited."""

    adapter: ClassVar[ClientAdapter]

    @pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "unkeyed"])
    @pytest.mark.parametrize("compression", CODECS)
    def test_ten_thousand_messages_come_back_as_they_were_published(
        self, broker: RunningBroker, compression: str, keyed: bool
    ) -> None:
        servers, topic = broker.bootstrap_servers, unique_topic(self.adapter.name)
        messages = make_messages(COUNT, keyed=keyed)
        self.adapter.create_topic(servers, topic, PARTITIONS)
        places = self.adapter.publish(servers, topic, messages, compression=compression)
        check_places(messages, places, PARTITIONS)
        assert compression in stored_codecs(servers, topic, PARTITIONS)
        read = self.adapter.read(servers, topic, dict.fromkeys(range(PARTITIONS), 0))
        assert read == by_place(messages, places)

    def test_reading_starts_where_it_is_told_to(self, broker: RunningBroker) -> None:
        servers, topic = broker.bootstrap_servers, unique_topic(self.adapter.name)
        messages = make_messages(3000, keyed=True)
        self.adapter.create_topic(servers, topic, PARTITIONS)
        places = self.adapter.publish(servers, topic, messages)
        ends = ends_of(places, PARTITIONS)
        starts = {0: 0, 1: ends[1] // 2, 2: ends[2] - 1}
        expected = {p: m for p, m in by_place(messages, places).items() if p.offset >= starts[p.partition]}
        assert self.adapter.read(servers, topic, starts) == expected
        assert self.adapter.read(servers, topic, ends) == {}

    def test_a_time_finds_the_first_message_not_before_it(self, broker: RunningBroker) -> None:
        servers, topic = broker.bootstrap_servers, unique_topic(self.adapter.name)
        messages = make_messages(3000, keyed=True)
        self.adapter.create_topic(servers, topic, PARTITIONS)
        places = self.adapter.publish(servers, topic, messages, compression="gzip")
        middle = messages[1500].timestamp_ms
        for asked in (messages[0].timestamp_ms - 5000, middle, middle + 1, messages[-1].timestamp_ms + 1):
            expected = expect_offsets(messages, places, PARTITIONS, asked)
            assert self.adapter.offsets_for_time(servers, topic, range(PARTITIONS), asked) == expected

    @pytest.mark.parametrize("compression", ["none", "lz4"])
    def test_idempotent_publishing_keeps_order_and_content(self, broker: RunningBroker, compression: str) -> None:
        servers, topic = broker.bootstrap_servers, unique_topic(self.adapter.name)
        messages = make_messages(5000, keyed=True)
        self.adapter.create_topic(servers, topic, PARTITIONS)
        places = self.adapter.publish(servers, topic, messages, compression=compression, idempotent=True)
        check_places(messages, places, PARTITIONS)
        assert self.adapter.read(servers, topic, dict.fromkeys(range(PARTITIONS), 0)) == by_place(messages, places)

    def test_lost_answers_lead_to_no_duplicates_when_idempotent(self, lossy: LossyProxy) -> None:
        topic = unique_topic(self.adapter.name)
        self.adapter.create_topic(lossy.direct, topic, 1)
        messages = make_messages(2000, keyed=True)
        places: list[Place] = []
        for start in range(0, len(messages), 200):
            lossy.lose_answers(2)
            places += self.adapter.publish(lossy.servers, topic, messages[start : start + 200], idempotent=True)
        assert lossy.lost >= 10, "answers were lost on the way"
        check_places(messages, places, 1)
        assert self.adapter.read(lossy.direct, topic, {0: 0}) == by_place(messages, places)
