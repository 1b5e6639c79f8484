"""The disk port's deterministic twin: a file system in memory that fails the way real ones do.

Rules: the port's calls behave as `SystemDisk`'s; everything else here is for tests: crashes, damage, full disks.

Fault model. Every file has two contents, what programs see and what the device holds; `sync` makes the second the
first. Every directory likewise has two lists of names, equal after `sync_directory`. Crashes come in two kinds:

- `process` (kill -9): the page cache survives, so nothing is lost; open handles die.
- `power`: every page written since the last sync is on its own kept, lost or torn at a sector; the file's size is the
  old one, the new one or one between (pages lost below it read as zeros); every name created, renamed or removed since
  the last `sync_directory` is on its own kept or lost, not even in order.

Besides: `fail_next_sync`, `fail_next_write`, `capacity_bytes` (a write past it stops half way, as ENOSPC does),
`stop_after` (the machine dies at the n-th change), `flip_bit`, `overwrite` and `cut` for damage at rest, `unreadable`
for files of which the device gives nothing back.

Invariants: (S1) what was synced, file and directory, survives every crash; (S2) `replace_file` is all or nothing;
(S3) the same randomness and the same calls give the same disk.
Proved by: tests/unit/sim/test_disk.py
"""

from typing import Final, Literal, NamedTuple

from typing_extensions import Buffer

from martlet.base.disk import DirectoryEntry
from martlet.base.errors import DiskFull, StorageFailure
from martlet.base.randomness import Randomness

SECTOR_BYTES: Final = 512


class SimCrash(BaseException):
    """Raised by every call once the simulated machine has died; nothing in Martlet may catch it."""


class SimContent:
    """One file's content, as seen and as durable, and which pages differ."""

    __slots__ = ("content", "cuts", "dirty_pages", "durable", "rotten")

    def __init__(self) -> None:
        self.content = bytearray()
        self.cuts = 0
        """How often something that was there went away or became different."""
        self.durable = b""
        self.dirty_pages: set[int] = set()
        self.rotten: set[int] = set()
        """Bits that `rot` has changed."""

    def as_written(self, *, durable: bool = False) -> bytes | bytearray:
        """The content as it was before `rot`, for judges who want to know what was there."""
        content = self.durable if durable else self.content
        if not self.rotten:
            return content
        whole = bytearray(content)
        for bit in self.rotten:
            if bit // 8 < len(whole):
                whole[bit // 8] ^= 1 << (bit % 8)
        return whole


class _DirectoryChange(NamedTuple):
    """A change of names not yet durable: `name` came to mean `node` (None: removed), `source` vanished."""

    name: str
    node: SimContent | None
    source: str | None


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
        self._disk.resize(self._node, size)

    def sync(self) -> None:
        self._check_alive()
        self._disk.sync_node(self.path, self._node)

    def close(self) -> None:
        """Handles hold nothing; reading after close is the caller's bug that only the real disk shows."""

    def _check_alive(self) -> None:
        if self._generation != self._disk.generation:
            raise SimCrash


class SimDisk:
    """A file system in memory with faults on demand; one per simulated machine."""

    def __init__(self, randomness: Randomness, *, page_bytes: int = 4096, capacity_bytes: int | None = None) -> None:
        self._randomness = randomness
        self._page_bytes = page_bytes
        self.capacity_bytes = capacity_bytes
        self.cold = False
        self.place = "here"
        """Another one makes this disk a copy of what it was."""
        self.unreadable: set[str] = set()
        self.generation = 0
        self.reads = self.read_bytes = self.writes = self.syncs = 0
        self._changes_left: int | None = None
        self._failing_syncs = 0
        self._failing_writes = 0
        self._directories: dict[str, dict[str, SimContent]] = {"": {}}
        self._durable_names: dict[str, dict[str, SimContent]] = {}
        self._durable_directories = {""}
        self._pending: dict[str, list[_DirectoryChange]] = {}

    # The port.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self._check_running()
        directory, name = _split(path)
        names = self._directories.get(directory)
        if names is None or (name not in names and not create):
            raise StorageFailure(f"{path}: No such file or directory")
        if name not in names:
            self._change()
            names[name] = SimContent()
            self._remember(directory, _DirectoryChange(name, names[name], None))
        return SimFile(self, path, names[name])

    def exists(self, path: str) -> bool:
        self._check_running()
        return path in self._directories or self._node(path) is not None

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        self._check_running()
        if path not in self._directories:
            return []
        below = f"{path}/" if path else ""
        found = [DirectoryEntry(name, False, len(node.content)) for name, node in self._directories[path].items()]
        found += [
            DirectoryEntry(other[len(below) :], True, 0)
            for other in self._directories
            if other and other.startswith(below) and "/" not in other[len(below) :] and other != path
        ]
        return sorted(found)

    def make_directory(self, path: str) -> None:
        self._check_running()
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            parent = "/".join(parts[:count])
            if parent not in self._directories:
                self._change()
                self._directories[parent] = {}

    def read_file(self, path: str) -> bytes | None:
        self._check_running()
        self.check_readable(path)
        node = self._node(path)
        self.reads += 1
        self.read_bytes += 0 if node is None else len(node.content)
        return None if node is None else bytes(node.content)

    def replace_file(self, path: str, content: bytes) -> None:
        self._check_running()
        directory, name = _split(path)
        node = SimContent()
        self.write_into(path, node, content, 0)
        self.sync_node(path, node)
        self._change()
        self._directories[directory][name] = node
        # Durable at once (BASE-2); whatever else is pending in this directory stays so.
        self._durable_names.setdefault(directory, {})[name] = node
        self._pending[directory] = [change for change in self._pending.get(directory, []) if change.name != name]

    def rename(self, source: str, target: str) -> None:
        self._check_running()
        if source in self._directories:
            self._rename_directory(source, target)
            return
        directory, name = _split(source)
        target_directory, target_name = _split(target)
        node = self._directories.get(directory, {}).get(name)
        if node is None or target_directory != directory:
            raise StorageFailure(f"{source}: No such file or directory")
        self._change()
        del self._directories[directory][name]
        self._directories[directory][target_name] = node
        self._remember(directory, _DirectoryChange(target_name, node, name))

    def remove(self, path: str) -> None:
        self._check_running()
        directory, name = _split(path)
        if name in self._directories.get(directory, {}):
            self._change()
            del self._directories[directory][name]
            self._remember(directory, _DirectoryChange(name, None, None))

    def remove_tree(self, path: str) -> None:
        self._check_running()
        for entry in self.list_directory(path):
            if entry.is_directory:
                self.remove_tree(f"{path}/{entry.name}")
            else:
                self.remove(f"{path}/{entry.name}")
        self._change()
        self._directories.pop(path, None)
        self._pending.pop(path, None)

    def sync_directory(self, path: str) -> None:
        self._check_running()
        path = path.rstrip("/")
        if path not in self._directories:
            raise StorageFailure(f"{path}: No such file or directory")
        self._sync_may_fail(path)
        self._durable_names[path] = dict(self._directories[path])
        self._pending.pop(path, None)
        # The names of its directories too; whether this one survives is up to the sync of its own parent.
        self._durable_directories -= {other for other in self._durable_directories if _split(other)[0] == path != other}
        self._durable_directories |= {other for other in self._directories if _split(other)[0] == path}

    def place_of(self, path: str) -> str:
        return self.place

    def free_bytes(self, path: str) -> int:
        self._check_running()
        return (1 << 40) if self.capacity_bytes is None else max(0, self.capacity_bytes - self.used_bytes())

    # What the handles call.

    def write_into(self, path: str, node: SimContent, data: bytes, position: int) -> None:
        """Write as far as space allows; a failing write leaves a part of the data behind, as real ones do."""
        self._change()
        self.writes += 1
        growth = max(0, position + len(data) - len(node.content))
        room = growth if self.capacity_bytes is None else self.capacity_bytes - self.used_bytes()
        if self._failing_writes:
            self._failing_writes -= 1
            self._store(node, data[: len(data) // 2], position)
            raise StorageFailure(f"{path}: Input/output error")
        if growth > room:
            self._store(node, data[: max(0, len(data) - growth + max(0, room))], position)
            raise DiskFull(f"{path}: No space left on device")
        self._store(node, data, position)

    def resize(self, node: SimContent, size: int) -> None:
        """Cut or lengthen with zeros."""
        self._change()
        content = node.content
        before = len(content)
        if size < before:
            del content[size:]
            node.cuts += 1
            node.rotten = {bit for bit in node.rotten if bit // 8 < size}
        else:
            content.extend(bytes(size - before))
        first = min(size, before) // self._page_bytes
        node.dirty_pages.update(range(first, max(size, before) // self._page_bytes + 1))

    def sync_node(self, path: str, node: SimContent) -> None:
        """Make the content durable, or fail and leave it as it is."""
        self._sync_may_fail(path)
        node.durable = bytes(node.content)
        node.dirty_pages.clear()

    def check_readable(self, path: str) -> None:
        """Raise for a file that the device gives nothing back of."""
        if path in self.unreadable:
            raise StorageFailure(f"{path}: Input/output error")

    def used_bytes(self) -> int:
        """Bytes of all files."""
        return sum(len(node.content) for names in self._directories.values() for node in names.values())

    # Faults.

    def crash(self, kind: Literal["process", "power"]) -> None:
        """The machine dies and comes back; every handle opened before raises SimCrash from now on."""
        self.generation += 1
        self._changes_left = None
        self._failing_syncs = self._failing_writes = 0
        if kind == "power":
            self._lose_power()

    def stop_after(self, changes: int) -> None:
        """Let `changes` more changes of files or names happen; from the next one on everything raises SimCrash."""
        self._changes_left = changes

    def stop_no_more(self) -> None:
        """Whatever was to fail from now on does not."""
        self._failing_syncs = self._failing_writes = 0
        if self._changes_left is not None and self._changes_left >= 0:
            self._changes_left = None

    def fail_next_sync(self) -> None:
        self._failing_syncs += 1

    def fail_next_write(self) -> None:
        self._failing_writes += 1

    def flip_bit(self, path: str, bit: int) -> None:
        """Damage at rest: one bit is the other one, on the device too."""
        node = self._existing(path)
        node.content[bit // 8] ^= 1 << (bit % 8)
        node.cuts += 1
        node.durable = bytes(node.content)

    def rot(self, path: str, bit: int) -> SimContent:
        """The same, and the file remembers it: see `SimContent.as_written`."""
        self.flip_bit(path, bit)
        node = self._existing(path)
        node.rotten ^= {bit}
        return node

    def overwrite(self, path: str, position: int, data: bytes) -> None:
        """Damage at rest: other bytes stand there, on the device too."""
        node = self._existing(path)
        node.content[position : position + len(data)] = data
        node.cuts += 1
        node.durable = bytes(node.content)

    def cut(self, path: str, size: int) -> None:
        """Damage at rest: the file ends earlier, on the device too."""
        node = self._existing(path)
        del node.content[size:]
        node.cuts += 1
        node.durable = bytes(node.content)
        node.dirty_pages.clear()

    def wipe(self) -> None:
        """Somebody has put an empty disk in its place; every handle opened before raises SimCrash from now on."""
        self.generation += 1
        self._changes_left = None
        self._failing_syncs = self._failing_writes = 0
        self._directories = {"": {}}
        self._durable_names = {}
        self._durable_directories = {""}
        self._pending = {}

    # What judges look at, on machines that are dead as well.

    def files(self, directory: str) -> dict[str, SimContent]:
        """The files of a directory as programs see them; empty when there is no such directory."""
        return self._directories.get(directory, {})

    def durable_files(self, directory: str) -> dict[str, SimContent]:
        """The files whose names would survive a power loss for certain."""
        return self._durable_names.get(directory, {}) if directory in self._durable_directories else {}

    # Inside.

    def _lose_power(self) -> None:
        survivors: dict[str, dict[str, SimContent]] = {}
        for path in sorted(self._durable_directories | set(self._directories)):
            parent = _split(path)[0]
            if path and (
                parent not in survivors or (path not in self._durable_directories and self._randomness.below(2))
            ):
                continue
            names = dict(self._durable_names.get(path, {}))
            for change in self._pending.get(path, []):
                if self._randomness.below(2):
                    continue
                if change.source is not None:
                    names.pop(change.source, None)
                if change.node is None:
                    names.pop(change.name, None)
                else:
                    names[change.name] = change.node
            survivors[path] = names
        seen = {id(node): node for names in survivors.values() for node in names.values()}
        for node in seen.values():
            self._settle(node)
        self._directories = survivors
        self._durable_names = {path: dict(names) for path, names in survivors.items()}
        self._durable_directories = set(survivors)
        self._pending = {}

    def _settle(self, node: SimContent) -> None:
        """Decide what the device holds of a file whose pages were not all synced."""
        page_bytes = self._page_bytes
        if node.dirty_pages:
            old, new = node.durable, bytes(node.content)
            size = self._settled_size(len(old), len(new))
            result = bytearray(old[:size].ljust(size, b"\0"))
            for page in sorted(node.dirty_pages):
                start, end = page * page_bytes, min((page + 1) * page_bytes, size, len(new))
                fate = self._randomness.below(3)
                if fate == 2:
                    sectors = (
                        self._randomness.below(page_bytes // SECTOR_BYTES + 1) if page_bytes >= SECTOR_BYTES else 0
                    )
                    end = min(end, start + sectors * SECTOR_BYTES)
                if fate and start < end:
                    result[start:end] = new[start:end]
            node.content = result
            node.cuts += 1
        node.durable = bytes(node.content)
        node.dirty_pages.clear()

    def _settled_size(self, old: int, new: int) -> int:
        fate = self._randomness.below(3)
        if fate == 2:
            low, high = min(old, new), max(old, new)
            return low + self._randomness.below(high - low + 1)
        return old if fate else new

    def _store(self, node: SimContent, data: bytes, position: int) -> None:
        content = node.content
        if not data:
            return
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        first = position // self._page_bytes
        node.dirty_pages.update(range(first, (position + len(data)) // self._page_bytes + 1))

    def _rename_directory(self, source: str, target: str) -> None:
        # Taken as durable at once: Martlet renames directories only to remove them, where either outcome is fine.
        self._change()
        moved = {
            path: target + path[len(source) :] for path in self._directories if f"{path}/".startswith(f"{source}/")
        }
        for before, after in moved.items():
            self._directories[after] = self._directories.pop(before)
            self._durable_names[after] = self._durable_names.pop(before, {})
            self._pending[after] = self._pending.pop(before, [])
            if before in self._durable_directories:
                self._durable_directories.remove(before)
                self._durable_directories.add(after)

    def _remember(self, directory: str, change: _DirectoryChange) -> None:
        self._pending.setdefault(directory, []).append(change)

    def _sync_may_fail(self, path: str) -> None:
        self._change()
        self.syncs += 1
        if self._failing_syncs:
            self._failing_syncs -= 1
            raise StorageFailure(f"{path}: Input/output error")

    def _change(self) -> None:
        self._check_running()
        if self._changes_left is not None:
            self._changes_left -= 1
            self._check_running()

    def _check_running(self) -> None:
        if self._changes_left is not None and self._changes_left < 0:
            raise SimCrash

    def _node(self, path: str) -> SimContent | None:
        directory, name = _split(path)
        return self._directories.get(directory, {}).get(name)

    def _existing(self, path: str) -> SimContent:
        node = self._node(path)
        if node is None:
            raise StorageFailure(f"{path}: No such file or directory")
        return node


def _split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory, name
