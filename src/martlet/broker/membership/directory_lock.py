"""Keeps two broker processes from using one data directory at the same time.

The lock is the kernel's, on an open file: it goes with the process however that ends, so no stale lock can remain.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from martlet.base.errors import DirectoryInUse, StorageFailure


@contextlib.contextmanager
def hold_directory(directory: str) -> Iterator[None]:
    """Hold the lock; raises DirectoryInUse naming the directory when another process has it."""
    path = os.path.join(directory, ".lock")
    descriptor = -1
    try:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DirectoryInUse(f"{directory} is in use by another broker process") from error
        except OSError as error:
            raise StorageFailure(f"cannot lock {path}: {error.strerror or error}") from error
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)
