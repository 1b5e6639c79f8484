"""Putting a compacted segment in the place of the ones it was made from, so that a crash leaves the old or the new.

How it works, for one group of neighbouring segments and the file made of them:

    <base>.log.cleaned      being written; worthless after a crash
    <base>.log.swap         written and synced; from this rename on the new one counts
    (sources removed)       all but the first are gone, and all their index files
    <base>.log              the swap file takes the first source's name

The index of aborted transactions at <base> speaks for all sources before the first rename, and stays.

Every step is made durable before the next is taken. After a crash a `.cleaned` file is removed and a `.swap` file is
carried through: the segments it replaces are those that begin within its offsets, because a compacted file always
keeps the last batch of its group, emptied if need be.

Invariants: SWAP-1 at every instant the directory holds every surviving record in one of the states above; SWAP-2 doing
the remaining steps twice does no harm.
Proved by: tests/unit/log/test_compaction.py, tests/properties/test_log_compaction.py
"""

from martlet.base.disk import DirectoryEntry, Disk
from martlet.base.errors import LogDamaged
from martlet.log.batch_order import COMPACTED, BatchOrder
from martlet.log.batch_scan import BatchScan
from martlet.log.file_names import CLEANED, INDEX, INDEX_KINDS, LOG, SWAP, TIME_INDEX, offset_file, parse_offset_file


def commit_swap(disk: Disk, directory: str, base_offset: int, source_bases: list[int]) -> None:
    """Take a synced `.cleaned` file through all the states."""
    path = f"{directory}/{offset_file(base_offset, LOG)}"
    disk.rename(path + CLEANED, path + SWAP)
    disk.sync_directory(directory)
    _replace_sources(disk, directory, base_offset, source_bases)


def finish_swaps(disk: Disk, directory: str, entries: list[DirectoryEntry]) -> bool:
    """After a crash: drop unfinished compactions and complete committed ones; whether there were any."""
    names = [entry.name for entry in entries if not entry.is_directory]
    if not any(name.endswith((CLEANED, SWAP)) for name in names):
        return False
    for name in names:
        if name.endswith(CLEANED):
            disk.remove(f"{directory}/{name}")
    files = [parsed for parsed in map(parse_offset_file, names) if parsed is not None]
    bases = [offset for offset, suffix in files if suffix == LOG]
    for base_offset in [offset for offset, suffix in files if suffix == LOG + SWAP]:
        end_offset = _end_of_swap(disk, f"{directory}/{offset_file(base_offset, LOG + SWAP)}", base_offset)
        _replace_sources(disk, directory, base_offset, [base for base in bases if base_offset <= base < end_offset])
    return True


def _replace_sources(disk: Disk, directory: str, base_offset: int, source_bases: list[int]) -> None:
    for base in source_bases:
        for suffix in (INDEX, TIME_INDEX) if base == base_offset else (LOG, *INDEX_KINDS):
            disk.remove(f"{directory}/{offset_file(base, suffix)}")
    disk.sync_directory(directory)
    path = f"{directory}/{offset_file(base_offset, LOG)}"
    disk.rename(path + SWAP, path)
    disk.sync_directory(directory)


def _end_of_swap(disk: Disk, path: str, base_offset: int) -> int:
    file = disk.open(path)
    scan = BatchScan(file, 0, file.size(), BatchOrder(base_offset, COMPACTED), check_crc=True)
    for _ in scan:
        pass
    if scan.fault is not None:
        # It was synced before it got this name: the device damaged it, and the sources may be gone already.
        raise LogDamaged(f"{path}: damaged at byte {scan.position}, near offset {scan.next_offset}: {scan.fault}")
    return scan.next_offset
