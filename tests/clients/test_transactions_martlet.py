"""Martlet's own client in transactions, against a real broker: what readers of committed data see of it."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from martlet.base.addresses import parse_address
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError, OutcomeUnknown
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.client.groups import Groups
from martlet.client.offsets import LATEST, list_offsets
from martlet.client.transaction_groups import Child, TransactionGroups, child_id
from martlet.client.transaction_state import WhenceOffsets
from martlet.client.transactional_producer import TransactionalOptions, TransactionalProducer

PARTITIONS = 2
_numbers = itertools.count()


@asynccontextmanager
async def topic_on(servers: str) -> AsyncIterator[tuple[Cluster, str]]:
    """A client and an empty topic."""
    async with Cluster([parse_address(servers)]) as cluster:
        name = f"own-{next(_numbers)}"
        await Admin(cluster).create_topic(NewTopic(name=name, partitions=PARTITIONS, replication_factor=1))
        yield cluster, name


async def committed_values(cluster: Cluster, topic: str) -> dict[int, list[bytes]]:
    """All that a reader of committed data finds, once nothing is open any more."""
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    found: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
    async with asyncio.timeout(20), Fetcher(cluster, FetcherOptions(max_wait_ms=100, read_committed=True)) as fetcher:
        fetcher.assign(dict.fromkeys(partitions, 0))
        while any(fetcher.positions[partition] < ends[partition].offset for partition in partitions):
            for fetched in await fetcher.fetch():
                for record in fetched.records(batch_bytes_max=1 << 20):
                    found[fetched.partition.partition].append(record.value or b"")
    return found


def test_what_is_committed_is_seen_whole_and_what_is_aborted_not_at_all(servers: str) -> None:
    async def main() -> None:
        async with topic_on(servers) as (cluster, topic), TransactionalProducer(cluster, topic) as producer:
            for number in range(6):
                producer.begin()
                for partition in range(PARTITIONS):
                    await producer.send(topic, b"%d" % number, partition=partition)
                await (producer.abort() if number % 2 else producer.commit())
            seen = [b"0", b"2", b"4"]
            assert await committed_values(cluster, topic) == dict.fromkeys(range(PARTITIONS), seen)

    asyncio.run(main())


def test_a_transaction_without_content_asks_the_cluster_nothing(servers: str) -> None:
    async def main() -> None:
        async with topic_on(servers) as (cluster, topic), TransactionalProducer(cluster, topic) as producer:
            before = producer.identity
            for end in (producer.commit, producer.abort):
                producer.begin()
                await end()
            assert producer.identity == before

    asyncio.run(main())


def test_offsets_count_with_the_commit_and_not_before(servers: str) -> None:
    async def main() -> None:
        async with topic_on(servers) as (cluster, topic), TransactionalProducer(cluster, topic) as producer:
            place, groups = TopicPartition(topic, 0), Groups(cluster)
            for number, is_commit in enumerate((True, False)):
                producer.begin()
                await producer.send_offsets({place: 5 + number}, WhenceOffsets(topic))
                seen = await groups.committed(topic)
                assert [entry.offset for entry in seen.values()] == [5] * number
                await (producer.commit() if is_commit else producer.abort())
                async with asyncio.timeout(10):
                    while [entry.offset for entry in (await groups.committed(topic)).values()] != [5]:
                        await asyncio.sleep(0.02)

    asyncio.run(main())


def test_a_newer_producer_of_the_id_fences_the_older_one_and_aborts_what_it_left(servers: str) -> None:
    async def main() -> None:
        async with topic_on(servers) as (cluster, topic), TransactionalProducer(cluster, topic) as old:
            old.begin()
            await (await old.send(topic, b"old", partition=0))
            async with TransactionalProducer(cluster, topic) as new:
                with pytest.raises(ApiError) as refused:
                    await (await old.send(topic, b"late", partition=0))
                assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
                with pytest.raises(ApiError):
                    await old.commit()
                with pytest.raises(ApiError):
                    await old.abort()
                with pytest.raises(ClientError):
                    old.begin()
                new.begin()
                await new.send(topic, b"new", partition=0)
                await new.commit()
            assert (await committed_values(cluster, topic))[0] == [b"new"]

    asyncio.run(main())


def test_a_commit_that_a_newer_producer_has_overtaken_has_no_known_outcome(servers: str) -> None:
    async def main() -> None:
        async with topic_on(servers) as (cluster, topic), TransactionalProducer(cluster, topic) as old:
            old.begin()
            await (await old.send(topic, b"old", partition=0))
            async with TransactionalProducer(cluster, topic):
                with pytest.raises(OutcomeUnknown):
                    await old.commit()

    asyncio.run(main())


def test_a_transaction_with_a_refused_message_can_only_be_aborted(servers: str) -> None:
    async def main() -> None:
        async with topic_on(servers) as (cluster, topic), TransactionalProducer(cluster, topic) as producer:
            producer.begin()
            await producer.send(topic, b"fine", partition=0)
            refused = await producer.send(topic, bytes(2 << 20), partition=1)
            with pytest.raises(ApiError) as error:
                await refused
            assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE
            with pytest.raises(ApiError):
                await producer.commit()
            await producer.abort()
            producer.begin()
            await producer.send(topic, b"next", partition=0)
            await producer.commit()
            assert await committed_values(cluster, topic) == {0: [b"next"], 1: []}

    asyncio.run(main())


def test_the_children_of_a_step_are_committed_by_one_call(servers: str) -> None:
    async def main() -> None:
        async with topic_on(servers) as (cluster, topic):
            groups = TransactionGroups(cluster)
            token = await groups.open(topic, b"r" * 16)
            children = []
            for task, attempt in ((0, 0), (1, 0), (1, 1)):
                name = child_id(token, 0, task, attempt)
                async with TransactionalProducer(cluster, name) as producer:
                    producer.begin()
                    await producer.send(topic, b"%d.%d" % (task, attempt), partition=task)
                    children.append(Child(name, await producer.prepare()))
            winners = [children[0], children[2]]
            decided = await groups.end(token, 0, winners, b"2 rows")
            assert not decided.already_done
            again = await groups.end(token, 0, winners, b"2 rows")
            assert (again.already_done, again.note) == (True, b"2 rows")
            assert await committed_values(cluster, topic) == {0: [b"0.0"], 1: [b"1.1"]}

    asyncio.run(main())


def test_two_phase_commit_is_refused_aloud_where_it_is_turned_off(servers: str) -> None:
    async def main() -> None:
        async with topic_on(servers) as (cluster, topic):
            with pytest.raises(ApiError) as refused:
                await TransactionalProducer(cluster, topic, TransactionalOptions(two_phase=True)).start()
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
            assert "turned off" in refused.value.detail

    asyncio.run(main())
