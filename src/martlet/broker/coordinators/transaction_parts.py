"""The parts that serve transactions, put together: coordinator, questions, markers; started and stopped as one.

Proved by: tests/broker/test_transaction_apis.py
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from martlet.base.clock import Clock
from martlet.base.ids import BrokerId
from martlet.broker.administration.producer_ids import ProducerIdPool
from martlet.broker.administration.topic_admin import TopicAdmin
from martlet.broker.coordinators.coordinator_host import CoordinatorHost
from martlet.broker.coordinators.groups import GroupCoordinator
from martlet.broker.coordinators.marker_sending import MarkerRoutes, MarkerSender
from martlet.broker.coordinators.marker_writing import MarkerWriter
from martlet.broker.coordinators.transaction_questions import TransactionQuestions
from martlet.broker.coordinators.transactions import (
    Completions,
    TransactionCoordinator,
    transaction_kind,
    transaction_options,
    transactions_topic,
    watch_transactions,
)
from martlet.broker.ground.peer_connection import Connect
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.routing.peers import Peers
from martlet.cluster.image import ImageDelta
from martlet.coordinator.snapshots import SnapshotRule
from martlet.observe.metrics import BrokerMetrics


class CoordinatorParts(NamedTuple):
    """What transactions share with the rest of the broker."""

    partitions: PartitionTable
    groups: GroupCoordinator
    clock: Clock
    metrics: BrokerMetrics
    fail: Callable[[BaseException], None]


@dataclass(frozen=True, slots=True)
class TransactionServices:
    """What handlers need for transactions, and the rest that runs behind it."""

    producer_ids: ProducerIdPool
    coordinator: TransactionCoordinator
    questions: TransactionQuestions
    markers: MarkerWriter
    sender: MarkerSender
    peers: Peers

    def start(self) -> None:
        self.coordinator.host.start()

    def follow(self, delta: ImageDelta) -> None:
        """A listener of the metadata feed, after the partition table."""
        self.coordinator.host.follow(delta)

    async def aclose(self) -> None:
        """Coordinate no more; the next coordinator carries out what is decided."""
        for part in (self.questions, self.coordinator.host, self.sender, self.peers):
            await part.aclose()


def make_transactions(
    settings: BrokerSettings, changes: MetadataChanges, admin: TopicAdmin, connect: Connect, shared: CoordinatorParts
) -> TransactionServices:
    """The parts for a broker with these settings."""
    image, me = changes.image, BrokerId(settings.broker_id)
    ids, peers, completions = ProducerIdPool(changes), Peers(image, connect), Completions()
    markers = MarkerWriter(shared.partitions, shared.groups, shared.clock)
    sender = MarkerSender(me, image, MarkerRoutes(markers, peers))
    snapshots = SnapshotRule(settings.coordinator_snapshot_min_bytes)
    kind = transaction_kind(transaction_options(settings), ids, completions, sender, snapshots)
    topic = transactions_topic(settings, image, admin)
    host = CoordinatorHost(kind, topic, shared.partitions, shared.clock, shared.metrics, shared.fail)
    coordinator = TransactionCoordinator(host, ids, completions)
    watch_transactions(host, shared.metrics, shared.clock)
    return TransactionServices(ids, coordinator, TransactionQuestions(me, coordinator, peers), markers, sender, peers)
