"""Reads a partition of a running broker from its start to its end, and tells which offsets the broker cannot give.

How it works: one fetch after the other at the leader. Where one is answered with an error, the next readable offset is
looked for in growing steps, and then exactly, so that a long stretch costs few requests. What does arrive is checked:
whole batches, checksums, offsets that do not go back.
Proved by: tests/cli/test_log_check_end_to_end.py
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from martlet.base.errors import ERROR_TABLE, ErrorCode, error_code
from martlet.base.ids import TopicPartition
from martlet.client.apis import FETCH, NEWEST_BY_NAME
from martlet.client.cluster import Cluster, Purpose
from martlet.wire.batch import crc_matches, iterate_batches
from martlet.wire.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
    encode_fetch_request,
    parse_fetch_response,
)

_BYTES: Final = 4 << 20
_PROBE_BYTES: Final = 1


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Offsets that could not be read, and what the broker said."""

    partition: TopicPartition
    first_offset: int
    next_offset: int
    what: str


async def check_partition(cluster: Cluster, partition: TopicPartition, offsets: range) -> AsyncIterator[Unreadable]:
    """Every stretch of these offsets that cannot be read."""
    offset = offsets.start
    while offset < offsets.stop:
        result = await _fetch(cluster, partition, offset, _BYTES)
        next_offset, fault = _read(result, offset)
        if fault:
            after = await _next_readable(cluster, partition, next_offset, offsets.stop)
            yield Unreadable(partition, next_offset, after, fault)
            next_offset = after
        elif next_offset == offset:
            return
        offset = next_offset


def _read(result: FetchPartitionResult, offset: int) -> tuple[int, str]:
    """Up to where the answer is sound, and what is wrong there."""
    if result.error_code:
        code = error_code(result.error_code)
        return offset, f"{code.name}: {ERROR_TABLE[code].text}"
    for position, header in iterate_batches(result.records):
        if header.next_offset <= offset or not crc_matches(result.records, position, header):
            return offset, f"the broker gave a batch of offset {header.base_offset} that is damaged"
        offset = header.next_offset
    return offset, ""


async def _next_readable(cluster: Cluster, partition: TopicPartition, offset: int, end_offset: int) -> int:
    """The first offset behind an unreadable one that can be read, or the end."""
    bad, step = offset, 1
    while bad + step < end_offset:
        if await _is_readable(cluster, partition, bad + step):
            good = bad + step
            while good - bad > 1:
                middle = (bad + good) // 2
                if await _is_readable(cluster, partition, middle):
                    good = middle
                else:
                    bad = middle
            return good
        bad, step = bad + step, step * 2
    for candidate in range(bad + 1, end_offset):
        if await _is_readable(cluster, partition, candidate):
            return candidate
    return end_offset


async def _is_readable(cluster: Cluster, partition: TopicPartition, offset: int) -> bool:
    result = await _fetch(cluster, partition, offset, _PROBE_BYTES)
    return not _read(result, offset)[1]


async def _fetch(cluster: Cluster, partition: TopicPartition, offset: int, max_bytes: int) -> FetchPartitionResult:
    leader = await cluster.leader(partition)
    asked = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=[FetchTopic(partition.topic, None, [asked])]
    )
    connection = await cluster.connection(leader.broker_id, Purpose.FETCH)
    version = connection.version_of(FETCH, newest=NEWEST_BY_NAME)
    timeout_ms = cluster.options.request_timeout_ms
    body = encode_fetch_request(version, request)
    answer = parse_fetch_response(await connection.exchange(FETCH.key, version, body, timeout_ms=timeout_ms), version)
    results = [result for topic in answer.topics for result in topic.partitions]
    return results[0] if results else FetchPartitionResult(partition.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
