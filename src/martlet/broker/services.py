"""What every handler may reach: one record of the broker's parts, put together by `app.py` and never changed after.

Only references live here; behaviour lives in the parts.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from martlet.base.clock import Clock
from martlet.base.ids import BrokerId, Member
from martlet.broker.access.parts import Access
from martlet.broker.administration.config_admin import ConfigAdmin
from martlet.broker.administration.partition_admin import PartitionAdmin
from martlet.broker.administration.topic_admin import TopicAdmin
from martlet.broker.coordinators.groups import GroupCoordinator
from martlet.broker.coordinators.transaction_parts import TransactionServices
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.broker.queueing.host import QueueHost
from martlet.broker.queueing.share_door import ShareDoor
from martlet.broker.routing.cluster_view import ClusterView
from martlet.broker.routing.departures import Departures
from martlet.cluster.image import MetadataImage
from martlet.log.log_directory import LogDirectory
from martlet.observe.metrics import BrokerMetrics
from martlet.wire.api_keys import ApiKey, Versions


@dataclass(slots=True)
class BrokerServices:
    """The parts of one running broker."""

    settings: BrokerSettings
    me: Member
    """This very process."""
    clock: Clock
    cluster_id: str
    image: MetadataImage
    metadata: MetadataChanges
    cluster: ClusterView
    departures: Departures
    topic_admin: TopicAdmin
    config_admin: ConfigAdmin
    partition_admin: PartitionAdmin
    partitions: PartitionTable
    topic_settings: TopicSettings
    access: Access
    groups: GroupCoordinator
    transactions: TransactionServices
    queues: QueueHost
    share: ShareDoor
    logs: LogDirectory
    metrics: BrokerMetrics
    api_versions: Mapping[ApiKey, Versions]
    """The versions that this broker advertises to clients it serves."""
    checkpoint: Callable[[], Awaitable[None]]
    """Makes recovery points and log starts durable now."""
    fail: Callable[[BaseException], None]
    """Stops the process: something happened after which going on would make it worse."""

    @property
    def broker_id(self) -> BrokerId:
        return BrokerId(self.settings.broker_id)
