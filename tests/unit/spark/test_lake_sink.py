"""What tasks of the lake sink need: the file system, and no package that only the driver has."""

import os
import pickle
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from martlet.spark.pipelines.lake.layouts import open_table
from martlet.spark.pipelines.lake.sink import LakeWriter
from martlet.spark.pipelines.lake.table import LakeError

SCHEMA = StructType([StructField("number", LongType()), StructField("day", StringType())])
DELTA_MODULE = "martlet.spark.pipelines.lake.delta_table"


@pytest.mark.parametrize("layout", ["parquet", "delta"])
def test_a_task_writes_files_without_the_package_that_keeps_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    options = {"path": str(tmp_path / "table"), "layout": layout, "partitionBy": "day", "writer": "w", "batch": "0"}
    at_driver = LakeWriter(options, SCHEMA)
    sent = pickle.dumps(at_driver)
    rows = pa.RecordBatch.from_pylist([{"number": 1, "day": "a"}, {"number": 2, "day": "b"}])
    with monkeypatch.context() as elsewhere:
        elsewhere.setitem(sys.modules, "deltalake", None)
        elsewhere.delitem(sys.modules, DELTA_MODULE, raising=False)
        in_task = pickle.loads(sent)
        message = in_task.write(iter([rows]))
    staged = [file.staged.startswith("_staging/w/0/") for file in message.files]
    assert staged == [layout == "parquet"] * 2
    at_driver.commit([message])
    table = open_table(options["path"], layout)
    assert sum(file.rows for file in table.files()) == 2
    assert all(Path(table.location(file)).exists() for file in table.files())


@pytest.mark.parametrize("layout", ["parquet", "delta"])
def test_a_path_means_the_same_to_a_task_in_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"path": "table", "layout": layout, "writer": "w", "batch": "0"}
    at_driver = LakeWriter(options, SCHEMA)
    (tmp_path / "elsewhere").mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path / "elsewhere")
        message = at_driver.write(iter([pa.RecordBatch.from_pylist([{"number": 1, "day": "a"}])]))
    at_driver.commit([message])
    table = open_table("table", layout)
    assert [file.rows for file in table.files()] == [1]
    assert all(Path(table.location(file)).is_relative_to(tmp_path / "table") for file in table.files())
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("layout", ["parquet", "delta"])
def test_files_that_the_driver_does_not_see_are_not_committed(tmp_path: Path, layout: str) -> None:
    options = {"path": str(tmp_path / "table"), "layout": layout, "writer": "w", "batch": "0"}
    writer = LakeWriter(options, SCHEMA)
    message = writer.write(iter([pa.RecordBatch.from_pylist([{"number": 1, "day": "a"}])]))
    (tmp_path / "table" / message.files[0].staged).unlink()
    with pytest.raises(LakeError, match="must be on a file system that all nodes see"):
        writer.commit([message])
    assert open_table(options["path"], layout).files() == []
    assert not open_table(options["path"], layout).has_batch("w", 0)
