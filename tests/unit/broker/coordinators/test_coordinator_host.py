"""The host is generic: a machine that is not of groups is loaded, served, notified and has its effects executed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from functools import partial

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.coordinators.coordinator_host import CoordinatorHost, MachineKind
from martlet.broker.coordinators.internal_topic import InternalTopic, InternalTopicSpec
from martlet.coordinator.result import Result
from tests.unit.broker.coordinators.coordinator_bench import CoordinatorBench
from tests.unit.coordinator.toy_machine import SENT, NumberSet, Send, ToyCodec, ToyMachine, ToyRecord

TOPIC = "__toys"
TOY_PARTITIONS = 3


class HostedToy(ToyMachine):
    """Numbers by name; those of a topic go with it."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: list[str] = []

    def topics_changed(self, changed: Collection[str], deleted: Collection[str], now_ms: int) -> Result[ToyRecord]:
        self.changed += changed
        return Result(records=[NumberSet(name, None) for name in deleted if name in self.numbers])

    def topic_names(self) -> Iterable[str]:
        return [name for name in self.numbers if name.startswith("topic")]


class Post:
    """Executes effects: the receipt is ten times the number."""

    def start_effect(self, effect: object, done: Callable[[object], None]) -> None:
        assert isinstance(effect, Send)
        asyncio.get_running_loop().call_soon(done, effect.number * 10)


class ToyBench(CoordinatorBench):
    """A second coordinator beside that of groups."""

    async def start(self) -> None:
        await super().start()
        spec = InternalTopicSpec(TOPIC, TOY_PARTITIONS, partition_rule=lambda key, count: len(key) % count)
        topic = InternalTopic(spec, self.metadata.image, self.metadata.admin)
        self.stored: list[object] = []
        kind = MachineKind("toys", HostedToy, ToyCodec, self._on_stored, Post())
        self.toys = CoordinatorHost(kind, topic, self.table, self.clock, self.metrics, self.failures.append)
        self.toys.start()
        self.metadata.feed.add_listener(self.toys.follow)

    async def stop(self) -> None:
        await self.toys.aclose()
        await super().stop()

    def _on_stored(self, records: Sequence[object]) -> None:
        self.stored += records

    async def put(self, name: str, number: int) -> int:
        return await self.toys.call(name, lambda machine, now_ms: machine.put(name, number, now_ms))

    async def get(self, name: str) -> int | None:
        """The number once the shard is loaded."""
        async with asyncio.timeout(10):
            while True:
                try:
                    return await self.toys.call(name, lambda machine, now_ms: machine.get(name, now_ms))
                except ApiError as error:
                    if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        raise
                    await asyncio.sleep(0.001)


@pytest.fixture
async def bench() -> AsyncIterator[ToyBench]:
    async with ToyBench() as started:
        yield started


async def test_another_machine_is_served_and_loaded_from_its_own_topic(bench: ToyBench) -> None:
    assert [await bench.put(name, number) for number, name in enumerate(("a", "bb", "ccc", "dddd"))] == [0, 1, 2, 3]
    assert {log.partition.topic for log in bench.logs} == {TOPIC}
    assert len(bench.stored) == 4
    await bench.restart()
    assert [await bench.get(name) for name in ("a", "bb", "ccc", "dddd")] == [0, 1, 2, 3]
    assert bench.failures == []


async def test_the_partition_of_a_key_is_by_the_rule_of_its_topic(bench: ToyBench) -> None:
    await bench.put("bb", 1)
    assert [log.partition.partition for log in bench.logs] == [2]
    assert await bench.toys.coordinator_of("bb") == 1


async def test_an_effect_is_executed_and_its_outcome_stored(bench: ToyBench) -> None:
    await bench.put("a", 1)
    assert await bench.toys.call("a", partial(_send, "a", 7)) == 7
    async with asyncio.timeout(10):
        while await bench.get("a") != 1 or not any(
            machine.numbers.get(SENT + "a") for machine in bench.toys.machines()
        ):
            await asyncio.sleep(0.001)
    assert [machine.numbers[SENT + "a"] for machine in bench.toys.machines() if machine.numbers] == [70]


def _send(name: str, number: int, machine: HostedToy, now_ms: int) -> Result[ToyRecord, int]:
    return machine.send(name, number, now_ms)


async def test_every_machine_gets_the_topic_updates(bench: ToyBench) -> None:
    await bench.put("topic-1", 1)
    await bench.metadata.admin.create_topic("topic-1")
    async with asyncio.timeout(10):
        while not all("topic-1" in machine.changed for machine in bench.toys.machines()):
            await asyncio.sleep(0.001)
    await bench.metadata.admin.delete_topic("topic-1")
    async with asyncio.timeout(10):
        while await bench.get("topic-1") is not None:
            await asyncio.sleep(0.001)


async def test_a_topic_that_no_longer_exists_is_noticed_when_the_shard_is_loaded(bench: ToyBench) -> None:
    await bench.put("topic-2", 1)
    await bench.restart()
    async with asyncio.timeout(10):
        while await bench.get("topic-2") is not None:
            await asyncio.sleep(0.001)


async def test_what_is_not_served_is_named_by_what_it_is(bench: ToyBench) -> None:
    await bench.put("a", 1)
    bench.disk.fail_next_sync()
    with pytest.raises(ApiError):
        await bench.put("a", 2)
    assert bench.toys.unserved() == [1]
    assert bench.toys.reason_not_ready() == f"toys are not served, those of {TOPIC}-1"
