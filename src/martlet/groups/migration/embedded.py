"""Between partitions by topic id, as the broker has them, and by topic name, as classic members write them."""

from collections.abc import Mapping, Sequence

from martlet.groups.consumer.description import numbers_by_name
from martlet.groups.records import ClassicProtocolStored, Partitions
from martlet.groups.topics import TopicsView
from martlet.wire.consumer_protocol import read_subscription, write_assignment


def partitions_of(named: Mapping[str, Sequence[int]], topics: TopicsView) -> Partitions:
    """By topic id; topics and partitions that do not exist are left out."""
    found = []
    for name, numbers in named.items():
        view = topics.topic(name)
        if view is not None:
            found += [(view.id, number) for number in numbers if 0 <= number < view.partition_count]
    return frozenset(found)


def assignment_bytes(assigned: Partitions, protocol: ClassicProtocolStored, topics: TopicsView) -> bytes:
    """What a member is assigned, in the version in which it has written its own subscription."""
    subscription = read_subscription(protocol.protocols[0][1]) if protocol.protocols else None
    version = 0 if subscription is None else subscription.version
    return write_assignment(version, numbers_by_name(assigned, topics))
