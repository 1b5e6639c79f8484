"""What a follower checks of the batches that its leader sends, before it writes any of them: one walk over the bytes.

Rules: pure. The leader has checked the batches too, but a follower serves to others what it writes here. Everything a
caller needs of the headers comes out of this walk: they are not read a second time.
Proved by: tests/unit/log/test_replicated_batches.py, tests/unit/log/test_partition_log.py
"""

from typing import NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.log.batch_order import COMPACTED, EPOCH_MAX, BatchOrder, KnownGaps
from martlet.log.batch_scan import batch_fault
from martlet.wire.batch import HEADER_BYTES, BatchHeader, read_batch_header


class ReplicatedBatches(NamedTuple):
    """At least one batch; all are whole and sound and follow one another, though perhaps not the log."""

    records: memoryview
    batches: list[tuple[int, BatchHeader]]
    """Position and header of each."""
    gaps: list[tuple[int, int]]
    """Between them: each offset that was due where another came, and that other."""

    @property
    def first(self) -> BatchHeader:
        return self.batches[0][1]

    def gaps_after(self, end_offset: int, known: KnownGaps) -> bool:
        """Whether appended at `end_offset` they leave gaps that are not known; ApiError when they do not follow it."""
        first = self.first
        if first.base_offset < end_offset:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the first batch does not follow: offset {first.base_offset} comes where {end_offset} was due",
            )
        if not known.allow(end_offset, first.base_offset):
            return True
        return bool(self.gaps) and not all(known.allow(*gap) for gap in self.gaps)


def check_replicated(
    records: memoryview | bytes, *, last_epoch: int = -1, newest_epoch: int = EPOCH_MAX
) -> ReplicatedBatches:
    """The batches in `records`; raises ApiError(CORRUPT_MESSAGE) when they are not whole, sound batches in order.

    `last_epoch` is the latest epoch of the log they are for, `newest_epoch` that of the leader that sends them: no
    checksum covers the epoch of a batch, which must lie between the two.
    """
    view = memoryview(records)
    batches: list[tuple[int, BatchHeader]] = []
    gaps: list[tuple[int, int]] = []
    order = BatchOrder(0, COMPACTED, epoch=last_epoch, epoch_max=newest_epoch)
    at, size = 0, len(view)
    while at < size or not batches:
        fault: str | None = f"{size - at} bytes are too few for a batch"
        if size - at >= HEADER_BYTES:
            header = read_batch_header(view, at)
            fault = batch_fault(view, at, header, order)
        if fault is not None:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch at byte {at} is damaged or does not follow: {fault}")
        if header.base_offset != order.next_offset and batches:
            gaps.append((order.next_offset, header.base_offset))
        order.take(header)
        batches.append((at, header))
        at += header.size
    return ReplicatedBatches(view, batches, gaps)
