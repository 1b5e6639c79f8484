"""How far the logs of a partition without a leader go: what an unclean election compares before it chooses.

Rules: pure. The metadata holds no offsets while there is a leader: they would be old at once. Without one nothing is
appended and nothing is truncated, so what a replica says about its log then stays true for as long as its process runs.

How it works: when no complete replica is alive, every living one writes into the partition's record where its log ends
and of which epoch its last message is. An election clears it. Where every candidate has reported, the one with the
latest epoch, and of these the longest log, lacks least; that is the order of Raft.

Proved by: tests/unit/cluster/test_log_ends.py, tests/unit/broker/administration/test_log_end_reports.py
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from martlet.base.ids import Member, TopicPartition
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import broker_key, partition_key
from martlet.cluster.liveness import BrokerStates
from martlet.cluster.records import BrokerRecord, LogEnd, PartitionRecord, encode_record
from martlet.cluster.replica_decisions import live_member
from martlet.cluster.store import CommitPlan

REPORTS_MAX: Final = 100
"""Partitions spoken of in one commit; the broker's own record is compared as well."""


def unreported(
    image: MetadataImage, states: BrokerStates, me: Member
) -> Iterator[tuple[TopicPartition, PartitionRecord]]:
    """Partitions of which this process has to say how far its log goes."""
    for topic in image.topics():
        for partition in image.partitions(topic.name):
            if is_asked(partition, states, me):
                yield TopicPartition(topic.name, partition.partition), partition


def is_asked(partition: PartitionRecord, states: BrokerStates, me: Member) -> bool:
    """Whether this process has to say how far its log of a partition without a leader goes."""
    if partition.leader is not None or me.broker not in partition.replicas or len(partition.replicas) == 1:
        return False
    if any((end.broker, end.incarnation) == me for end in partition.log_ends):
        return False
    return not any(live_member(entry, states.alive) is not None for entry in (*partition.isr, *partition.elr))


def plan_reports(reports: Iterable[tuple[PartitionRecord, LogEnd]], broker: BrokerRecord) -> CommitPlan:
    """Write these log ends of one broker; fails if anything has happened to a partition, or to the broker, since."""
    compares = {broker_key(broker.id): broker.mod_revision}
    puts: dict[str, bytes] = {}
    for partition, end in reports:
        others = tuple(one for one in partition.log_ends if one.broker != end.broker)
        key = partition_key(partition.topic_id, partition.partition)
        compares[key] = partition.mod_revision
        puts[key] = encode_record(replace(partition, log_ends=(*others, end)))
    return CommitPlan(compares, puts)
