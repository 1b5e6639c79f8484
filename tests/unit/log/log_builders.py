"""Short ways to make batches, disks and logs for the tests of this folder."""

from collections.abc import Sequence

from sim.disk import SimDisk
from sim.randomness import SimRandomness

from martlet.base.disk import Disk
from martlet.base.ids import TopicPartition
from martlet.log.log_slice import Appended
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.log.recovery import LogCheckpoint
from martlet.wire.batch import (
    TRANSACTIONAL_BIT,
    TransactionMarker,
    build_batch,
    build_marker_batch,
    iterate_batches,
    read_batch_header,
)
from martlet.wire.records.record import Record, read_records

PARTITION = TopicPartition("orders", 0)
DIRECTORY = "data/orders-0"
NOW_MS = 1_000_000
SMALL = LogOptions(segment_bytes=1000, index_interval_bytes=200, retention_ms=-1)


def new_disk(seed: int = 0, *, page_bytes: int = 512) -> SimDisk:
    """A disk with an empty data directory that survives everything."""
    disk = SimDisk(SimRandomness(seed), page_bytes=page_bytes)
    disk.make_directory("data")
    disk.sync_directory("")
    return disk


def open_log(
    disk: Disk, options: LogOptions = SMALL, checkpoint: LogCheckpoint | None = None, now_ms: int = NOW_MS
) -> PartitionLog:
    """The log of PARTITION, by default as if nothing had ever been checkpointed."""
    known = LogCheckpoint() if checkpoint is None else checkpoint
    return PartitionLog.open(disk, DIRECTORY, options, partition=PARTITION, checkpoint=known, now_ms=now_ms)


def batch_of(
    *values: bytes,
    timestamp_ms: int = NOW_MS,
    key: bytes | None = b"k",
    compression: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """A batch as a client sends it; `producer` is id, epoch and first sequence number."""
    records = [(timestamp_ms + number, key, value, ()) for number, value in enumerate(values)]
    producer_id, epoch, sequence = producer
    return bytearray(
        build_batch(
            records, compression=compression, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
    )


def transactional(producer_id: int, *values: bytes, epoch: int = 0, sequence: int = 0, key: bytes = b"k") -> bytearray:
    """A batch inside its producer's transaction."""
    records = [(NOW_MS, key, value, ()) for value in values]
    return bytearray(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL_BIT,
        )
    )


def marker(producer_id: int, *, epoch: int = 0, is_commit: bool = True, coordinator_epoch: int = 1) -> bytearray:
    """The control batch that ends a producer's transaction."""
    decision = TransactionMarker(is_commit, coordinator_epoch)
    return bytearray(build_marker_batch(decision, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=NOW_MS))


def append(log: PartitionLog, batch: bytearray, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> Appended:
    return log.append(memoryview(batch), read_batch_header(batch), leader_epoch=leader_epoch, now_ms=now_ms)


def fill(log: PartitionLog, batches: int, *, records: int = 2, value_bytes: int = 50, leader_epoch: int = 0) -> None:
    """Append this many batches, each a little later than the one before."""
    for number in range(batches):
        values = [b"%d" % number * value_bytes] * records
        append(log, batch_of(*[value[:value_bytes] for value in values], timestamp_ms=NOW_MS + 10 * number),
               leader_epoch=leader_epoch)  # fmt: skip


def checkpointed(log: PartitionLog, *, is_clean: bool = False) -> LogCheckpoint:
    """Flush and checkpoint the log, and return what the directory's checkpoint files would say."""
    log.durability.flush()
    ticket = log.durability.begin_checkpoint()
    if ticket is not None:
        ticket.write()
        log.durability.complete_checkpoint(ticket)
    return LogCheckpoint(log.durability.recovery_point, log.log_start_offset, log.compaction.cleaned_offset, is_clean)


def close_cleanly(log: PartitionLog) -> LogCheckpoint:
    """Stop the log cleanly and return what the directory would remember."""
    log.durability.close()
    return checkpointed(log, is_clean=True)


def batches_in(log: PartitionLog, *, max_bytes: int = 400) -> list[bytes]:
    """Every batch from the log's start on, read as a consumer does."""
    found: list[bytes] = []
    offset, end = log.log_start_offset, log.end_offset
    while offset < end:
        content = log.locate(offset, max_bytes=max_bytes, end_offset=end, at_least_one=True).read()
        assert content, f"offset {offset} leads nowhere"
        for position, header in iterate_batches(content):
            found.append(content[position : position + header.size])
            offset = header.next_offset
    return found


def records_in(log: PartitionLog) -> list[Record]:
    return [record for batch in batches_in(log) for record in read_records(batch, 1 << 20, check_crc=True)]


def offsets(batches: Sequence[bytes]) -> list[int]:
    """The base offsets of some batches."""
    return [read_batch_header(batch).base_offset for batch in batches]
