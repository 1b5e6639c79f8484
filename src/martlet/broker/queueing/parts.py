"""The parts that serve queues, put together.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

from martlet.base.randomness import IdSource, Randomness
from martlet.broker.coordinators.transaction_parts import CoordinatorParts
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.broker.queueing.dead_letters import DeadLetterOffice, DeadLetterWriter
from martlet.broker.queueing.host import QueueHost
from martlet.broker.queueing.subscription_admin import SubscriptionAdmin
from martlet.broker.routing.peers import Peers


def make_queues(
    changes: MetadataChanges,
    topic_settings: TopicSettings,
    shared: CoordinatorParts,
    peers: Peers,
    randomness: Randomness,
) -> QueueHost:
    """The queues of a broker, not started."""
    clock, table = shared.clock, shared.partitions
    writer = DeadLetterWriter(table.me, changes.image, table, peers, clock)
    admin = SubscriptionAdmin(changes, clock, IdSource(randomness))
    return QueueHost(admin, table, topic_settings, clock, randomness, DeadLetterOffice(writer, clock))
