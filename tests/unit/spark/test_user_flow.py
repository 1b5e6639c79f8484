"""A user's file of flows: what it says, and what is said about a wrong one."""

from pathlib import Path

import pytest

from martlet.spark.pipelines.user_flow import LakeTarget, PipelineFileError, load_flows

GOOD = """
from martlet.spark.pipelines import flow, lake_table

@flow(reads="orders", writes="large-orders")
def large(orders, limit=1000):
    return orders.where(f"amount > {limit}")

@flow(reads="orders,refunds", writes=lake_table("table", partition_by="date"))
def keep(messages):
    return messages
"""


def written(folder: Path, text: str) -> str:
    path = folder / "pipeline.py"
    path.write_text(text, "utf-8")
    return str(path)


def test_a_file_tells_its_flows_in_order_with_what_they_read_and_write(tmp_path: Path) -> None:
    flows = load_flows(written(tmp_path, GOOD))
    assert [(note.function.__name__, note.reads, note.writes) for note in flows] == [
        ("large", "orders", "large-orders"),
        ("keep", "orders,refunds", LakeTarget("table", "parquet", "date")),
    ]


def test_a_file_without_flows_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match=r"has no flow; write a function .* @flow\(reads=TOPIC, writes=TOPIC\)"):
        load_flows(written(tmp_path, "x = 1\n"))
    with pytest.raises(PipelineFileError, match="there is no file"):
        load_flows(str(tmp_path / "missing.py"))
    with pytest.raises(PipelineFileError, match="is not valid Python: '\\(' was never closed"):
        load_flows(written(tmp_path, "flow(\n"))
