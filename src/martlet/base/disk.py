"""The disk port: the dozen calls through which every byte of Martlet reaches storage.

Synchronous on purpose. Appends go straight to the page cache and return; `sync` and cold reads may block and
are therefore called from a worker thread by the shell. `SimDisk` in `martlet.testing` is the twin that tears
writes, loses unsynced pages and fails on demand.

Invariants: (BASE-1) a write either happens whole or raises `StorageFailure` and leaves the file's size as it was
as far as the disk allows (the caller truncates what is left of it); (BASE-2) `replace_file` is atomic and durable
when it returns; (BASE-3) no call buffers in this process: what returned is in the kernel's page cache.
"""

import errno
import os
from typing import Final, NamedTuple, Protocol

from typing_extensions import Buffer

from martlet.base.errors import DiskFull, StorageFailure

_SMALL_READ_BYTES: Final = 32_768


class DirectoryEntry(NamedTuple):
    """One name in a directory; `size` is 0 for directories."""

    name: str
    is_directory: bool
    size: int


class DiskFile(Protocol):
    """One open file. `append` writes at the end; a file has one writer."""

    path: str

    def size(self) -> int: ...

    def append(self, data: Buffer) -> None: ...

    def pwrite(self, data: Buffer, position: int) -> None: ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Whether a `pread` of this range would return without waiting for the device, as far as is known."""
        ...

    def pread_now(self, size: int, position: int) -> bytes | None:
        """Exactly `size` bytes from `position`; None when they would have to be waited for."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Force the file's data to the device. After a failure the data's fate is unknown: never retry."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are plain strings; directories are synced by the caller where durability needs it."""

    def open(self, path: str, *, create: bool = False) -> DiskFile: ...

    def exists(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Entries sorted by name; an empty list when the directory does not exist."""
        ...

    def make_directory(self, path: str) -> None:
        """Create it with its parents; no error when it exists."""
        ...

    def read_file(self, path: str) -> bytes | None:
        """The whole content, or None when there is no such file."""
        ...

    def replace_file(self, path: str, content: bytes) -> None:
        """Write `content` under that name, atomically and durably."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is gone already."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int: ...

    def place_of(self, path: str) -> str:
        """What tells this file or directory from a copy of it, while the machine runs."""
        ...


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def storage_failure(error: OSError, path: str) -> StorageFailure:
    """The one translation from the operating system's errors to ours."""
    kind = DiskFull if error.errno in _FULL else StorageFailure
    return kind(f"{path}: {error.strerror or error}")


class SystemFile:
    """A file of the machine, by descriptor; closed explicitly or when the last reference goes."""

    __slots__ = ("_fd", "_size", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._size = os.fstat(fd).st_size

    def size(self) -> int:
        return self._size

    def append(self, data: Buffer) -> None:
        self.pwrite(data, self._size)

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data)
        total = len(view)
        try:
            written = os.pwrite(self._fd, view, position)
            while written < total:
                written += os.pwrite(self._fd, view[written:], position + written)
        except OSError as error:
            raise storage_failure(error, self.path) from error
        if position + total > self._size:
            self._size = position + total

    def pread(self, size: int, position: int) -> bytes:
        try:
            data = os.pread(self._fd, size, position)
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise storage_failure(error, self.path) from error
        return data

    def is_cached(self, position: int, size: int) -> bool:
        # Probing the first and the last byte without waiting: readahead and append order make the middle follow.
        try:
            for probe in (position, max(position, position + size - 1)):
                os.preadv(self._fd, [bytearray(1)], probe, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return True
            raise storage_failure(error, self.path) from error
        return True

    def pread_now(self, size: int, position: int) -> bytes | None:
        if size > _SMALL_READ_BYTES:
            return self.pread(size, position) if self.is_cached(position, size) else None
        # Asking and reading in one call; what is read is copied once more, so only where it is little.
        data = bytearray(size)
        try:
            count = os.preadv(self._fd, [data], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return self.pread(size, position)
            raise storage_failure(error, self.path) from error
        return bytes(data) if count == size else None

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise storage_failure(error, self.path) from error
        self._size = size

    def sync(self) -> None:
        if self._fd < 0:
            raise StorageFailure(f"{self.path}: closed while it was to be synced")
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise storage_failure(error, self.path) from error

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def _listed(entry: os.DirEntry[str]) -> DirectoryEntry | None:
    """None for a file that has been renamed or removed since its name was read, as drafts of other threads are."""
    if entry.is_dir(follow_symlinks=False):
        return DirectoryEntry(entry.name, True, 0)
    try:
        return DirectoryEntry(entry.name, False, entry.stat(follow_symlinks=False).st_size)
    except FileNotFoundError:
        return None


class SystemDisk:
    """The machine's file system."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return SystemFile(path, os.open(path, flags, 0o640))
        except OSError as error:
            raise storage_failure(error, path) from error

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        try:
            with os.scandir(path) as entries:
                found = [listed for entry in entries if (listed := _listed(entry)) is not None]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_failure(error, path) from error
        found.sort()
        return found

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, mode=0o750, exist_ok=True)
        except OSError as error:
            raise storage_failure(error, path) from error

    def read_file(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_failure(error, path) from error

    def replace_file(self, path: str, content: bytes) -> None:
        draft = f"{path}.tmp"
        file = self.open(draft, create=True)
        try:
            file.truncate(0)
            file.append(content)
            file.sync()
        finally:
            file.close()
        self.rename(draft, path)
        self.sync_directory(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        try:
            os.replace(source, target)
        except OSError as error:
            raise storage_failure(error, source) from error

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_failure(error, path) from error

    def remove_tree(self, path: str) -> None:
        for entry in self.list_directory(path):
            below = f"{path}/{entry.name}"
            if entry.is_directory:
                self.remove_tree(below)
            else:
                self.remove(below)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_failure(error, path) from error

    def sync_directory(self, path: str) -> None:
        try:
            fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise storage_failure(error, path) from error

    def free_bytes(self, path: str) -> int:
        try:
            stats = os.statvfs(path)
        except OSError as error:
            raise storage_failure(error, path) from error
        return stats.f_bavail * stats.f_frsize

    def place_of(self, path: str) -> str:
        try:
            stats = os.stat(path)
        except OSError as error:
            raise storage_failure(error, path) from error
        return f"{stats.st_dev:x}:{stats.st_ino:x}"
