"""Loads a shard from its partition's log without holding up the event loop.

A thread reads and decodes a chunk; the loop replays it a few records at a time. Nothing is appended to the partition
meanwhile, because the shard refuses every request until it is active. The log starts at the newest whole snapshot, if
one was written, so that is where loading begins.

A new leader holds all that was committed and perhaps more, and the more is committed under its leadership or never. So
everything is replayed, and the shard serves once all of it is committed: before that its answers might be lost again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial
from typing import Final, TypeVar

from martlet.base.errors import ApiError, ErrorCode, LogDamaged, StorageFailure
from martlet.base.invariant import invariant
from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.broker.partitions.partition import Partition
from martlet.coordinator.loading import decode_batches
from martlet.coordinator.result import RecordCodec
from martlet.coordinator.shard import Shard, ShardState
from martlet.log.log_slice import LogSlice

logger = logging.getLogger(__name__)

E = TypeVar("E")
R = TypeVar("R")

_CHUNK_BYTES: Final = 4 << 20
_ENTRIES_PER_TURN: Final = 200


async def load_shard(
    shard: Shard[R],
    log: PartitionShardLog,
    codec: RecordCodec[R],
    turn: AbstractAsyncContextManager[object],
    *,
    are_deltas: bool = False,
) -> int:
    """Replay the whole log and activate the shard; returns the number of records. `turn` is held while it reads.

    A log that is damaged or has failed leaves the shard closed; the coordinator will try again. A shard closed
    meanwhile, or whose broker does not lead any more, is left alone.
    """
    partition = log.partition
    invariant(partition is not None, "what is loaded has a log")
    count = 0
    try:
        if partition is not None:
            async with turn:
                count = await _replay_all(shard, log, partition, partial(_read, shard.name, codec, are_deltas))
            # No client may learn of what is not committed, and that includes what was there before.
            await wait_committed(log, partition, partition.log.end_offset)
    except (ApiError, StorageFailure) as error:
        if not log.closed:
            logger.critical("%s cannot be loaded and is not served: %s", shard.name, error)
            shard.close(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{shard.name} could not be loaded: {error}"))
            if isinstance(error, StorageFailure):
                log.read_failed(error)
        return 0
    if shard.state is ShardState.LOADING and not log.closed:
        shard.activate()
    return count


async def _replay_all(
    shard: Shard[R], log: PartitionShardLog, partition: Partition, read: Callable[[LogSlice, int], tuple[list[R], int]]
) -> int:
    count = 0
    async with aclosing(in_turns(log, partition, read)) as turns:
        async for records in turns:
            if shard.state is not ShardState.LOADING or log.closed:
                break
            shard.replay_loaded(records)
            count += len(records)
    return count


async def in_turns(
    log: PartitionShardLog, partition: Partition, read: Callable[[LogSlice, int], tuple[list[E], int]]
) -> AsyncGenerator[list[E], None]:
    """What is in the log now, as much at a time as may be worked on in one turn of the event loop; LogDamaged.

    `read` runs in a thread: what is in a slice from an offset on, and the offset after the last whole batch.
    """
    content = partition.log
    offset, end_offset = content.log_start_offset, content.end_offset
    while offset < end_offset and not log.closed:
        piece = content.locate(offset, max_bytes=_CHUNK_BYTES, end_offset=end_offset, at_least_one=True)
        log.growth.added(piece.size)
        entries, next_offset = await asyncio.get_running_loop().run_in_executor(None, read, piece, offset)
        for start in range(0, len(entries), _ENTRIES_PER_TURN):
            yield entries[start : start + _ENTRIES_PER_TURN]
            await asyncio.sleep(0)
        if next_offset <= offset:
            # A part of the state would be taken for all of it.
            raise LogDamaged(f"{log.name} ends at offset {end_offset}, but from {offset} on nothing is there")
        offset = next_offset


def _read(name: str, codec: RecordCodec[R], are_deltas: bool, piece: LogSlice, offset: int) -> tuple[list[R], int]:
    """Runs in a thread."""
    return decode_batches(name, piece.read(), codec, offset, are_deltas=are_deltas)


async def wait_committed(log: PartitionShardLog, partition: Partition, end_offset: int) -> None:
    """Return when everything before `end_offset` is committed, or the log is closed; raises ApiError."""
    if log.closed:
        return
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if partition.when_committed(end_offset, lambda: None if future.done() else future.set_result(None)):
        await future
