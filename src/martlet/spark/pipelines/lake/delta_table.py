"""A table in Delta's format, without a jar: tasks write the files, the `deltalake` package writes the log.

How it works: a commit carries the writer and the batch as Delta's own application transaction, so that the batch and
the fact that it is in appear in the log together. Files of attempts that were not committed stay as orphans, which no
reader sees and `vacuum` removes.

Invariant: two processes that commit the same batch at the same time conflict in Delta's log; the later one sees the
batch in the table and stops. Proved by: tests/unit/spark/test_lake_table.py.
"""

import json
import os
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from martlet.base.clock import SystemClock
from martlet.spark.pipelines.lake.data_file import DataFile
from martlet.spark.pipelines.lake.table import LakeError

_ATTEMPTS: Final = 10


class DeltaLakeTable:
    """The Delta table of one directory. Keeps nothing between calls."""

    def __init__(self, path: str) -> None:
        self.path = path
        # Delta's readers go by the log: files may lie at their final places before they count.
        self.stages_files = False

    def prepare(self, schema: pa.Schema, partition_by: str | None) -> None:
        table = self._table()
        if table is None:
            os.makedirs(self.path, exist_ok=True)
            table = DeltaTable.create(self.path, schema, mode="ignore", partition_by=partition_by)
        held, wanted = _columns(table.schema()), _columns(Schema.from_arrow(schema))
        partitions = table.metadata().partition_columns
        if held != wanted or partitions != ([partition_by] if partition_by else []):
            raise LakeError(
                f"{self.path} holds {_describe(held)} by {partitions}, but the pipeline writes {_describe(wanted)} by "
                f"{partition_by}; give another directory, or the columns the table was made with"
            )

    def commit(self, writer: str, batch: int, adds: Sequence[DataFile], removes: Sequence[DataFile] = ()) -> bool:
        now_ms = SystemClock().now_ms()
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.bytes, file.partition, now_ms, True, json.dumps({"numRecords": file.rows}))
            for file in adds
        ]
        actions += [RemoveAction(file.path, True, now_ms, file.bytes, dict(file.partition)) for file in removes]
        for attempt in range(_ATTEMPTS):
            table = DeltaTable(self.path)
            if self._last_batch(table, writer) >= batch:
                return False
            try:
                table.create_write_transaction(
                    actions,
                    mode="append",
                    schema=table.schema(),
                    partition_by=table.metadata().partition_columns or None,
                    commit_properties=CommitProperties(app_transactions=[Transaction(writer, batch)]),
                )
            except CommitFailedError:
                if attempt + 1 == _ATTEMPTS:
                    raise
            else:
                return True
        return False

    def has_batch(self, writer: str, batch: int) -> bool:
        table = self._table()
        return table is not None and self._last_batch(table, writer) >= batch

    def files(self) -> list[DataFile]:
        table = self._table()
        if table is None:
            return []
        actions = pa.table(table.get_add_actions()).to_pylist()
        found = [
            DataFile(
                # Delta's log holds paths as addresses, in which what quotes a partition's value is quoted once more.
                unquote(action["path"]),
                unquote(action["path"]),
                action["num_records"] or 0,
                action["size_bytes"],
                {name: _as_text(value) for name, value in (action.get("partition") or {}).items()},
            )
            for action in actions
        ]
        return sorted(found, key=lambda file: file.path)

    def location(self, file: DataFile) -> str:
        return os.path.join(self.path, file.path)

    def compact(self, *, files_min: int, target_bytes: int) -> int:
        try:
            return self._compact(files_min, target_bytes)
        except DeltaError as error:
            raise LakeError(f"{self.path} was not compacted: {error}") from error

    def _compact(self, files_min: int, target_bytes: int) -> int:
        table = self._table()
        folders: dict[str, int] = {}
        for file in self.files():
            if file.bytes < target_bytes // 2:
                folders[os.path.dirname(file.path)] = folders.get(os.path.dirname(file.path), 0) + 1
        if table is None or max(folders.values(), default=0) < files_min:
            return 0
        done = table.optimize.compact(target_size=target_bytes)
        return int(done["numFilesRemoved"]) - int(done["numFilesAdded"])

    def checkpoint_log(self) -> None:
        """Delta makes checkpoints of its log by itself."""

    def _table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.path)
        except TableNotFoundError:
            return None

    def _last_batch(self, table: DeltaTable, writer: str) -> int:
        last = table.transaction_version(writer)
        return -1 if last is None else last


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


def _columns(schema: Schema) -> list[tuple[str, str]]:
    """Names and types in Arrow's words, through Delta's own types, which have fewer ways to say the same."""
    return [(field.name, str(field.type)) for field in pa.schema(schema.to_arrow())]


def _describe(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
