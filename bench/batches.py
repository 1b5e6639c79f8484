"""Ready-made record batches and Produce requests, shaped as librdkafka makes them.

librdkafka closes a batch at 1,000,000 bytes or 10,000 messages, whichever comes first (`batch.size`,
`batch.num.messages`), and sends one batch per request.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sim.randomness import SimRandomness

from bench.wire_client import produce_error_at, produce_frame
from martlet.wire.batch import HEADER_BYTES, build_batch

BATCH_BYTES_MAX: Final = 1_000_000
BATCH_MESSAGES_MAX: Final = 10_000
_DISTINCT: Final = 8
"""Different requests, in turn, so that not always the same megabyte lies in the processor's caches."""
_RECORD_OVERHEAD_BYTES: Final = 12


def build_values_batch(values: Sequence[bytes]) -> bytes:
    """An uncompressed batch of values without keys, stamped with the present time."""
    now_ms = time.time_ns() // 1_000_000
    return build_batch([(now_ms, None, value, ()) for value in values])


def bulk_batch(value_bytes: int, seed: int = 0) -> tuple[bytes, int]:
    """One full batch of values of that size, and how many messages it holds."""
    randomness = SimRandomness(seed)
    free_bytes = BATCH_BYTES_MAX - HEADER_BYTES
    count = max(1, min(BATCH_MESSAGES_MAX, free_bytes // (value_bytes + _RECORD_OVERHEAD_BYTES)))
    return build_values_batch([randomness.token(value_bytes) for _ in range(count)]), count


@dataclass(frozen=True)
class RequestFile:
    """Produce requests lying one after the other in a file, for the load client."""

    path: Path
    sizes: list[int]
    messages: list[int]
    error_at: int

    def messages_of(self, requests: int, first: int = 0) -> int:
        """How many messages `requests` requests hold, taken in turn from number `first` on."""
        rounds, rest = divmod(requests, len(self.messages))
        turn = [self.messages[(first + number) % len(self.messages)] for number in range(rest)]
        return rounds * sum(self.messages) + sum(turn)

    @property
    def mean_bytes(self) -> float:
        return sum(self.sizes) / len(self.sizes)


def write_requests(path: Path, topic: str, batches: Sequence[tuple[int, bytes, int]]) -> RequestFile:
    """Write one request per (partition, batch, messages)."""
    frames = [produce_frame(topic, partition, batch) for partition, batch, _ in batches]
    path.write_bytes(b"".join(frames))
    return RequestFile(path, list(map(len, frames)), [count for _, _, count in batches], produce_error_at(topic))


def write_bulk_requests(path: Path, topic: str, value_bytes: int, *, partitions: int = 1) -> RequestFile:
    """Full batches of values of that size, spread over the partitions in turn."""
    return write_requests(path, topic, list(_bulk_batches(value_bytes, partitions)))


def _bulk_batches(value_bytes: int, partitions: int) -> Iterator[tuple[int, bytes, int]]:
    for number in range(_DISTINCT):
        batch, count = bulk_batch(value_bytes, seed=number)
        yield number % partitions, batch, count
