"""Lake tables of both layouts: a batch once, whatever was interrupted, repeated or done by two at a time."""

import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from martlet.spark.pipelines.lake import parquet_table
from martlet.spark.pipelines.lake.data_file import DataFile, FilesWriter, staging_folder
from martlet.spark.pipelines.lake.layouts import layout_of, open_table
from martlet.spark.pipelines.lake.parquet_table import ParquetTable
from martlet.spark.pipelines.lake.table import LakeError, LakeTable

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("date", pa.string()),
    ]
)
LAYOUTS = ["parquet", "delta"]
WRITER = "query-1"


@pytest.fixture(params=LAYOUTS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    made = open_table(str(tmp_path / "table"), request.param)
    made.prepare(SCHEMA, "date")
    return made


def rows(numbers: Sequence[int], date: str | None = "2026-03-01") -> pa.RecordBatch:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    listed = [
        {"number": number, "at": at, "headers": [{"key": "a", "value": b"1"}], "date": date} for number in numbers
    ]
    return pa.RecordBatch.from_pylist(listed, schema=SCHEMA)


def write(table: LakeTable, batch: int, *batches: pa.RecordBatch) -> list[DataFile]:
    """What tasks do."""
    staging = staging_folder(WRITER, batch) if table.stages_files else None
    writer = FilesWriter(table.path, staging=staging, partition_by="date", prefix=f"batch-{batch}")
    return writer.write_all(batches)


def numbers(table: LakeTable) -> list[int]:
    """What a reader of the table's own list of files finds."""
    found: list[int] = []
    for file in table.files():
        content = pq.read_table(table.location(file), partitioning=None)
        assert content.num_rows == file.rows
        assert "date" not in content.column_names
        found += content["number"].to_pylist()
    return sorted(found)


def test_a_batch_committed_twice_is_in_the_table_once(table: LakeTable) -> None:
    assert table.commit(WRITER, 0, write(table, 0, rows([1, 2]), rows([3], "2026-03-02")))
    assert not table.commit(WRITER, 0, write(table, 0, rows([1, 2]), rows([3], "2026-03-02")))
    assert numbers(table) == [1, 2, 3]
    assert (table.has_batch(WRITER, 0), table.has_batch(WRITER, 1), table.has_batch("other", 0)) == (True, False, False)
    assert {file.partition["date"] for file in table.files()} == {"2026-03-01", "2026-03-02"}


def test_two_queries_with_the_same_batch_number_are_two_batches(table: LakeTable) -> None:
    assert table.commit(WRITER, 0, write(table, 0, rows([1])))
    assert table.commit("query-2", 0, write(table, 0, rows([2])))
    assert numbers(table) == [1, 2]


@pytest.mark.parametrize("beside", [[], [2, 3]], ids=["alone", "beside others"])
def test_rows_without_a_partition_value_are_kept_under_the_name_that_means_null(
    table: LakeTable, beside: list[int]
) -> None:
    mixed = pa.Table.from_batches([rows([1], None), rows(beside), rows([4], None)]).combine_chunks().to_batches()
    table.commit(WRITER, 0, write(table, 0, *mixed))
    assert numbers(table) == sorted([1, 4, *beside])
    dates = {file.partition["date"]: file for file in table.files()}
    assert set(dates) == ({None, "2026-03-01"} if beside else {None})
    assert dates[None].path.startswith("date=__HIVE_DEFAULT_PARTITION__/")
    assert dates[None].rows == 2
    for batch in range(1, 4):
        table.commit(WRITER, batch, write(table, batch, rows([batch + 10], None)))
    table.compact(files_min=2, target_bytes=1 << 20)
    assert numbers(table) == sorted([1, 4, *beside, 11, 12, 13])
    assert {file.partition["date"] for file in table.files()} == set(dates)


def test_any_reader_of_the_layout_finds_null_where_there_was_no_partition_value(table: LakeTable) -> None:
    table.commit(WRITER, 0, write(table, 0, rows([1], None), rows([2])))
    if layout_of(table.path) == "delta":
        found = deltalake.DeltaTable(table.path).to_pyarrow_table()
    else:
        found = pq.read_table(table.path)
    assert sorted((row["number"], row["date"]) for row in found.select(["number", "date"]).to_pylist()) == [
        (1, None),
        (2, "2026-03-01"),
    ]


def test_files_that_were_not_committed_are_not_in_the_table(table: LakeTable) -> None:
    write(table, 0, rows([1, 2]))
    assert numbers(table) == []


def test_a_batch_without_rows_counts_as_done(table: LakeTable) -> None:
    assert table.commit(WRITER, 0, [])
    assert table.has_batch(WRITER, 0)
    assert numbers(table) == []


def test_files_taken_out_and_put_in_change_places_at_once(table: LakeTable) -> None:
    table.commit(WRITER, 0, write(table, 0, rows([1, 2]), rows([3], "2026-03-02")))
    old = [file for file in table.files() if file.partition["date"] == "2026-03-01"]
    table.commit(WRITER, 1, write(table, 1, rows([20])), old)
    assert numbers(table) == [3, 20]


def test_compaction_merges_small_files_of_one_day_and_changes_no_row(table: LakeTable) -> None:
    for batch in range(5):
        table.commit(WRITER, batch, write(table, batch, rows([batch, batch + 100]), rows([batch + 200], "2026-03-02")))
    before = numbers(table)
    assert table.compact(files_min=6, target_bytes=1 << 20) == 0
    assert table.compact(files_min=5, target_bytes=1 << 20) == 8
    assert numbers(table) == before
    assert [file.partition["date"] for file in table.files()] == ["2026-03-01", "2026-03-02"]
    assert table.commit(WRITER, 5, write(table, 5, rows([999])))
    assert numbers(table) == [*before, 999]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_table_that_is_not_there_yet_has_nothing_to_compact(layout: str, tmp_path: Path) -> None:
    assert not open_table(str(tmp_path / "table"), layout).compact(files_min=2, target_bytes=1_000_000)
    assert not (tmp_path / "table").exists()


def test_a_compaction_that_meets_a_broken_file_or_log_says_so(table: LakeTable) -> None:
    for batch in range(3):
        table.commit(WRITER, batch, write(table, batch, rows([batch])))
    Path(table.location(table.files()[0])).write_bytes(b"no parquet")
    with pytest.raises(LakeError, match="was not compacted: "):
        table.compact(files_min=2, target_bytes=1 << 20)


def test_a_delta_log_that_cannot_be_read_is_reported_by_the_compaction(tmp_path: Path) -> None:
    table = open_table(str(tmp_path / "table"), "delta")
    table.prepare(SCHEMA, "date")
    for entry in Path(table.path, "_delta_log").glob("*.json"):
        entry.write_text("no log", "utf-8")
    with pytest.raises(LakeError, match="was not compacted: "):
        table.compact(files_min=2, target_bytes=1 << 20)


def test_other_columns_are_refused_with_both_lists(table: LakeTable) -> None:
    with pytest.raises(LakeError, match=r"holds number int64.*writes x int32.*give another directory"):
        table.prepare(pa.schema([("x", pa.int32())]), None)


def test_the_layout_of_a_directory_is_seen_from_what_is_in_it(table: LakeTable, tmp_path: Path) -> None:
    assert layout_of(table.path) in LAYOUTS
    assert open_table(table.path, layout_of(table.path) or "").path == table.path
    assert layout_of(str(tmp_path)) is None
    with pytest.raises(LakeError, match="there is no layout 'orc'; there are parquet and delta"):
        open_table(str(tmp_path), "orc")


def test_partition_values_are_safe_in_paths(table: LakeTable) -> None:
    for batch, value in enumerate(["../../etc/x=1", "a b", "50%"]):
        table.commit(WRITER, batch, write(table, batch, rows([batch], value), rows([batch + 10], value)))
        table.commit("again", batch, write(table, batch, rows([batch + 20], value)))
    assert table.files()[0].path.startswith("date=..%2F..%2Fetc%2Fx%3D1/")
    assert numbers(table) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    table.commit("removal", 0, [], [file for file in table.files() if file.partition["date"] == "a b"])
    table.compact(files_min=2, target_bytes=1 << 20)
    assert numbers(table) == [0, 2, 10, 12, 20, 22]
    assert {file.partition["date"] for file in table.files()} == {"../../etc/x=1", "50%"}


# What only the Parquet layout has to care for itself.


@pytest.fixture
def parquet(tmp_path: Path) -> ParquetTable:
    made = ParquetTable(str(tmp_path / "table"))
    made.prepare(SCHEMA, "date")
    return made


def listed(table: ParquetTable) -> list[int]:
    """What a tool finds that lists the directory and knows no log."""
    root = Path(table.path)
    places = [path for path in root.rglob("*.parquet") if not str(path.relative_to(root)).startswith("_")]
    return sorted(number for path in places for number in pq.read_table(path, partitioning=None)["number"].to_pylist())


def test_a_commit_that_died_before_moving_its_files_is_finished_by_the_repeated_batch(
    parquet: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception):
        pass

    def die(_self: ParquetTable, _entry: object) -> None:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(ParquetTable, "_publish", die)
        with pytest.raises(Died):
            parquet.commit(WRITER, 0, write(parquet, 0, rows([1, 2])))
    assert (numbers(parquet), listed(parquet)) == ([1, 2], [])
    assert not parquet.commit(WRITER, 0, write(parquet, 0, rows([1, 2])))
    assert (numbers(parquet), listed(parquet)) == ([1, 2], [1, 2])


def test_a_compaction_that_died_in_the_middle_is_finished_and_shows_no_row_twice(
    parquet: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(3):
        parquet.commit(WRITER, batch, write(parquet, batch, rows([batch])))

    rename = os.rename

    def die(source: str, target: str) -> None:
        if "_staging/compaction/" in source:
            raise OSError("died")
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", die)
        with pytest.raises(OSError, match="died"):
            parquet.compact(files_min=2, target_bytes=1 << 20)
    assert numbers(parquet) == [0, 1, 2]
    assert listed(parquet) == []
    parquet.finish_commits()
    assert (numbers(parquet), listed(parquet)) == ([0, 1, 2], [0, 1, 2])


def test_old_entries_are_folded_and_a_late_twin_of_a_folded_batch_is_still_refused(
    parquet: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_table, "_CHECKPOINT_ENTRIES_MIN", 5)
    for batch in range(40):
        parquet.commit(WRITER, batch, write(parquet, batch, rows([batch])))
        if batch % 8 == 7:
            parquet.compact(files_min=4, target_bytes=1 << 20)
    entries = os.listdir(os.path.join(parquet.path, "_martlet_log", "entries"))
    assert len(entries) < 20
    assert numbers(parquet) == listed(parquet) == list(range(40))
    assert not parquet.commit(WRITER, 0, write(parquet, 0, rows([0])))
    assert parquet.has_batch(WRITER, 3)
    assert numbers(parquet) == listed(parquet) == list(range(40))


def test_a_fold_that_died_before_removing_the_old_entries_counts_nothing_twice(
    parquet: ParquetTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(parquet_table, "_CHECKPOINT_ENTRIES_MIN", 1)
    for batch in range(12):
        parquet.commit(WRITER, batch, write(parquet, batch, rows([batch])))
    entries = os.path.join(parquet.path, "_martlet_log", "entries")
    shutil.copytree(entries, tmp_path / "entries")
    parquet.compact(files_min=100, target_bytes=1 << 20)
    assert len(os.listdir(entries)) < 12
    shutil.copytree(tmp_path / "entries", entries, dirs_exist_ok=True)
    assert numbers(parquet) == list(range(12))


def test_two_folds_with_a_kill_between_count_nothing_twice(
    parquet: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_table, "_CHECKPOINT_ENTRIES_MIN", 1)
    entries = os.path.join(parquet.path, "_martlet_log", "entries")

    def commit(batches: range) -> None:
        for batch in batches:
            old = [file for file in parquet.files() if f"batch-{batch - 1}-" in file.path]
            parquet.commit(WRITER, batch, write(parquet, batch, rows([batch])), old)

    commit(range(12))
    unlink = os.unlink

    def die(path: str) -> None:
        if os.path.dirname(path) == entries and path.endswith(".json"):
            raise OSError("killed")
        unlink(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", die)
        with pytest.raises(OSError, match="killed"):
            parquet.compact(files_min=100, target_bytes=1 << 20)
    assert len(os.listdir(entries)) == 12
    assert numbers(parquet) == [11]
    commit(range(12, 30))
    assert numbers(parquet) == [29]
    parquet.compact(files_min=100, target_bytes=1 << 20)
    assert numbers(parquet) == listed(parquet) == [29]
    assert len(os.listdir(entries)) == 10


def test_a_reader_beside_one_who_commits_and_folds_finds_every_committed_row(
    parquet: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_table, "_CHECKPOINT_ENTRIES_MIN", 1)
    for batch in range(12):
        parquet.commit(WRITER, batch, write(parquet, batch, rows([batch])))
    folder = os.path.join(parquet.path, "_martlet_log", "folded")
    other = ParquetTable(parquet.path)
    listdir, first = os.listdir, iter([True])

    def fold_meanwhile(path: str) -> list[str]:
        names = listdir(path)
        if path == folder and next(first, False):
            other.compact(files_min=100, target_bytes=1 << 20)
        return names

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", fold_meanwhile)
        assert numbers(parquet) == list(range(12))
    assert listdir(folder) == ["0.json"]


def test_a_fold_that_is_replaced_while_it_is_opened_hides_no_batch(
    parquet: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_table, "_CHECKPOINT_ENTRIES_MIN", 1)
    folder = os.path.join(parquet.path, "_martlet_log", "folded")
    other = ParquetTable(parquet.path)
    for batch in range(12):
        parquet.commit(WRITER, batch, write(parquet, batch, rows([batch])))
    other.compact(files_min=100, target_bytes=1 << 20)
    for batch in range(12, 14):
        parquet.commit(WRITER, batch, write(parquet, batch, rows([batch])))
    listdir, first = os.listdir, iter([True])

    def fold_meanwhile(path: str) -> list[str]:
        names = listdir(path)
        if path == folder and next(first, False):
            other.compact(files_min=100, target_bytes=1 << 20)
        return names

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", fold_meanwhile)
        assert not parquet.commit(WRITER, 3, write(parquet, 3, rows([3])))
    assert listdir(folder) == ["1.json"]
    assert numbers(parquet) == listed(parquet) == list(range(14))


def test_rows_that_break_off_leave_no_file(parquet: ParquetTable) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield rows([1])
        raise RuntimeError("the source has gone")

    writer = FilesWriter(parquet.path, staging="_staging/x/0", partition_by="date", prefix="p")
    with pytest.raises(RuntimeError, match="the source has gone"):
        writer.write_all(broken())
    assert listed(parquet) == []


def test_a_file_that_is_not_in_place_yet_is_neither_merged_nor_lost_by_a_compaction(
    parquet: ParquetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(3):
        parquet.commit(WRITER, batch, write(parquet, batch, rows([batch])))
    late = write(parquet, 3, rows([3]))
    with monkeypatch.context() as patched:
        # As if another process had committed, and not moved its file yet, while we compact.
        patched.setattr(ParquetTable, "finish_commits", lambda _self: None)
        patched.setattr(ParquetTable, "_publish", lambda _self, _entry: None)
        patched.setattr(shutil, "rmtree", lambda *_arguments, **_options: None)
        parquet.commit(WRITER, 3, late)
        patched.undo()
        patched.setattr(ParquetTable, "finish_commits", lambda _self: None)
        parquet.compact(files_min=2, target_bytes=1 << 20)
    assert numbers(parquet) == [0, 1, 2, 3]
    parquet.finish_commits()
    assert (numbers(parquet), listed(parquet)) == ([0, 1, 2, 3], [0, 1, 2, 3])
