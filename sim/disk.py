"""The disk port's deterministic twin: a file system in memory that fails the way real ones do.

Rules: the port's calls behave as `SystemDisk`'s; everything else here is for tests: crashes, damage, full disks.

Fault model. Crashes come in two kinds: `process` (kill -9), in which the page cache survives, so nothing is lost and
open handles die; and `power`, in which chance decides what is left of everything not synced, of contents
(`disk_content.py`) and of names (`disk_names.py`). Besides: calls that fail (`failing_device.py`), `capacity_bytes` (a
write past it stops half way, as ENOSPC does), `flip_bit`, `overwrite` and `cut` for damage at rest, `unreadable` for
files of which the device gives nothing back.

Invariants: (SIM-6) what was synced, file and directory, survives every crash; (SIM-7) `replace_file` is all or nothing;
(SIM-8) the same randomness and the same calls give the same disk.
Proved by: tests/unit/sim/test_disk.py
"""

from typing import Final, Literal

from typing_extensions import Buffer

from martlet.base.disk import DirectoryEntry
from martlet.base.errors import DiskFull, StorageFailure
from martlet.base.randomness import Randomness
from sim.disk_content import SimContent
from sim.disk_names import SimNames, split
from sim.failing_device import FailingDevice, SimCrash

_UNLIMITED_BYTES: Final = 1 << 40


class SimFile:
    """An open handle; dies with the machine."""

    __slots__ = ("_disk", "_generation", "_node", "path")

    def __init__(self, disk: "SimDisk", path: str, node: SimContent) -> None:
        self._disk = disk
        self._generation = disk.generation
        self._node = node
        self.path = path

    def size(self) -> int:
        self._check_alive()
        return len(self._node.content)

    def append(self, data: Buffer) -> None:
        self.pwrite(data, len(self._node.content))

    def pwrite(self, data: Buffer, position: int) -> None:
        self._check_alive()
        self._disk.write_into(self.path, self._node, bytes(data), position)

    def pread(self, size: int, position: int) -> bytes:
        self._check_alive()
        self._disk.check_readable(self.path)
        content = bytes(self._node.content[position : position + size])
        self._disk.reads += 1
        self._disk.read_bytes += len(content)
        return content

    def is_cached(self, position: int, size: int) -> bool:
        self._check_alive()
        return not self._disk.cold

    def pread_now(self, size: int, position: int) -> bytes | None:
        return self.pread(size, position) if self.is_cached(position, size) else None

    def truncate(self, size: int) -> None:
        self._check_alive()
        self._disk.about_to_change()
        self._node.resize(size)

    def sync(self) -> None:
        self._check_alive()
        self._disk.sync_node(self.path, self._node)

    def close(self) -> None:
        """Handles hold nothing; reading after close is the caller's bug that only the real disk shows."""

    def _check_alive(self) -> None:
        if self._generation != self._disk.generation:
            raise SimCrash


class SimDisk(FailingDevice):
    """A file system in memory with faults on demand; one per simulated machine."""

    def __init__(self, randomness: Randomness, *, page_bytes: int = 4096, capacity_bytes: int | None = None) -> None:
        super().__init__()
        self._randomness = randomness
        self._page_bytes = page_bytes
        self.capacity_bytes = capacity_bytes
        self.cold = False
        self.place = "here"
        """Another one makes this disk a copy of what it was."""
        self.unreadable: set[str] = set()
        self.generation = 0
        self.reads = self.read_bytes = 0
        self._names = SimNames()

    # The port.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.check_running()
        node = self._names.find(path)
        if node is None:
            if not create or split(path)[0] not in self._names.directories:
                raise _no_such_file(path)
            self.about_to_change()
            node = SimContent(self._page_bytes)
            self._names.add(path, node)
        return SimFile(self, path, node)

    def exists(self, path: str) -> bool:
        self.check_running()
        return path in self._names.directories or self._names.find(path) is not None

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        self.check_running()
        return self._names.list_directory(path)

    def make_directory(self, path: str) -> None:
        self.check_running()
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            parent = "/".join(parts[:count])
            if parent not in self._names.directories:
                self.about_to_change()
                self._names.directories[parent] = {}

    def read_file(self, path: str) -> bytes | None:
        self.check_running()
        self.check_readable(path)
        node = self._names.find(path)
        self.reads += 1
        self.read_bytes += 0 if node is None else len(node.content)
        return None if node is None else bytes(node.content)

    def replace_file(self, path: str, content: bytes) -> None:
        self.check_running()
        node = SimContent(self._page_bytes)
        self.write_into(path, node, content, 0)
        self.sync_node(path, node)
        self.about_to_change()
        self._names.put(path, node)

    def rename(self, source: str, target: str) -> None:
        self.check_running()
        if source in self._names.directories:
            self.about_to_change()
            self._names.rename_directory(source, target)
            return
        if self._names.find(source) is None or split(source)[0] != split(target)[0]:
            raise _no_such_file(source)
        self.about_to_change()
        self._names.rename(source, target)

    def remove(self, path: str) -> None:
        self.check_running()
        if self._names.find(path) is not None:
            self.about_to_change()
            self._names.remove(path)

    def remove_tree(self, path: str) -> None:
        self.check_running()
        for entry in self.list_directory(path):
            if entry.is_directory:
                self.remove_tree(f"{path}/{entry.name}")
            else:
                self.remove(f"{path}/{entry.name}")
        self.about_to_change()
        self._names.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self.check_running()
        path = path.rstrip("/")
        if path not in self._names.directories:
            raise _no_such_file(path)
        self.about_to_sync(path)
        self._names.sync(path)

    def place_of(self, path: str) -> str:
        return self.place

    def free_bytes(self, path: str) -> int:
        self.check_running()
        if self.capacity_bytes is None:
            return _UNLIMITED_BYTES
        return max(0, self.capacity_bytes - self.used_bytes())

    def used_bytes(self) -> int:
        """Bytes of all files."""
        return sum(len(node.content) for node in self._names.contents())

    # What the handles call.

    def write_into(self, path: str, node: SimContent, data: bytes, position: int) -> None:
        """Write as far as space allows; a failing write leaves a part of the data behind, as real ones do."""
        if self.write_fails():
            node.write(data[: len(data) // 2], position)
            raise StorageFailure(f"{path}: Input/output error")
        growth = max(0, position + len(data) - len(node.content))
        free = growth if self.capacity_bytes is None else self.free_bytes(path)
        if growth > free:
            node.write(data[: max(0, len(data) - growth + free)], position)
            raise DiskFull(f"{path}: No space left on device")
        node.write(data, position)

    def sync_node(self, path: str, node: SimContent) -> None:
        """Make the content durable, or fail and leave it as it is."""
        self.about_to_sync(path)
        node.sync()

    def check_readable(self, path: str) -> None:
        """Raise for a file that the device gives nothing back of."""
        if path in self.unreadable:
            raise StorageFailure(f"{path}: Input/output error")

    # Faults.

    def crash(self, kind: Literal["process", "power"]) -> None:
        """The machine dies and comes back; every handle opened before raises SimCrash from now on."""
        self.generation += 1
        self.come_back()
        if kind == "power":
            self._names.lose_power(self._randomness)

    def wipe(self) -> None:
        """An empty disk has been put in its place; every handle opened before raises SimCrash from now on."""
        self.crash("process")
        self._names = SimNames()

    def flip_bit(self, path: str, bit: int) -> None:
        """Damage at rest: one bit is the other one, on the device too."""
        self.content(path).flip_bit(bit)

    def overwrite(self, path: str, position: int, data: bytes) -> None:
        """Damage at rest: other bytes stand there, on the device too."""
        self.content(path).overwrite(position, data)

    def cut(self, path: str, size: int) -> None:
        """Damage at rest: the file ends earlier, on the device too."""
        self.content(path).shorten(size)

    # What judges read, on machines that are dead as well.

    def content(self, path: str) -> SimContent:
        node = self._names.find(path)
        if node is None:
            raise _no_such_file(path)
        return node

    def files(self, directory: str) -> dict[str, SimContent]:
        """The files of a directory as programs see them; empty when there is no such directory."""
        return self._names.directories.get(directory, {})

    def durable_files(self, directory: str) -> dict[str, SimContent]:
        """The files whose names would survive a power loss for certain."""
        return self._names.durable_files(directory)


def _no_such_file(path: str) -> StorageFailure:
    return StorageFailure(f"{path}: No such file or directory")
