"""The layouts of lake tables: which one a directory has, and its table by the layout's name.

Rules: the only module that knows all layouts. Each is imported on demand, since Delta is an optional package.

Proved by: tests/unit/spark/test_lake_table.py.
"""

import os
from typing import Final

from martlet.spark.pipelines.lake.table import LakeError, LakeTable

LAYOUTS: Final = ("parquet", "delta")


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


def layout_of(path: str) -> str | None:
    """Which layout a directory has; None when it holds no table of ours."""
    from martlet.spark.pipelines.lake.parquet_table import LOG_FOLDER

    if os.path.isdir(os.path.join(path, "_delta_log")):
        return "delta"
    return "parquet" if os.path.isdir(os.path.join(path, LOG_FOLDER)) else None
