"""Reads the state log of a pair into its queues, without holding up the event loop.

A thread reads and unpacks a chunk; the loop replays it. The log starts at the oldest snapshot that counts, so this is
bounded by live state. A new leader may hold more than was committed: it serves once all of it is.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

import asyncio
from functools import partial
from typing import Final

from martlet.base.errors import LogDamaged
from martlet.broker.coordinators.shard_loading import wait_committed
from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.broker.partitions.partition import Partition
from martlet.coordinator.loading import UNPACKED_BYTES_MAX
from martlet.coordinator.ports import LogEntry
from martlet.log.log_slice import LogSlice
from martlet.queues.partition_queues import PartitionQueues
from martlet.wire.batch import iterate_batches
from martlet.wire.records.index import index_records, unpack_batches

_CHUNK_BYTES: Final = 4 << 20
_ENTRIES_PER_TURN: Final = 200


async def load_queues(queues: PartitionQueues, log: PartitionShardLog, partition: Partition) -> int:
    """Replay the whole log and wait until it is committed; how many records there were. Raises ApiError.

    Leaves off when the log is closed: another leadership loads it again.
    """
    content = partition.log
    offset, end_offset = content.log_start_offset, content.end_offset
    count = 0
    while offset < end_offset and not log.closed:
        piece = content.locate(offset, max_bytes=_CHUNK_BYTES, end_offset=end_offset, at_least_one=True)
        loop = asyncio.get_running_loop()
        entries, next_offset = await loop.run_in_executor(None, partial(_read, piece, offset))
        for start in range(0, len(entries), _ENTRIES_PER_TURN):
            queues.replay(entries[start : start + _ENTRIES_PER_TURN])
            await asyncio.sleep(0)
        count += len(entries)
        if next_offset <= offset:
            raise LogDamaged(f"{log.name} ends at offset {end_offset}, but from {offset} on nothing is there")
        offset = next_offset
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
