"""A table of Parquet files with a log of commits: exactly once, readable by any tool, on any file system all nodes see.

On disk, below the table's directory (Spark, pyarrow and others pass over names that begin with an underscore):

    date=2026-11-16/batch-7-….parquet     data, visible
    _staging/<writer>/<batch>/…           data no reader sees yet
    _martlet_log/columns.json             the columns the table was made with, and its partition column
    _martlet_log/entries/<writer>.<batch>.json   one commit: files in, files out
    _martlet_log/folded/<number>.json     old commits in one file, with the names of those it stands for

How it works: a commit is the appearance of its entry, by `link`, which fails if there is one of that name; so of two
who commit the same batch one wins and the other learns it. Only then are its files moved into place and those it takes
out removed; a process that dies in between has its work finished by the next commit, or by the repeated one. The table
is all files put in less all files taken out, in any order, because no name is ever used again.

A tool that lists the directory instead of reading the log can miss rows for the moment of a commit or compaction, but
never sees a row twice nor one of an uncommitted batch. `files` reads the log and is exact at every moment.

Proved by: tests/unit/spark/test_lake_table.py.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from martlet.base.randomness import SystemRandomness
from martlet.spark.pipelines.lake.data_file import DataFile, FilesWriter, flush_to_disk, staging_folder
from martlet.spark.pipelines.lake.table import LakeError

LOG_FOLDER: Final = "_martlet_log"
COMPACTION: Final = "compaction"

_UNCHECKPOINTED_BATCHES: Final = 10
"""The newest batches of a writer keep their own entry: a late twin of one must find it."""
_CHECKPOINT_ENTRIES_MIN: Final = 200


class _Entry(NamedTuple):
    """One commit as it stands in the log."""

    name: str
    adds: list[DataFile]
    removes: list[DataFile]


class _Log(NamedTuple):
    """All of the log: the checkpoint, and the entries it does not stand for."""

    checkpoint_number: int
    adds: dict[str, DataFile]
    removes: dict[str, DataFile]
    last_batches: dict[str, int]
    covered: frozenset[str]
    entries: list[_Entry]


class ParquetTable:
    """The table of one directory. Keeps nothing between calls; any number of processes may use one table."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stages_files = True
        self._entries = os.path.join(path, LOG_FOLDER, "entries")
        self._checkpoints = os.path.join(path, LOG_FOLDER, "folded")
        self._columns = os.path.join(path, LOG_FOLDER, "columns.json")

    def prepare(self, schema: pa.Schema, partition_by: str | None) -> None:
        wanted = {
            "columns": {field.name: str(field.type) for field in schema},
            "partition_by": partition_by,
        }
        os.makedirs(self._entries, exist_ok=True)
        os.makedirs(self._checkpoints, exist_ok=True)
        if not os.path.exists(self._columns):
            self._create(self._columns, wanted)
        held = _read_json(self._columns)
        if held != wanted:
            raise LakeError(
                f"{self.path} holds {_describe(held)}, but the pipeline writes {_describe(wanted)}; "
                "give another directory, or the columns the table was made with"
            )

    def commit(self, writer: str, batch: int, adds: Sequence[DataFile], removes: Sequence[DataFile] = ()) -> bool:
        entry = _Entry(_entry_name(writer, batch), list(adds), list(removes))
        is_new = not self._is_checkpointed(writer, batch) and self._create(
            os.path.join(self._entries, entry.name),
            {"adds": [file.as_data() for file in adds], "removes": [file.as_data() for file in removes]},
        )
        if is_new:
            self._publish(entry)
        else:
            self.finish_commits()
        shutil.rmtree(os.path.join(self.path, staging_folder(writer, batch)), ignore_errors=True)
        return is_new

    def has_batch(self, writer: str, batch: int) -> bool:
        return os.path.exists(os.path.join(self._entries, _entry_name(writer, batch))) or self._is_checkpointed(
            writer, batch
        )

    def files(self) -> list[DataFile]:
        log = self._read_log()
        adds = dict(log.adds)
        removes = set(log.removes)
        for entry in log.entries:
            adds |= {file.path: file for file in entry.adds}
            removes |= {file.path for file in entry.removes}
        return [adds[path] for path in sorted(adds) if path not in removes]

    def location(self, file: DataFile) -> str:
        staged = os.path.join(self.path, file.staged)
        # Committed but not moved yet: it is read where it is.
        return staged if os.path.exists(staged) else os.path.join(self.path, file.path)

    def finish_commits(self) -> None:
        """Move and remove what an earlier commit was killed before moving and removing."""
        for entry in self._read_log().entries:
            self._publish(entry)

    def compact(self, *, files_min: int, target_bytes: int) -> int:
        self.finish_commits()
        gone = 0
        groups: dict[str, list[DataFile]] = {}
        for file in self.files():
            # One that another process is just moving into place is left for the next time.
            is_in_place = os.path.exists(os.path.join(self.path, file.path))
            if is_in_place and file.bytes < target_bytes // 2:
                groups.setdefault(os.path.dirname(file.path), []).append(file)
        for files in groups.values():
            if len(files) >= files_min:
                try:
                    gone += self._merge(_up_to(files, target_bytes))
                except pa.ArrowException as error:
                    raise LakeError(f"{self.path} was not compacted: {error}") from error
        self.checkpoint_log()
        return gone

    def _merge(self, files: Sequence[DataFile]) -> int:
        """One file in place of several, as one commit."""
        numbers = [int(name.split(".")[1]) for name in os.listdir(self._entries) if name.startswith(f"{COMPACTION}.")]
        number = max([*numbers, self._read_log().last_batches.get(COMPACTION, -1)], default=-1) + 1
        writer = FilesWriter(
            self.path, staging=staging_folder(COMPACTION, number), partition_by=None, prefix=f"{COMPACTION}-{number}"
        )
        merged = writer.write_all(self._rows(files))
        if sum(file.rows for file in merged) != sum(file.rows for file in files):
            raise LakeError(f"{self.path}: files to be merged do not hold the rows the log says; nothing was changed")
        folder = os.path.dirname(files[0].path)
        partition = files[0].partition
        placed = [
            DataFile(os.path.join(folder, file.path), file.staged, file.rows, file.bytes, partition) for file in merged
        ]
        self.commit(COMPACTION, number, placed, files)
        return len(files) - len(placed)

    def _rows(self, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        for file in files:
            with pq.ParquetFile(os.path.join(self.path, file.path)) as content:
                yield from content.iter_batches()

    def _publish(self, entry: _Entry) -> None:
        """Take out first: a reader of the directory may miss rows for a moment, but must not see one twice."""
        for file in entry.removes:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, file.path))
        for file in entry.adds:
            place = os.path.join(self.path, file.path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            # Not staged any more: it was moved before, and perhaps removed again since.
            with contextlib.suppress(FileNotFoundError):
                os.rename(os.path.join(self.path, file.staged), place)

    def _create(self, place: str, content: dict[str, Any]) -> bool:
        """The file with all its content, or False if there is one of that name; never half of it."""
        draft = f"{place}.{SystemRandomness().token(8).hex()}.draft"
        with open(draft, "x", encoding="utf-8") as stream:
            json.dump(content, stream)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(draft, place)
        except FileExistsError:
            return False
        finally:
            os.unlink(draft)
        flush_to_disk(os.path.dirname(place))
        return True

    def _is_checkpointed(self, writer: str, batch: int) -> bool:
        return batch <= self._read_checkpoint()[1].last_batches.get(writer, -1)

    def _read_checkpoint(self) -> tuple[int, _Log]:
        """The newest checkpoint, with its number. A newer one may take it away between listing and reading."""
        while True:
            number = self._checkpoint_number()
            if number < 0:
                return -1, _Log(-1, {}, {}, {}, frozenset(), [])
            try:
                data = _read_json(self._checkpoint_place(number))
            except FileNotFoundError:
                continue
            adds, removes = (
                {file["path"]: DataFile.from_data(file) for file in data[key]} for key in ("adds", "removes")
            )
            return number, _Log(number, adds, removes, data["last_batches"], frozenset(data["covers"]), [])

    def _checkpoint_number(self) -> int:
        return max(self._checkpoint_numbers(), default=-1)

    def _checkpoint_numbers(self) -> list[int]:
        return [int(name.split(".")[0]) for name in _listed(self._checkpoints) if name.endswith(".json")]

    def _checkpoint_place(self, number: int) -> str:
        return os.path.join(self._checkpoints, f"{number}.json")

    def _read_log(self) -> _Log:
        """The checkpoint and the entries of one moment; all is read again if a newer one took entries away."""
        while True:
            number, log = self._read_checkpoint()
            names = [name for name in _listed(self._entries) if name.endswith(".json") and name not in log.covered]
            try:
                entries = [self._read_entry(name) for name in sorted(names, key=_entry_order)]
            except FileNotFoundError:
                continue
            if self._checkpoint_number() == number:
                return log._replace(entries=entries)

    def _read_entry(self, name: str) -> _Entry:
        data = _read_json(os.path.join(self._entries, name))
        return _Entry(name, *([DataFile.from_data(file) for file in data[key]] for key in ("adds", "removes")))

    def checkpoint_log(self) -> None:
        """Put old entries into one file."""
        log = self._read_log()
        self._remove_covered(log)
        newest: dict[str, int] = {}
        for entry in log.entries:
            writer, batch = _entry_order(entry.name)
            newest[writer] = max(batch, newest.get(writer, -1))
        old = [
            entry
            for entry in log.entries
            if _entry_order(entry.name)[1] <= newest[_entry_order(entry.name)[0]] - _UNCHECKPOINTED_BATCHES
        ]
        if len(old) < _CHECKPOINT_ENTRIES_MIN:
            return
        adds, removes, last = dict(log.adds), dict(log.removes), dict(log.last_batches)
        for entry in old:
            adds |= {file.path: file for file in entry.adds}
            removes |= {file.path: file for file in entry.removes}
            writer, batch = _entry_order(entry.name)
            last[writer] = max(batch, last.get(writer, -1))
        gone = adds.keys() & removes.keys()
        content = {
            "adds": [file.as_data() for path, file in adds.items() if path not in gone],
            "removes": [file.as_data() for path, file in removes.items() if path not in gone],
            "last_batches": last,
            "covers": [entry.name for entry in old],
        }
        if self._create(self._checkpoint_place(log.checkpoint_number + 1), content):
            self._remove_covered(self._read_checkpoint()[1])

    def _remove_covered(self, log: _Log) -> None:
        """Remove the entries that a checkpoint stands for, and older checkpoints.

        A process killed here has left its own; they are gone for good before the next one, which does not name them.
        """
        for name in log.covered:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._entries, name))
        for number in self._checkpoint_numbers():
            if number < log.checkpoint_number:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._checkpoint_place(number))
        if log.covered:
            flush_to_disk(self._entries)


def _entry_name(writer: str, batch: int) -> str:
    return f"{writer}.{batch}.json"


def _entry_order(name: str) -> tuple[str, int]:
    writer, batch, _ = name.rsplit(".", 2)
    return writer, int(batch)


def _up_to(files: Sequence[DataFile], target_bytes: int) -> list[DataFile]:
    """As many as fit into one file of the target's size, two at least."""
    chosen: list[DataFile] = []
    size = 0
    for file in files:
        if len(chosen) >= 2 and size + file.bytes > target_bytes:
            break
        chosen.append(file)
        size += file.bytes
    return chosen


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _read_json(path: str) -> Any:
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def _describe(table: Any) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in table["columns"].items())
    return f"{columns} by {table['partition_by']}" if table["partition_by"] else columns
