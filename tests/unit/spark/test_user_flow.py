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


def test_a_file_without_flows_is_answered_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match=r"has no flow; write a function .* @flow\(reads=TOPIC, writes=TOPIC\)"):
        load_flows(written(tmp_path, "x = 1\n"))
    with pytest.raises(PipelineFileError, match="there is no file"):
        load_flows(str(tmp_path / "missing.py"))
    with pytest.raises(PipelineFileError, match="is not valid Python: '\\(' was never closed"):
        load_flows(written(tmp_path, "flow(\n"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense()", "NameError: name 'nonsense' is not defined"),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("{}['amount']", "KeyError: 'amount'"),
    ],
)
def test_a_file_that_fails_when_it_is_loaded_is_reported_with_its_line_and_the_error(
    tmp_path: Path, line: str, said: str
) -> None:
    path = written(tmp_path, f"{GOOD}\n{line}\n")
    with pytest.raises(PipelineFileError) as caught:
        load_flows(path)
    assert str(caught.value) == f"{path}, line {len(GOOD.splitlines()) + 2}: {said}"
