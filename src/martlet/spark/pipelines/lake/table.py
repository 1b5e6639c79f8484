"""What a pipeline asks of a lake table, whatever its layout.

Rules: every writer of a table goes through `LakeTable`; what a layout keeps on disk is known to its own module only.

Invariants: (SPK-9) after any crash and any repetition, a batch of a writer is in the table once or not at all; (SPK-10)
rows of a batch that was not committed are seen by no reader of `files`; (SPK-11) a table keeps the columns
it was made with: a batch with others is refused; (SPK-12) files are committed only if the driver sees them.

Proved by: tests/unit/spark/test_lake_table.py, tests/spark/test_archive.py.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from martlet.base.errors import MartletError
from martlet.spark.pipelines.lake.data_file import DataFile

if TYPE_CHECKING:
    import pyarrow as pa


class LakeError(MartletError):
    """A table cannot be used as asked; the text says what to do."""


class LakeTable(Protocol):
    """A table in a directory. Used at the driver only: tasks write files and know nothing of the table."""

    path: str
    stages_files: bool
    """Whether tasks put files into the batch's `staging_folder`, and not at their final places."""

    def prepare(self, schema: "pa.Schema", partition_by: str | None) -> None:
        """Make the table if there is none; raises LakeError if there is one with other columns (SPK-11)."""
        ...

    def commit(self, writer: str, batch: int, adds: Sequence[DataFile], removes: Sequence[DataFile] = ()) -> bool:
        """Put files in and take files out as one step; False when this batch of this writer was in already (SPK-9)."""
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

    def checkpoint_log(self) -> None:
        """Keep the log quick to read in a table of many batches; changes nothing else."""
        ...

    def compact(self, *, files_min: int, target_bytes: int) -> int:
        """Merge small files where there are this many in one partition; returns how many files went."""
        ...


def commit_in_sight(
    table: LakeTable, writer: str, batch: int, adds: Sequence[DataFile], removes: Sequence[DataFile] = ()
) -> bool:
    """Commit what tasks have written; raises LakeError unless all of it is where it will be looked for (SPK-12)."""
    # A batch that is in already needs nothing more, and the one that put it in may have cleared our files away.
    for file in () if table.has_batch(writer, batch) else adds:
        place = os.path.join(table.path, file.staged)
        if not os.path.exists(place) or os.path.getsize(place) != file.bytes:
            raise LakeError(
                f"{place} was written by a task and is not here; the table must be on a file system that all nodes see "
                "under the same path"
            )
    return table.commit(writer, batch, adds, removes)
