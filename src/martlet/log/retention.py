"""Which segments a log no longer keeps: too old, too many bytes, or before its start.

Rules: decides, removes nothing. Segments go from the front only, and only below `up_to_offset`: what has not been
replicated everywhere is not history yet.

How it works: a segment is too old when its greatest timestamp is; a log is too large by whole segments only, so it
keeps at least `retention_bytes`. The segment being appended to may be chosen too: the caller rolls first.
Proved by: tests/unit/log/test_retention.py
"""

from martlet.log.options import LogOptions
from martlet.log.segment import NO_TIMESTAMP, Segment
from martlet.log.segment_list import SegmentList


def count_expired(
    segments: SegmentList,
    options: LogOptions,
    *,
    now_ms: int,
    up_to_offset: int,
    log_start_offset: int,
    untimed_since_ms: int,
) -> int:
    """How many segments from the first on may go; `untimed_since_ms` is the age of records without a timestamp."""
    excess_bytes = segments.size_bytes() - options.retention_bytes if options.retention_bytes >= 0 else 0
    count = 0
    for segment in segments:
        if segment.is_sealed and segment.next_offset <= log_start_offset:
            expired = True
        elif not options.delete or segment.size == 0 or segment.next_offset > up_to_offset:
            expired = False
        else:
            expired = excess_bytes >= segment.size or _is_too_old(segment, options, now_ms, untimed_since_ms)
        if not expired:
            break
        excess_bytes -= segment.size
        count += 1
    return count


def _is_too_old(segment: Segment, options: LogOptions, now_ms: int, untimed_since_ms: int) -> bool:
    if options.retention_ms < 0:
        return False
    latest_ms = segment.max_timestamp()[0]
    if latest_ms == NO_TIMESTAMP:
        latest_ms = untimed_since_ms
    return now_ms - latest_ms > options.retention_ms
