"""What every handler may reach: one record of the broker's parts, put together by `app.py` and never changed after.

Only references live here; behaviour lives in the parts.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from martlet.base.addresses import Address, parse_address
from martlet.base.clock import Clock
from martlet.base.ids import BrokerId, Member
from martlet.broker.administration.producer_ids import ProducerIdPool
from martlet.broker.administration.topic_admin import TopicAdmin
from martlet.broker.coordinators.group_coordinator import GroupCoordinator
from martlet.broker.ground.request import Link
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.broker.routing.departures import Departures
from martlet.cluster.image import MetadataImage
from martlet.log.log_directory import LogDirectory
from martlet.observe.metrics import BrokerMetrics

if TYPE_CHECKING:
    from martlet.broker.serving.registry import Api


@dataclass(slots=True)
class BrokerServices:
    """The parts of one running broker."""

    settings: BrokerSettings
    me: Member
    """This very process."""
    clock: Clock
    cluster_id: str
    image: MetadataImage
    departures: Departures
    admin: TopicAdmin
    partitions: PartitionTable
    topic_settings: TopicSettings
    producer_ids: ProducerIdPool
    groups: GroupCoordinator
    logs: LogDirectory
    metrics: BrokerMetrics
    registry: Mapping[int, "Api"]
    checkpoint: Callable[[], Awaitable[None]]
    """Makes recovery points and log starts durable now."""
    fail: Callable[[BaseException], None]
    """Stops the process: something happened after which going on would make it worse."""

    @property
    def broker_id(self) -> BrokerId:
        return BrokerId(self.settings.broker_id)

    def address_for(self, link: Link) -> Address:
        """Where a client on this connection should find this broker."""
        if self.settings.advertised:
            return parse_address(self.settings.advertised)
        return link.local
