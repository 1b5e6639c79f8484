"""What a follower checks of the batches that its leader gives it, before it writes any of them.

Rules: pure; the leader has checked them too, but what is written here is given to others from here.
Proved by: tests/unit/log/test_partition_log.py
"""

from martlet.base.errors import ApiError, ErrorCode
from martlet.log.batch_order import COMPACTED, BatchOrder, KnownGaps
from martlet.log.batch_scan import batch_fault
from martlet.wire.batch import HEADER_BYTES, BatchHeader, read_batch_header


def check_replicated(view: memoryview, next_offset: int, gaps: KnownGaps) -> tuple[list[tuple[int, BatchHeader]], bool]:
    """Position and header of every batch in `view`, which must hold whole, sound batches in order and nothing else.

    Also says whether they leave gaps that are not known yet.
    """
    batches: list[tuple[int, BatchHeader]] = []
    order, has_gaps, at = BatchOrder(next_offset, COMPACTED), False, 0
    while at < len(view):
        fault: str | None = f"{len(view) - at} bytes are too few for a batch"
        if len(view) - at >= HEADER_BYTES:
            header = read_batch_header(view, at)
            fault = batch_fault(view, at, header, order)
        if fault is not None:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch at byte {at} is damaged or does not follow: {fault}")
        has_gaps = has_gaps or not gaps.allow(order.next_offset, header.base_offset)
        order.take(header)
        batches.append((at, header))
        at += header.size
    return batches, has_gaps
