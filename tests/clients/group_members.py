"""Consumers that run as members of a group, each in a thread of its own, and report to a ledger.

All of them commit by themselves, often, and when they lose partitions, as their libraries do it by default.
"""

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaError
from kafka import ConsumerRebalanceListener as KafkaPythonListener  # type: ignore[import-untyped]
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor  # type: ignore[import-untyped]
from kafka.coordinator.assignors.range import RangePartitionAssignor  # type: ignore[import-untyped]

from martlet.base.addresses import parse_bootstrap
from martlet.client.cluster import Cluster
from martlet.client.consumer.group_consumer import (
    GroupConsumer,
    GroupConsumerOptions,
    PartitionsLost,
    RebalanceListener,
    Start,
)
from martlet.client.consumer.membership import MemberOptions
from martlet.client.fetcher import FetcherOptions
from martlet.client.options import ClientOptions
from tests.clients.group_ledger import Reports

SESSION_MS = 6_000
HEARTBEAT_MS = 300
BROKER_HEARTBEAT_MS = 1_000
"""For the consumer protocol; librdkafka gives up a heartbeat, and with it the connection, after this time."""
COMMIT_MS = 200
STOP_SECONDS = 20.0

PASSING_ERRORS = (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class Member(ABC):
    """One consumer between construction and `stop`."""

    def __init__(
        self,
        servers: str,
        group: str,
        topic: str,
        reports: Reports,
        name: str,
        *,
        instance_id: str | None = None,
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self._servers, self._group, self._topic, self._reports = servers, group, topic, reports
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group as programs do when they end; a static member only goes away."""
        self._stopping.set()
        self._thread.join(STOP_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} does not stop"

    def _run(self) -> None:
        try:
            self._consume()
        except BaseException as error:  # noqa: BLE001  # a thread has no one else to report to
            self._reports.failed(self.name, repr(error))

    @abstractmethod
    def _consume(self) -> None:
        """Be a member until `_stopping` is set, then leave."""


class ConfluentMember(Member):
    """librdkafka, with the classic protocol and its eager range assignor."""

    settings: ClassVar[dict[str, Any]] = {
        "group.protocol": "classic",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }

    def _consume(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._servers,
            "group.id": self._group,
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": COMMIT_MS,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 500,
            **self.settings,
        }
        if self.instance_id is not None:
            settings["group.instance.id"] = self.instance_id
        consumer = Consumer(settings)
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        while not self._stopping.is_set():
            message = consumer.poll(0.05)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._reports.received(self.name, message.partition() or 0, message.offset() or 0)
            elif error.code() not in PASSING_ERRORS:
                self._reports.failed(self.name, str(error))
        consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[Any]) -> None:
        self._reports.assigned(self.name, [one.partition for one in partitions])

    def _revoked(self, consumer: Consumer, partitions: list[Any]) -> None:
        self._reports.revoked(self.name, [one.partition for one in partitions])


class RoundRobinConfluentMember(ConfluentMember):
    """The classic protocol and the other eager assignor."""

    settings: ClassVar[dict[str, Any]] = {**ConfluentMember.settings, "partition.assignment.strategy": "roundrobin"}


class CooperativeConfluentMember(ConfluentMember):
    """The classic protocol; partitions that stay are not given back."""

    settings: ClassVar[dict[str, Any]] = {
        **ConfluentMember.settings,
        "partition.assignment.strategy": "cooperative-sticky",
    }


class NewConfluentMember(ConfluentMember):
    """The protocol of KIP-848; the broker assigns, and says how often it wants heartbeats."""

    settings: ClassVar[dict[str, Any]] = {"group.protocol": "consumer"}


class KafkaPythonMember(Member):
    """kafka-python, whose heartbeats come from a thread of its own."""

    assignor: ClassVar[Any] = RangePartitionAssignor

    def _consume(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=self._group,
            client_id=self.name,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=500,
            max_poll_records=200,
            partition_assignment_strategy=[self.assignor],
        )
        consumer.subscribe([self._topic], listener=_KafkaPythonReports(self))
        while not self._stopping.is_set():
            # Long, because a poll that ends between the parts of a rebalance makes this client forget its assignment.
            for batch in consumer.poll(1_000).values():
                for message in batch:
                    self._reports.received(self.name, message.partition, message.offset)
        consumer.close()


class CooperativeKafkaPythonMember(KafkaPythonMember):
    """The same, keeping the partitions that stay."""

    assignor: ClassVar[Any] = CooperativeStickyAssignor


class _KafkaPythonReports(KafkaPythonListener):  # type: ignore[misc]
    def __init__(self, member: KafkaPythonMember) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._member._reports.revoked(self._member.name, [one.partition for one in revoked])

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._member._reports.assigned(self._member.name, [one.partition for one in assigned])


class AiokafkaMember(Member):
    """aiokafka, on an event loop of its own."""

    def _consume(self) -> None:
        asyncio.run(self._consume_async())

    async def _consume_async(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=self._group,
            client_id=self.name,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=500,
            max_poll_records=200,
        )
        consumer.subscribe([self._topic], listener=_AiokafkaReports(self))
        await consumer.start()
        try:
            while not self._stopping.is_set():
                for batch in (await consumer.getmany(timeout_ms=50)).values():
                    for message in batch:
                        self._reports.received(self.name, message.partition, message.offset)
        finally:
            owned = [one.partition for one in consumer.assignment()]
            await consumer.stop()
            # Unlike the others it does not call back when it leaves.
            self._reports.revoked(self.name, owned)


class _AiokafkaReports(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: AiokafkaMember) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._member._reports.revoked(self._member.name, [one.partition for one in revoked])

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._member._reports.assigned(self._member.name, [one.partition for one in assigned])


class MartletMember(Member):
    """The group consumer of this project, which commits when it is asked to."""

    def _consume(self) -> None:
        asyncio.run(self._consume_async())

    async def _consume_async(self) -> None:
        options = GroupConsumerOptions(
            member=MemberOptions(group_id=self._group, instance_id=self.instance_id),
            fetch=FetcherOptions(max_wait_ms=50),
            start=Start.EARLIEST,
        )
        client = ClientOptions(client_id=self.name)
        async with (
            Cluster(parse_bootstrap(self._servers), client) as cluster,
            GroupConsumer(cluster, options, _MartletReports(self)) as consumer,
        ):
            self.consumer = consumer
            consumer.subscribe([self._topic])
            await self._read(consumer)

    async def _read(self, consumer: GroupConsumer) -> None:
        committed_at = time.monotonic()
        while not self._stopping.is_set():
            for fetched in await consumer.poll(50):
                for record in fetched.records(batch_bytes_max=1 << 20):
                    self._reports.received(self.name, fetched.partition.partition, record.offset)
            if time.monotonic() - committed_at > COMMIT_MS / 1000:
                with contextlib.suppress(PartitionsLost):
                    await consumer.commit()
                committed_at = time.monotonic()


class _MartletReports(RebalanceListener):
    def __init__(self, member: MartletMember) -> None:
        self._member = member

    async def on_assigned(self, partitions: Any) -> None:
        self._member._reports.assigned(self._member.name, [one.partition for one in partitions])

    async def on_revoked(self, partitions: Any) -> None:
        with contextlib.suppress(PartitionsLost):
            await self._member.consumer.commit()
        await self.on_lost(partitions)

    async def on_lost(self, partitions: Any) -> None:
        self._member._reports.revoked(self._member.name, [one.partition for one in partitions])


KINDS: dict[str, type[Member]] = {
    kind.__name__: kind
    for kind in (
        ConfluentMember,
        CooperativeConfluentMember,
        NewConfluentMember,
        KafkaPythonMember,
        CooperativeKafkaPythonMember,
        AiokafkaMember,
        MartletMember,
    )
}


class PrintedReports:
    """For a member in a process of its own: its assignments go to the standard output, one line each."""

    def assigned(self, member: str, partitions: Any) -> None:
        print("assigned", *partitions, flush=True)

    def revoked(self, member: str, partitions: Any) -> None:
        print("revoked", *partitions, flush=True)

    def received(self, member: str, partition: int, offset: int) -> None:
        pass

    def failed(self, member: str, what: str) -> None:
        print("failed", what, flush=True)


def run_forever(kind: str, servers: str, group: str, topic: str, name: str) -> None:
    """The life of a member that another process will end."""
    KINDS[kind](servers, group, topic, PrintedReports(), name)
    while True:
        time.sleep(1)
