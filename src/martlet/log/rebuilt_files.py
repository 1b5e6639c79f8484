"""Helper files of a log that can be made again from its messages: one that cannot be read is the same as none.

Such a file saves work and is never the truth, so a device or a permission that keeps it from us costs what its absence
costs and nothing else. Files that say what no message says, as the recovery floor does, are not read this way.
"""

from martlet.base.disk import Disk, DiskFile
from martlet.base.errors import DiskFull, StorageFailure


def read_rebuilt(disk: Disk, path: str) -> bytes | None:
    """The content, or None when the file is missing or cannot be read."""
    try:
        return disk.read_file(path)
    except StorageFailure:
        return None


def open_rebuilt(disk: Disk, path: str) -> DiskFile:
    """The file, to be written; one that cannot be opened is replaced by an empty one."""
    try:
        return disk.open(path, create=True)
    except DiskFull:
        raise
    except StorageFailure:
        disk.remove(path)
        return disk.open(path, create=True)
