"""The cluster as a client on one connection should see it: who is there, under which address, and who leads.

Rules: only reads the metadata image. A broker that is not alive is never named as a leader, and as somewhere to connect
to only for a moment after it went (`departures.py`); this broker itself is always there, because the client has just
reached it.

How addresses are chosen: a client hears only of the listener it came through, by its name. This broker's own address
is the advertised one, else the one the client connected to; that of another broker is what it registered. A broker
without such a listener is neither named nor a leader to this client.

Proved by: tests/unit/broker/routing/test_cluster_view.py
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from martlet.base.addresses import Address
from martlet.base.ids import BrokerId
from martlet.broker.ground.request import Link
from martlet.cluster.image import MetadataImage
from martlet.cluster.liveness import read_states
from martlet.cluster.records import BrokerRecord, PartitionRecord

Present = Mapping[BrokerId, BrokerRecord]
"""The broker processes that can be talked to, by id."""


class Node(NamedTuple):
    """One broker as a client sees it."""

    id: BrokerId
    address: Address
    rack: str | None
    is_fenced: bool = False


def present_brokers(image: MetadataImage, me: BrokerId) -> Present:
    """All brokers that are alive, and this broker."""
    present = dict(read_states(image).alive)
    own = image.broker(me)
    if own is not None:
        present[me] = own
    return dict(sorted(present.items()))


class ClusterView:
    """The cluster as one broker describes it to its clients."""

    def __init__(
        self,
        image: MetadataImage,
        me: BrokerId,
        *,
        may_act: Callable[[], bool],
        rack: str | None = None,
    ) -> None:
        self.image = image
        self.me = me
        self._may_act = may_act
        self._rack = rack

    def present(self) -> Present:
        """All brokers that are alive, and this broker."""
        return present_brokers(self.image, self.me)

    def possible_leaders(self, link: Link) -> Present:
        """All that this client can reach and that can lead: this broker only while it is in touch.

        When it is not, others may have taken over.
        """
        may_act = self._may_act()
        return {
            number: record
            for number, record in self.present().items()
            if (may_act if number == self.me else record.endpoint(link.listener.name) is not None)
        }

    def nodes(self, link: Link, *, with_fenced: bool = False, besides: Collection[BrokerId] = ()) -> list[Node]:
        """The brokers to name, by id: the living, those in `besides`, and on request all that are registered."""
        present = self.present()
        found = [
            Node(record.id, address, record.rack, record.id not in present)
            for record in self.image.brokers()
            if (with_fenced or record.id in present or record.id in besides)
            and (address := self._address(record, link)) is not None
        ]
        if self.me not in present:
            found.append(Node(self.me, link.own_address, self._rack))
        return found

    def address_of(self, node: BrokerId, link: Link) -> Address | None:
        """Where a client on this connection finds a broker; None while that one is not alive."""
        if node == self.me:
            return link.own_address
        record = self.present().get(node)
        return self._address(record, link) if record is not None else None

    def controller(self, link: Link) -> BrokerId:
        """The broker to send changes to: the holder of the role or, as every broker can make them, this one."""
        role = self.image.controller
        if role is not None and self.address_of(role.holder.broker, link) is not None:
            return role.holder.broker
        return self.me

    def _address(self, record: BrokerRecord, link: Link) -> Address | None:
        if record.id == self.me:
            return link.own_address
        endpoint = record.endpoint(link.listener.name)
        return endpoint.address if endpoint is not None else None


def leader_of(partition: PartitionRecord, present: Present) -> BrokerId | None:
    """Who leads the partition and can be reached: the very process that was elected."""
    if partition.leader is None:
        return None
    process = present.get(partition.leader)
    if process is None or process.incarnation != partition.leader_incarnation:
        return None
    return partition.leader
