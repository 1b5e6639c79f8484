"""The cluster as a client on one connection should see it: who is there, under which address, and who leads.

Rules: only reads the metadata image. A broker that is not alive is never named as a leader, and as somewhere to connect
to only for a moment after it went (`departures.py`); this broker itself is always there, because whoever asks has just
reached it.

How addresses are chosen: this broker's own is the advertised one, else the one the client connected to. That of
another broker is what it registered under.

Proved by: tests/unit/broker/test_cluster_view.py
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from martlet.base.addresses import Address
from martlet.base.ids import BrokerId
from martlet.broker.ground.request import Link
from martlet.broker.services import BrokerServices
from martlet.cluster.image import MetadataImage
from martlet.cluster.liveness import read_states
from martlet.cluster.records import BrokerRecord, PartitionRecord

Present = Mapping[BrokerId, BrokerRecord]
"""The broker processes that can be talked to, by id."""


class Node(NamedTuple):
    """One broker as told to a client."""

    id: BrokerId
    address: Address
    rack: str | None
    is_fenced: bool = False


def present_brokers(image: MetadataImage, me: BrokerId) -> Present:
    """Everybody alive, and this broker."""
    present = dict(read_states(image).alive)
    own = image.broker(me)
    if own is not None:
        present[me] = own
    return dict(sorted(present.items()))


def possible_leaders(broker: BrokerServices) -> Present:
    """Everybody alive who can lead: not this broker once it has lost touch, because others may have taken over."""
    present = present_brokers(broker.image, broker.broker_id)
    if broker.partitions.may_act():
        return present
    return {number: record for number, record in present.items() if number != broker.broker_id}


def nodes(
    broker: BrokerServices, link: Link, *, with_fenced: bool = False, besides: Collection[BrokerId] = ()
) -> list[Node]:
    """The brokers to tell of, by id: the living, `besides` them these, on request all that are registered."""
    present = present_brokers(broker.image, broker.broker_id)
    found = [
        Node(record.id, address, record.rack, record.id not in present)
        for record in broker.image.brokers()
        if (with_fenced or record.id in present or record.id in besides)
        and (address := _address(broker, record, link)) is not None
    ]
    if broker.broker_id not in present:
        found.append(Node(broker.broker_id, broker.address_for(link), broker.settings.rack or None))
    return found


def address_of(broker: BrokerServices, node: BrokerId, link: Link) -> Address | None:
    """Where a client on this connection finds a broker; None while that one is not alive."""
    if node == broker.broker_id:
        return broker.address_for(link)
    record = present_brokers(broker.image, broker.broker_id).get(node)
    return _address(broker, record, link) if record is not None else None


def controller_of(broker: BrokerServices) -> BrokerId:
    """Whom to ask for changes: the holder of the role or, as every broker can carry them out, this one."""
    role = broker.image.controller
    if role is not None and role.holder.broker in present_brokers(broker.image, broker.broker_id):
        return role.holder.broker
    return broker.broker_id


def leader_of(partition: PartitionRecord, present: Present) -> BrokerId | None:
    """Who leads the partition and can be talked to: the very process that was elected."""
    if partition.leader is None:
        return None
    process = present.get(partition.leader)
    if process is None or process.incarnation != partition.leader_incarnation:
        return None
    return partition.leader


def _address(broker: BrokerServices, record: BrokerRecord, link: Link) -> Address | None:
    if record.id == broker.broker_id:
        return broker.address_for(link)
    if not record.endpoints:
        return None
    return Address(record.endpoints[0].host, record.endpoints[0].port)
