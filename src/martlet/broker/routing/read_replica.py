"""Which replica a reader should rather fetch from: one in its own rack, if the leader is in another (KIP-392).

A follower is named only when it is in sync, alive, reachable through the reader's listener, holds the offset asked for
(has not deleted it either), and knows that it is committed: else it would send the reader straight back.

Proved by: tests/unit/broker/parked/test_follower_reads.py
"""

from martlet.base.ids import BrokerId
from martlet.broker.partitions.partition import Partition
from martlet.cluster.image import MetadataImage
from martlet.cluster.records import BrokerRecord


def preferred_read_replica(
    partition: Partition, image: MetadataImage, *, rack: str, listener: str, fetch_offset: int
) -> BrokerId | None:
    """The follower in the reader's rack that holds most; None when the reader is served best here."""
    leader = partition.leader
    if leader is None or _is_in_rack(image.broker(partition.me.broker), rack):
        return None
    best: tuple[int, int] | None = None
    for progress in leader.followers():
        broker, incarnation = member = progress.member
        if member not in leader.in_sync.committed or progress.log_start_offset > fetch_offset:
            continue
        if min(progress.end_offset, progress.sent_high_watermark) < fetch_offset:
            continue
        process = image.live(broker)
        record = image.broker(broker)
        if process is None or process.incarnation != incarnation or not _is_in_rack(record, rack):
            continue
        if record is None or record.endpoint(listener) is None:
            continue
        candidate = (progress.end_offset, -broker)
        if best is None or candidate > best:
            best = candidate
    return BrokerId(-best[1]) if best is not None else None


def _is_in_rack(record: BrokerRecord | None, rack: str) -> bool:
    return record is not None and record.rack == rack
