"""The parts that serve queues, put together.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from martlet.base.ids import BrokerId
from martlet.base.randomness import IdSource, Randomness
from martlet.broker.coordinators.transaction_parts import CoordinatorParts
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.broker.queueing.dead_letters import DeadLetterOffice, DeadLetterWriter
from martlet.broker.queueing.host import QueueHost
from martlet.broker.queueing.queue_gauges import watch_queues
from martlet.broker.queueing.share_door import ShareDoor
from martlet.broker.queueing.share_standings import ShareStandings
from martlet.broker.queueing.subscription_admin import SubscriptionAdmin
from martlet.broker.routing.peers import Peers
from martlet.cluster.image import MetadataImage

MemberLeft: TypeAlias = Callable[[str, str], None]

_SUBSCRIPTIONS_MAX: Final = 200
"""That have series of their own in the metrics."""


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
    queues = QueueHost(admin, table, topic_settings, clock, randomness, DeadLetterOffice(writer, clock))
    watch_queues(queues, shared.metrics, _SUBSCRIPTIONS_MAX)
    return queues


def make_share(
    image: MetadataImage, queues: QueueHost, peers: Peers, me: BrokerId, on_member_left: list[MemberLeft]
) -> ShareDoor:
    """The door of Kafka's share protocol to these queues; it wants to hear of members that have left their groups."""
    door = ShareDoor(queues, ShareStandings(me, image, queues, peers))
    on_member_left.append(door.member_left)
    return door
