"""Reads the state log of a pair into its queues, without holding up the event loop.

A thread reads and unpacks a chunk; the loop replays it. The log starts at the oldest snapshot that counts, so this is
bounded by live state. A new leader may hold more than was committed: it serves once all of it is.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

from martlet.broker.coordinators.shard_loading import in_turns, wait_committed
from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.broker.partitions.partition import Partition
from martlet.coordinator.loading import UNPACKED_BYTES_MAX
from martlet.coordinator.ports import LogEntry
from martlet.log.log_slice import LogSlice
from martlet.queues.partition_queues import PartitionQueues
from martlet.wire.batch import iterate_batches
from martlet.wire.records.index import index_records, unpack_batches


async def load_queues(queues: PartitionQueues, log: PartitionShardLog, partition: Partition) -> int:
    """Replay the whole log and wait until it is committed; how many records there were. Raises ApiError.

    Leaves off when the log is closed: another leadership loads it again.
    """
    end_offset, count = partition.log.end_offset, 0
    async for entries in in_turns(log, partition, _read):
        queues.replay(entries)
        count += len(entries)
    await wait_committed(log, partition, end_offset)
    return count


def _read(piece: LogSlice, from_offset: int) -> tuple[list[tuple[int, LogEntry]], int]:
    """Runs in a thread: the entries from an offset on, and the offset after the last whole batch."""
    data = piece.read()
    batches = list(iterate_batches(data))
    if not batches:
        return [], -1
    wanted = [(position, header) for position, header in batches if header.record_count and not header.is_control]
    entries: list[tuple[int, LogEntry]] = []
    if wanted:
        unpacked, spans = unpack_batches(data, wanted, max_bytes=UNPACKED_BYTES_MAX)
        index = index_records(unpacked, spans)
        bounds = index.bounds
        for row in range(index.record_count):
            if index.offsets[row] >= from_offset:
                key_start, key_end, value_start, value_end = bounds[4 * row : 4 * row + 4]
                value = None if index.null_values[row] else unpacked[value_start:value_end]
                entries.append((index.offsets[row], (unpacked[key_start:key_end], value)))
    return entries, batches[-1][1].next_offset
