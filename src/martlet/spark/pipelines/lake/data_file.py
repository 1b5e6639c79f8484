"""A data file of a lake table, and writing rows into some: what tasks do, on whatever machine they run.

How it works: rows arrive as Arrow batches and go into one Parquet file per value of the partition column, whose values
stand in the path (`date=2026-11-16/…`) and not in the file, as everywhere in the lake world. Files have random names,
so that two attempts at one task never write the same one, and are on disk when they are reported. Rows without a
value have a partition of their own, in the folder that Hive, Spark and others read as null.

Invariants: (SPK-8) the files hold as many rows as were given.

Proved by: tests/unit/spark/test_lake_table.py.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from martlet.base.invariant import invariant
from martlet.base.randomness import Randomness, SystemRandomness

STAGING_FOLDER: Final = "_staging"

_ROW_GROUP_BYTES: Final = 64 << 20
_COMPRESSION: Final = "zstd"
_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file; paths are relative to the table's directory."""

    path: str
    """Where readers find it."""
    staged: str
    """Where it was written; differs from `path` as long as no reader may see it."""
    rows: int
    bytes: int
    partition: Mapping[str, str | None]

    def as_data(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "staged": self.staged,
            "rows": self.rows,
            "bytes": self.bytes,
            "partition": dict(self.partition),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["path"], data["staged"], data["rows"], data["bytes"], data["partition"])


def partition_folder(partition: Mapping[str, str | None]) -> str:
    """`date=2026-11-16`, safe as a path whatever the value is."""
    return "/".join(
        f"{quote(name, safe='')}={_NULL_FOLDER if value is None else quote(value, safe='')}"
        for name, value in partition.items()
    )


def staging_folder(writer: str, batch: int) -> str:
    """Where files of a batch wait, below a table that keeps them out of sight until they are committed."""
    return f"{STAGING_FOLDER}/{writer}/{batch}"


class FilesWriter:
    """Takes rows and leaves files below `root`, in `folder` and the folders of its partitions. One task uses it."""

    def __init__(
        self,
        root: str,
        *,
        staging: str | None,
        partition_by: str | None,
        prefix: str,
        randomness: Randomness | None = None,
    ) -> None:
        self._root = root
        self._staging = staging
        self._partition_by = partition_by
        self._prefix = prefix
        self._randomness = randomness or SystemRandomness()
        self._open: dict[str | None, _OpenFile] = {}

    def write_all(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """Everything into files; what was begun is removed when the rows break off."""
        given = 0
        try:
            for batch in batches:
                if batch.num_rows:
                    self._write(batch)
                    given += batch.num_rows
            files = [file.close() for file in self._open.values()]
            invariant(sum(file.rows for file in files) == given, "SPK-8: the files hold as many rows as were given")
            return files
        except BaseException:
            for file in self._open.values():
                file.discard()
            raise

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._partition_by is None:
            self._file(None).add(batch)
            return
        column = pc.cast(batch.column(self._partition_by), pa.string())
        rest = batch.drop_columns([self._partition_by])
        values = pc.unique(column).to_pylist()
        for value in values:
            # Nothing equals null, not even null.
            chosen = pc.is_null(column) if value is None else pc.equal(column, value)
            self._file(value).add(rest if len(values) == 1 else rest.filter(chosen))

    def _file(self, value: str | None) -> "_OpenFile":
        if value not in self._open:
            partition = {} if self._partition_by is None else {self._partition_by: value}
            name = f"{self._prefix}-{self._randomness.token(8).hex()}.parquet"
            path = "/".join(part for part in (partition_folder(partition), name) if part)
            staged = path if self._staging is None else f"{self._staging}/{path}"
            self._open[value] = _OpenFile(self._root, path, staged, partition)
        return self._open[value]


class _OpenFile:
    """A file being written; small batches are gathered into row groups that are worth reading."""

    def __init__(self, root: str, path: str, staged: str, partition: Mapping[str, str | None]) -> None:
        self._place = os.path.join(root, staged)
        self._named = (path, staged, partition)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._rows = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._rows += batch.num_rows
        if self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()

    def _write_row_group(self) -> None:
        if self._writer is None:
            os.makedirs(os.path.dirname(self._place), exist_ok=True)
            self._writer = pq.ParquetWriter(self._place, self._waiting[0].schema, compression=_COMPRESSION)
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting, self._waiting_bytes = [], 0

    def close(self) -> DataFile:
        self._write_row_group()
        if self._writer is not None:
            self._writer.close()
        flush_to_disk(self._place)
        path, staged, partition = self._named
        return DataFile(path, staged, self._rows, os.path.getsize(self._place), partition)

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            os.unlink(self._place)


def flush_to_disk(path: str) -> None:
    """The content of a file, or the names in a directory, survive a power cut when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
