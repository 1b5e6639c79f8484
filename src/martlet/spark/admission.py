"""How much of what is there goes into the next micro-batch: at most N messages, shared fairly among partitions.

Rules: pure; positions in, positions out.

Invariants:
SPK-1 No partition's end goes back before its beginning, nor beyond its latest offset.
SPK-2 All partitions together are given at most the limit, and exactly the limit where more is there.
SPK-3 As long as messages wait and the limit is positive, some are admitted.

Proved by: tests/unit/spark/test_admission.py
"""

from collections.abc import Mapping

from martlet.base.ids import TopicPartition


def waiting(begin: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """How many messages lie between, in all partitions; one that begins later than it ends has none."""
    return sum(max(0, end - begin.get(partition, 0)) for partition, end in latest.items())


def admit(
    begin: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Where the next micro-batch ends: shares by how much waits in a partition, remainders to the largest ones."""
    sizes = {partition: max(0, end - begin.get(partition, 0)) for partition, end in latest.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(latest)
    shares = {partition: size * limit // total for partition, size in sizes.items()}
    left = limit - sum(shares.values())
    # What rounding left goes, one by one, to those who lost most by it.
    for partition in sorted(sizes, key=lambda partition: (-(sizes[partition] * limit % total), partition)):
        if left == 0:
            break
        if shares[partition] < sizes[partition]:
            shares[partition] += 1
            left -= 1
    return {
        # One that begins after its end is left there: `planning` has decided what that means.
        partition: begin.get(partition, 0) + shares[partition] if sizes[partition] else latest[partition]
        for partition in latest
    }


class Patience:
    """Holds micro-batches back until enough messages wait, or until some have waited long enough."""

    def __init__(self, least: int, delay_ms_max: int) -> None:
        self._least = least
        self._delay_ms_max = delay_ms_max
        self._since_ms: int | None = None

    def holds_back(self, messages: int, now_ms: int) -> bool:
        """Whether to wait for more. The time runs from when messages were first held back."""
        if messages == 0:
            return False
        if self._since_ms is None:
            self._since_ms = now_ms
        if messages < self._least and now_ms - self._since_ms < self._delay_ms_max:
            return True
        self._since_ms = None
        return False
