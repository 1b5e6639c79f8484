"""What a pipeline asks of a lake table, and the two layouts behind it.

Rules: whoever writes a table goes through `LakeTable`; what a layout keeps on disk is known to its own module only.

Invariants: (L1) after any crash and any repetition, a batch of a writer is in the table once or not at all; (L2) rows
of a batch that was not committed are seen by nobody who reads through `files`; (L3) a table keeps the columns it was
made with: a batch with others is refused; (L4) files are committed only if the driver sees them.

Proved by: tests/unit/spark/test_lake_table.py, tests/spark/test_archive.py.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from martlet.base.errors import MartletError
from martlet.spark.pipelines.lake.data_file import DataFile

if TYPE_CHECKING:
    import pyarrow as pa

LAYOUTS: Final = ("parquet", "delta")


class LakeError(MartletError):
    """A table cannot be used as asked; the text says what to do."""


class LakeTable(Protocol):
    """A table in a directory. Used at the driver only: tasks write files and know nothing of the table."""

    path: str
    stages_files: bool
    """Whether tasks put files into the batch's `staging_folder`, and not at their final places."""

    def prepare(self, schema: "pa.Schema", partition_by: str | None) -> None:
        """Make the table if there is none; raises LakeError if there is one with other columns (L3)."""
        ...

    def commit(self, writer: str, batch: int, adds: Sequence[DataFile], removes: Sequence[DataFile] = ()) -> bool:
        """Put files in and take files out as one step; False when this batch of this writer was in already (L1)."""
        ...

    def has_batch(self, writer: str, batch: int) -> bool:
        """Whether the batch has been committed."""
        ...

    def files(self) -> list[DataFile]:
        """The files that are the table now, sorted by path."""
        ...

    def location(self, file: DataFile) -> str:
        """Where a file of the table can be read now."""
        ...

    def fold_log(self) -> None:
        """Keep the log quick to read in a table of many batches; changes nothing else."""
        ...

    def compact(self, *, files_min: int, target_bytes: int) -> int:
        """Merge small files where there are so many in one partition; returns how many files went."""
        ...


def open_table(path: str, layout: str) -> LakeTable:
    """The table of a directory, whether it exists yet or not; where we are counts, and not where tasks will be."""
    path = os.path.abspath(path)
    if layout == "parquet":
        from martlet.spark.pipelines.lake.parquet_table import ParquetTable

        return ParquetTable(path)
    if layout == "delta":
        try:
            from martlet.spark.pipelines.lake.delta_table import DeltaLakeTable
        except ModuleNotFoundError as error:
            raise LakeError(
                f"the layout delta needs the package {error.name}: pip install '.[delta]' in Martlet's source directory"
            ) from error
        return DeltaLakeTable(path)
    raise LakeError(f"there is no layout {layout!r}; there are {' and '.join(LAYOUTS)}")


def commit_in_sight(
    table: LakeTable, writer: str, batch: int, adds: Sequence[DataFile], removes: Sequence[DataFile] = ()
) -> bool:
    """Commit what tasks have written; raises LakeError unless all of it is where it will be looked for (L4)."""
    # A batch that is in already needs nothing more, and whoever put it in may have cleared our files away.
    for file in () if table.has_batch(writer, batch) else adds:
        place = os.path.join(table.path, file.staged)
        if not os.path.exists(place) or os.path.getsize(place) != file.bytes:
            raise LakeError(
                f"{place} was written by a task and is not here; the table must be on a file system that all nodes see "
                "under the same path"
            )
    return table.commit(writer, batch, adds, removes)


def layout_of(path: str) -> str | None:
    """Which layout a directory has; None when it holds no table of ours."""
    from martlet.spark.pipelines.lake.parquet_table import LOG_FOLDER

    if os.path.isdir(os.path.join(path, "_delta_log")):
        return "delta"
    return "parquet" if os.path.isdir(os.path.join(path, LOG_FOLDER)) else None
