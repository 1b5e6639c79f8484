"""Keeps two broker processes from using one data directory at the same time.

The lock is the kernel's, on an open file: it goes with the process however that ends, so no stale lock can remain.
"""

import fcntl
import os

from martlet.base.errors import DirectoryInUse, StorageFailure


class DirectoryLock:
    """Held from `acquire` to `release`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock; raises DirectoryInUse naming the directory when another process has it."""
        path = os.path.join(self._directory, ".lock")
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise DirectoryInUse(f"{self._directory} is in use by another broker process") from error
        except OSError as error:
            self.release()
            raise StorageFailure(f"cannot lock {path}: {error.strerror or error}") from error

    def release(self) -> None:
        """Let go; no error when it is not held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
