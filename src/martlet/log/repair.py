"""Makes a damaged partition whole again at the price of what is lost, by an operator's word.

Rules: only what `check` has found, only where no broker uses the directory, and nothing is destroyed: a file that is
rewritten or left out stays in the directory under a name that ends in `.damaged`. Offsets are never handed out again:
the ranges given up are written to `known-gaps` before anything else, and the log goes on behind them.

How it works: a damaged segment is copied batch by batch, without what is not sound; where the end of a log is lost, an
empty segment begins where the log must go on; of a directory that is gone only that is made. Helper files are moved
aside, and the next start makes them again.
Proved by: tests/unit/log/test_check.py
"""

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Final

from martlet.base.disk import Disk
from martlet.log.batch_order import NO_LIMIT, read_gaps, write_gaps
from martlet.log.check import Finding, FindingKind
from martlet.log.file_names import ABORTED_INDEX, INDEX, LOG, TIME_INDEX, offset_file, parse_offset_file
from martlet.log.options import LogOptions
from martlet.log.segment import Segment

DAMAGED: Final = ".damaged"
_DRAFT: Final = ".repair"
_WRITE_BYTES: Final = 1 << 20


def repair(disk: Disk, directory: str, findings: Iterable[Finding]) -> None:
    """Mend one partition's directory, or with findings of no partition the log directory itself."""
    found = list(findings)
    lost = [
        (finding.first_offset, finding.next_offset)
        for finding in found
        if finding.first_offset is not None and finding.next_offset is not None
    ]
    ranges = {(first, following) for first, following in lost if first < following}
    if ranges:
        disk.make_directory(directory)
        gaps = read_gaps(disk, directory)
        write_gaps(disk, directory, gaps._replace(lost=tuple(sorted({*gaps.lost, *ranges}))))
    rewritten = sorted({finding.file for finding in found if finding.position is not None})
    for path in rewritten:
        _rewrite(disk, path, ranges)
    for finding in found:
        if finding.kind is FindingKind.REBUILT and disk.exists(finding.file):
            disk.rename(finding.file, finding.file + DAMAGED)
        if finding.file.endswith(ABORTED_INDEX):
            # Without the file no transaction would count as aborted; an empty one is made again.
            disk.open(finding.file, create=True).sync()
    if ranges:
        _go_on_at(disk, directory, max(following for _, following in ranges))
    for segment in _segments(disk, directory):
        if segment.path in rewritten:
            segment.rebuild_indexes()
    disk.sync_directory(directory)


def _rewrite(disk: Disk, path: str, lost: Collection[tuple[int, int]]) -> None:
    """Copy the sound batches of a segment but for those given up, put the copy in its place, keep what was there."""
    directory, _, name = path.rpartition("/")
    parsed = parse_offset_file(name)
    if parsed is None:
        return
    size = disk.open(path).size()
    gaps = read_gaps(disk, directory)
    segment = Segment(disk, directory, parsed[0], size=size, index_interval_bytes=1 << 30, gaps=gaps)
    draft = disk.open(path + _DRAFT, create=True)
    draft.truncate(0)
    pending = bytearray()
    for position, header in segment.survey(0, next_offset=parsed[0]):
        if any(first <= header.base_offset < following for first, following in lost):
            continue
        pending += segment.file.pread(header.size, position)
        if len(pending) >= _WRITE_BYTES:
            draft.append(pending)
            pending = bytearray()
    draft.append(pending)
    draft.sync()
    disk.rename(path, path + DAMAGED)
    disk.rename(path + _DRAFT, path)
    stem = path.removesuffix(LOG)
    for suffix in (INDEX, TIME_INDEX):
        disk.remove(stem + suffix)


def _go_on_at(disk: Disk, directory: str, next_offset: int) -> None:
    """Where what was given up reaches to the log's end, begin an empty segment behind it."""
    segments = _segments(disk, directory)
    if segments:
        last = segments[-1]
        end_offset = last.base_offset
        for _, header in last.survey(0, next_offset=end_offset):
            end_offset = header.next_offset
        if end_offset >= next_offset:
            return
    disk.open(f"{directory}/{offset_file(next_offset, LOG)}", create=True).sync()


def _segments(disk: Disk, directory: str) -> list[Segment]:
    """The segments as they are now, each with where the next one begins."""
    gaps, interval = read_gaps(disk, directory), LogOptions().index_interval_bytes
    found: list[Segment] = []
    for name, _, size in disk.list_directory(directory):
        parsed = parse_offset_file(name)
        if parsed is not None and parsed[1] == LOG:
            found.append(Segment(disk, directory, parsed[0], size=size, index_interval_bytes=interval, gaps=gaps))
    for segment, following in pairwise(found):
        segment.is_sealed, segment.next_offset = True, following.base_offset
    if found:
        found[-1].next_offset = NO_LIMIT
    return found
