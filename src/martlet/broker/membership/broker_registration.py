"""Registers this process as its broker, and elects it for the partitions that it led before it was started.

Invariants: CLS-8 to CLS-10 of `martlet.cluster`'s decisions about brokers.

Proved by: tests/unit/broker/administration/test_topic_admin.py, tests/unit/broker/membership/test_membership.py
"""

from collections.abc import Callable

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import Member
from martlet.base.randomness import IdSource
from martlet.broker.ground.listeners import Listeners
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.cluster.broker_decisions import (
    Registration,
    is_registered_as,
    plan_own_elections,
    plan_registration,
)
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import CLUSTER_KEY, INCARNATION_COUNTER_KEY, broker_key
from martlet.cluster.records import BrokerRecord, Endpoint, decode_record


async def register_broker(changes: MetadataChanges, registration: Registration, ids: IdSource, clock: Clock) -> Member:
    """Register this process under a new incarnation; the first process of all makes the cluster."""
    new_cluster_id, new_replica_secret = ids.text_id(), ids.text_id()
    for _ in changes.attempts():
        broker = await changes.get(broker_key(registration.id))
        if broker is not None and is_registered_as(registration, broker):
            await changes.wait_applied(broker.mod_revision)
            me = Member(registration.id, decode_record(BrokerRecord, broker).incarnation)
            break
        plan = plan_registration(
            registration,
            cluster=await changes.get(CLUSTER_KEY),
            broker=broker,
            counter=await changes.get(INCARNATION_COUNTER_KEY),
            new_cluster_id=new_cluster_id,
            new_replica_secret=new_replica_secret,
            now_ms=clock.now_ms(),
        )
        if await changes.commit(plan.commit) is not None:
            me = Member(plan.broker.id, plan.broker.incarnation)
            break
    _own_record(changes.image, me)
    return me


async def elect_own_partitions(changes: MetadataChanges, me: Member) -> int:
    """Lead again, under a new leader epoch, what this broker led before it was started; returns how many partitions."""
    image, elected = changes.image, 0
    for _ in changes.attempts():
        partitions = [each for topic in image.topics() for each in image.partitions(topic.name)]
        plans = list(plan_own_elections(partitions, _own_record(image, me)))
        if await changes.commit_all(plans, wait_for_each=False):
            elected = sum(len(plan.puts) for plan in plans)
            break
    return elected


def registered_endpoints(
    listeners: Listeners, *, is_embedded: bool, host_name: Callable[[], str]
) -> tuple[Endpoint, ...]:
    """Where others find a broker with these listeners; their addresses are the ones that are bound."""
    endpoints = []
    for one in listeners.all:
        host, port = one.advertised or one.address
        host = _reachable_host(host, is_embedded=is_embedded, host_name=host_name)
        endpoints.append(Endpoint(one.name, host, port, one.protocol.value))
    return tuple(endpoints)


def _reachable_host(host: str, *, is_embedded: bool, host_name: Callable[[], str]) -> str:
    """The name of a broker that listens at `host`: a wildcard address is none."""
    if host not in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return host
    # Brokers that share a file are on one machine.
    return "127.0.0.1" if is_embedded else host_name()


def _own_record(image: MetadataImage, me: Member) -> BrokerRecord:
    record = image.broker(me.broker)
    if record is None or record.incarnation != me.incarnation:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"broker {me.broker} was registered again by another process")
    return record
