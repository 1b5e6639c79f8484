"""Tells a client that came to the wrong broker where the leader is, so that it need not ask for metadata first.

Made only for answers that hold such an error (Produce from version 10 on, Fetch from 12, with addresses from 16).
"""

from collections.abc import Iterable
from typing import Final, TypeVar

from martlet.base.errors import ErrorCode
from martlet.base.ids import BrokerId, TopicId
from martlet.broker.ground.request import Link
from martlet.broker.routing.cluster_view import ClusterView, leader_of
from martlet.cluster.image import MetadataImage
from martlet.cluster.records import PartitionRecord
from martlet.wire.fetch import FetchPartitionResult
from martlet.wire.leader_hints import CurrentLeader, NodeEndpoint
from martlet.wire.produce import ProducePartitionResult

Result = TypeVar("Result", ProducePartitionResult, FetchPartitionResult)

_HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def add_leader_hints(
    cluster: ClusterView, link: Link, answer: Iterable[tuple[str | None, bytes | None, list[Result]]]
) -> list[NodeEndpoint]:
    """Put the leaders into those results that ask for it; returns where they can be reached."""
    leaders: dict[BrokerId, None] = {}
    present = cluster.present()
    for name, topic_id, results in answer:
        for position, result in enumerate(results):
            if result.error_code not in _HINTED:
                continue
            record = _record(cluster.image, name, topic_id, result[0])
            leader = leader_of(record, present) if record is not None else None
            if record is not None and leader is not None and leader != cluster.me:
                leaders[leader] = None
                results[position] = result._replace(current_leader=CurrentLeader(leader, record.leader_epoch))
    return [
        NodeEndpoint(leader, address.host, address.port, present[leader].rack)
        for leader in leaders
        if (address := cluster.address_of(leader, link)) is not None
    ]


def leaders_of(
    cluster: ClusterView, link: Link, partitions: Iterable[tuple[TopicId, int]]
) -> tuple[dict[tuple[TopicId, int], CurrentLeader], list[NodeEndpoint]]:
    """The leaders of those partitions that another broker leads, and where they can be reached."""
    present = cluster.present()
    found: dict[tuple[TopicId, int], CurrentLeader] = {}
    for topic_id, index in partitions:
        record = _record(cluster.image, None, topic_id, index)
        leader = leader_of(record, present) if record is not None else None
        if record is not None and leader is not None and leader != cluster.me:
            found[topic_id, index] = CurrentLeader(leader, record.leader_epoch)
    endpoints = [
        NodeEndpoint(leader, address.host, address.port, present[leader].rack)
        for leader in dict.fromkeys(BrokerId(one.leader_id) for one in found.values())
        if (address := cluster.address_of(leader, link)) is not None
    ]
    return found, endpoints


def _record(image: MetadataImage, name: str | None, topic_id: bytes | None, index: int) -> PartitionRecord | None:
    if name is None:
        topic = image.topic_by_id(TopicId(topic_id or b""))
        name = topic.name if topic is not None else ""
    return image.partition(name, index)
