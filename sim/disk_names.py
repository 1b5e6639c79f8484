"""The names on a simulated disk: which directories there are, which file each name stands for, and what is durable.

Every directory has two lists of names, what programs see and what the device holds, equal after `sync`. After a power
loss every name created, renamed or removed since is on its own kept or lost, not even in order. The renaming of a
directory is taken as durable at once: Martlet renames directories only to remove them, where either outcome is fine.

Proved by: tests/unit/sim/test_disk.py
"""

from typing import NamedTuple

from martlet.base.disk import DirectoryEntry
from martlet.base.randomness import Randomness
from sim.disk_content import SimContent


class _Change(NamedTuple):
    """A change of names not yet durable: `name` came to mean `node` (None: removed), `source` vanished."""

    name: str
    node: SimContent | None
    source: str | None


class SimNames:
    """The directories of one disk; paths are relative to its root, which is the empty path."""

    def __init__(self) -> None:
        self.directories: dict[str, dict[str, SimContent]] = {"": {}}
        self._durable: dict[str, dict[str, SimContent]] = {}
        self._durable_directories = {""}
        self._pending: dict[str, list[_Change]] = {}

    def find(self, path: str) -> SimContent | None:
        directory, name = split(path)
        return self.directories.get(directory, {}).get(name)

    def contents(self) -> list[SimContent]:
        """The files of all directories."""
        return [node for names in self.directories.values() for node in names.values()]

    def durable_files(self, directory: str) -> dict[str, SimContent]:
        """The files whose names would survive a power loss for certain."""
        return self._durable.get(directory, {}) if directory in self._durable_directories else {}

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        if path not in self.directories:
            return []
        below = f"{path}/" if path else ""
        found = [DirectoryEntry(name, False, len(node.content)) for name, node in self.directories[path].items()]
        found += [
            DirectoryEntry(other[len(below) :], True, 0)
            for other in self.directories
            if other and other.startswith(below) and "/" not in other[len(below) :] and other != path
        ]
        return sorted(found)

    # Changes, each lost or kept on its own by a power loss before the next `sync`.

    def add(self, path: str, node: SimContent) -> None:
        directory, name = split(path)
        self.directories[directory][name] = node
        self._remember(directory, _Change(name, node, None))

    def rename(self, source: str, target: str) -> None:
        """Within one directory."""
        directory, name = split(source)
        new_name = split(target)[1]
        node = self.directories[directory].pop(name)
        self.directories[directory][new_name] = node
        self._remember(directory, _Change(new_name, node, name))

    def remove(self, path: str) -> None:
        directory, name = split(path)
        del self.directories[directory][name]
        self._remember(directory, _Change(name, None, None))

    def _remember(self, directory: str, change: _Change) -> None:
        self._pending.setdefault(directory, []).append(change)

    # Changes that are durable at once.

    def put(self, path: str, node: SimContent) -> None:
        """The name means this file, durably (BASE-2); whatever else is pending in its directory stays so."""
        directory, name = split(path)
        self.directories[directory][name] = node
        self._durable.setdefault(directory, {})[name] = node
        self._pending[directory] = [change for change in self._pending.get(directory, []) if change.name != name]

    def rename_directory(self, source: str, target: str) -> None:
        moved = {path: target + path[len(source) :] for path in self.directories if f"{path}/".startswith(f"{source}/")}
        for before, after in moved.items():
            self.directories[after] = self.directories.pop(before)
            self._durable[after] = self._durable.pop(before, {})
            self._pending[after] = self._pending.pop(before, [])
            if before in self._durable_directories:
                self._durable_directories.remove(before)
                self._durable_directories.add(after)

    def remove_directory(self, path: str) -> None:
        self.directories.pop(path, None)
        self._pending.pop(path, None)

    def sync(self, path: str) -> None:
        """What a directory lists is durable: its files' names, and those of its directories."""
        self._durable[path] = dict(self.directories[path])
        self._pending.pop(path, None)
        # Whether this directory itself survives is up to the sync of its parent.
        self._durable_directories -= {other for other in self._durable_directories if split(other)[0] == path != other}
        self._durable_directories |= {other for other in self.directories if split(other)[0] == path}

    # A power loss.

    def lose_power(self, randomness: Randomness) -> None:
        """Decide which names the device holds, then what it holds of each file."""
        survivors: dict[str, dict[str, SimContent]] = {}
        for path in sorted(self._durable_directories | set(self.directories)):
            is_lost = path and (
                split(path)[0] not in survivors or (path not in self._durable_directories and randomness.below(2))
            )
            if not is_lost:
                survivors[path] = self._settled(path, randomness)
        for node in {id(node): node for names in survivors.values() for node in names.values()}.values():
            node.settle(randomness)
        self.directories = survivors
        self._durable = {path: dict(names) for path, names in survivors.items()}
        self._durable_directories = set(survivors)
        self._pending = {}

    def _settled(self, path: str, randomness: Randomness) -> dict[str, SimContent]:
        names = dict(self._durable.get(path, {}))
        for change in self._pending.get(path, []):
            if randomness.below(2):
                continue
            if change.source is not None:
                names.pop(change.source, None)
            if change.node is None:
                names.pop(change.name, None)
            else:
                names[change.name] = change.node
        return names


def split(path: str) -> tuple[str, str]:
    """A path's directory and name."""
    directory, _, name = path.rpartition("/")
    return directory, name
