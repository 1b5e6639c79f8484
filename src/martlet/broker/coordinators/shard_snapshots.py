"""Writes the snapshot of a shard while it serves, and then lets its log start there; see `coordinator/snapshots.py`.

The machine's live records are appended step by step, each step read from the machine in the turn in which it is
appended, and the next one when it is committed: a request waits for one step at most. What is not completed is
harmless; the next attempt begins at the machine again.

Rule: the log's start moves last, to where the snapshot began, when everything behind that is committed (SNAP-2).
"""

import asyncio
import logging
from typing import Any, Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.invariant import invariant
from martlet.broker.coordinators.hosted_shard import HostedShard
from martlet.broker.coordinators.shard_loading import wait_committed
from martlet.broker.partitions.partition import Partition

logger = logging.getLogger(__name__)

_RECORD_OVERHEAD_BYTES: Final = 10
"""Lengths, offset and time of a record in its batch, about."""


async def take_snapshot(hosted: HostedShard[Any]) -> None:
    """Write a snapshot, unless what is live turns out to be most of the log; a failure is logged and tried later."""
    growth, partition = hosted.log.growth, hosted.log.partition
    invariant(partition is not None, "what has grown has a log")
    if partition is None:
        return
    if growth.live_bytes is None:
        growth.live_bytes = await _measure(hosted)
    if not hosted.is_active or not growth.is_due:
        return
    if partition.log.producers.transactions.first_unstable_offset is not None:
        growth.failed()  # what open transactions have written is not live yet, and must not be left behind
        return
    history_bytes = growth.log_bytes
    try:
        start_offset, live_bytes = await _restate(hosted, partition)
    except ApiError as error:
        growth.failed()
        if not hosted.has_ended:
            logger.warning("no snapshot of %s could be written, it is tried again later: %s", hosted.log.name, error)
        return
    # What is written in open transactions is nowhere else: it is live, and in the log only.
    partition.log.advance_log_start(min(start_offset, partition.log.last_stable_offset))
    partition.watermarks.wake()  # the followers learn of it
    growth.restarted(growth.log_bytes - history_bytes, live_bytes)
    logger.info(
        "%s starts at a snapshot of %d bytes at offset %d and leaves %d bytes of history behind",
        hosted.log.name, live_bytes, start_offset, history_bytes,
    )  # fmt: skip


async def _restate(hosted: HostedShard[Any], partition: Partition) -> tuple[int, int]:
    """Append everything that lives; where that begins, and its size. Raises ApiError."""
    growth, shard = hosted.log.growth, hosted.shard
    start_offset = end_offset = partition.log.end_offset
    live_bytes = 0
    for records in hosted.machine.live_records():
        before = growth.log_bytes
        end_offset = shard.restate(records)
        live_bytes += growth.log_bytes - before
        await wait_committed(hosted.log, partition, end_offset)
        await asyncio.sleep(0)
    # Without anything live the log is dropped whole: then what removed it has to be committed.
    await wait_committed(hosted.log, partition, end_offset)
    if hosted.has_ended:
        raise ApiError(ErrorCode.NOT_COORDINATOR, f"{hosted.log.name} is served elsewhere")
    return start_offset, live_bytes


async def _measure(hosted: HostedShard[Any]) -> int:
    """About how many bytes a snapshot would take."""
    live_bytes = 0
    for records in hosted.machine.live_records():
        for entry in map(hosted.codec.encode, records):
            if entry is not None:
                key, value = entry
                live_bytes += len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        await asyncio.sleep(0)
    return live_bytes
