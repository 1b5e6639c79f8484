"""Administrative requests to a broker whose metadata store is slow: answered in the time they give, and carried out."""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sim.store import SimStore, SimStoreState

from martlet.base.addresses import Address
from martlet.base.clock import Clock
from martlet.base.errors import ErrorCode
from martlet.broker.app import BrokerApp
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.machine_ports import machine_ports
from martlet.client.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, METADATA
from martlet.client.connection import Connection
from martlet.client.options import ClientOptions
from martlet.cluster.store import CommitResult, LeaseId, MetaStore
from martlet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from martlet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from martlet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from martlet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

TIME_MS = 300


class Gate:
    """Lets this number of commits through, then none until it is opened."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._left = 0
        self.open()

    def open(self) -> None:
        self._opened.set()

    def shut_after(self, commits: int) -> None:
        self._opened.clear()
        self._left = commits

    async def wait(self) -> None:
        if self._left > 0:
            self._left -= 1
        else:
            await self._opened.wait()


class HesitantStore(SimStore):
    """A store whose commits wait while its gate is shut."""

    def __init__(self, clock: Clock, state: SimStoreState, gate: Gate) -> None:
        super().__init__(clock, state)
        self._gate = gate

    async def commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        delete_prefixes: Collection[str] = (),
        lease: LeaseId | None = None,
    ) -> CommitResult:
        await self._gate.wait()
        return await super().commit(compares, puts, deletes, delete_prefixes=delete_prefixes, lease=lease)


class Bench:
    """A broker on such a store, and a connection to it."""

    def __init__(self, connection: Connection, gate: Gate) -> None:
        self.gate = gate
        self.connection = connection

    async def create(self, *names: str, timeout_ms: int = 20_000, validate_only: bool = False) -> list[tuple[str, int]]:
        topics = [CreatableTopic(name, 2, 1) for name in names]
        request = CreateTopicsRequest(topics, timeout_ms, validate_only)
        response = await self.connection.call(CREATE_TOPICS, request)
        return [(topic.name, topic.error_code) for topic in response.topics]

    async def grow(self, name: str, count: int, *, timeout_ms: int = 20_000) -> list[tuple[str, int]]:
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count)], timeout_ms)
        response = await self.connection.call(CREATE_PARTITIONS, request)
        return [(topic.name, topic.error_code) for topic in response.results]

    async def delete(self, name: str, *, timeout_ms: int = 20_000) -> list[tuple[str | None, int]]:
        request = DeleteTopicsRequest([DeleteTopicState(name=name)], timeout_ms=timeout_ms)
        response = await self.connection.call(DELETE_TOPICS, request)
        return [(topic.name, topic.error_code) for topic in response.responses]

    async def partition_count(self, name: str) -> int:
        request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (topic,) = (await self.connection.call(METADATA, request)).topics
        return len(topic.partitions)

    async def wait_partitions(self, name: str, count: int) -> None:
        async with asyncio.timeout(20):
            while await self.partition_count(name) != count:
                await asyncio.sleep(0.01)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    gate, state = Gate(), SimStoreState()

    async def open_store(settings: BrokerSettings, clock: Clock) -> MetaStore:
        return HesitantStore(clock, state, gate)

    settings = BrokerSettings(data=str(tmp_path), kafka="127.0.0.1:0", operations="127.0.0.1:0")
    app = BrokerApp(settings, replace(machine_ports(), open_store=open_store))
    await app.start()
    options = ClientOptions(client_id="impatient", request_timeout_ms=20_000)
    connection = Connection(Address(app.kafka_address.host, app.kafka_address.port), options)
    await connection.start()
    while app.services is None or app.services.image.controller is None:
        await asyncio.sleep(0.01)  # from then on nothing is committed unasked
    yield Bench(connection, gate)
    gate.open()
    await connection.aclose()
    await app.stop()


async def test_changes_that_take_longer_than_the_client_waits_are_answered_and_made_later(bench: Bench) -> None:
    await bench.create("grows", "goes")
    changes: dict[str, Any] = {
        "comes": lambda: bench.create("comes", timeout_ms=TIME_MS),
        "grows": lambda: bench.grow("grows", 5, timeout_ms=TIME_MS),
        "goes": lambda: bench.delete("goes", timeout_ms=TIME_MS),
    }
    bench.gate.shut_after(0)
    for name, change in changes.items():
        begun = time.monotonic()
        assert await change() == [(name, ErrorCode.REQUEST_TIMED_OUT)]
        assert TIME_MS / 1000 <= time.monotonic() - begun < 10
    assert [await bench.partition_count(name) for name in changes] == [0, 2, 2], "nothing has happened yet"
    bench.gate.open()
    for name, count in (("comes", 2), ("grows", 5), ("goes", 0)):
        await bench.wait_partitions(name, count)


async def test_what_is_done_by_then_is_answered_as_done(bench: Bench) -> None:
    bench.gate.shut_after(1)
    answer = await bench.create("first", "second", "no such/name", timeout_ms=TIME_MS)
    late = ErrorCode.REQUEST_TIMED_OUT
    assert answer == [("first", ErrorCode.NONE), ("second", late), ("no such/name", late)]


async def test_with_no_time_at_all_a_change_is_begun_and_what_needs_no_waiting_is_done(bench: Bench) -> None:
    assert await bench.create("later", timeout_ms=0) == [("later", ErrorCode.REQUEST_TIMED_OUT)]
    await bench.wait_partitions("later", 2)
    assert await bench.create("later", timeout_ms=-1) == [("later", ErrorCode.TOPIC_ALREADY_EXISTS)]
    assert await bench.create("checked", timeout_ms=0, validate_only=True) == [("checked", ErrorCode.NONE)]
