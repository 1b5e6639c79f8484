"""What compaction does with transactions: aborted data goes at once, markers when nothing needs them any more."""

from dataclasses import replace

import pytest

from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.wire.batch import read_batch_header
from martlet.wire.records.record import read_records
from tests.unit.log.log_builders import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    append,
    batch_of,
    batches_in,
    checkpointed,
    close_cleanly,
    marker,
    new_disk,
    open_log,
    transactional,
)

COMPACTED: LogOptions = replace(
    SMALL, compact=True, delete=False, min_cleanable_dirty_ratio=0.01, delete_retention_ms=1000
)


def compact(log: PartitionLog, now_ms: int = NOW_MS) -> None:
    """Seal what there is and compact all of it that may be compacted."""
    log.roller.roll(now_ms)
    log.high_watermark = log.end_offset
    checkpointed(log)
    log.compaction.cleaned_offset = 0
    plan = log.plan_compaction(now_ms, up_to_offset=log.end_offset)
    if plan is not None:
        plan.run()
        assert log.compaction.complete(plan)


def values(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    """Offsets and values of all records that are no markers."""
    return [
        (record.offset, record.value)
        for batch in batches_in(log)
        if not read_batch_header(batch).is_control and read_batch_header(batch).record_count
        for record in read_records(batch, 1 << 20)
    ]


def markers(log: PartitionLog) -> list[int]:
    headers = [read_batch_header(batch) for batch in batches_in(log)]
    return [header.last_offset for header in headers if header.is_control and header.record_count]


def followed(log: PartitionLog, *, sequence: int, epoch: int = 0) -> PartitionLog:
    """Let producer 1 write one thing more, so that what came before is not its last."""
    append(log, transactional(1, b"z", key=b"z", sequence=sequence, epoch=epoch))
    append(log, marker(1, epoch=epoch))
    return log


def test_an_aborted_value_goes_and_takes_no_committed_ones_place() -> None:
    log = open_log(new_disk(), COMPACTED)
    append(log, batch_of(b"committed", key=b"k"))
    append(log, transactional(1, b"aborted", b"too", key=b"k"))
    append(log, marker(1, is_commit=False))
    compact(followed(log, sequence=2))
    assert values(log) == [(0, b"committed"), (4, b"z")]


def test_a_committed_value_takes_the_place_of_earlier_ones() -> None:
    log = open_log(new_disk(), COMPACTED)
    append(log, batch_of(b"old", key=b"k"))
    append(log, transactional(1, b"new", key=b"k"))
    append(log, marker(1))
    compact(log)
    assert values(log) == [(1, b"new")]


def test_nothing_from_an_undecided_transaction_on_is_compacted() -> None:
    log = open_log(new_disk(), COMPACTED)
    append(log, batch_of(b"old", key=b"k"))
    append(log, transactional(1, b"open", key=b"o"))
    log.roller.roll(NOW_MS)
    append(log, batch_of(b"new", key=b"k"))
    compact(log)
    assert len(values(log)) == 3
    append(log, marker(1, is_commit=False))
    compact(followed(log, sequence=1))
    assert values(log) == [(2, b"new"), (4, b"z")]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_goes_two_passes_and_a_while_after_its_data(is_commit: bool) -> None:
    log = open_log(new_disk(), COMPACTED)
    append(log, transactional(1, b"old", key=b"k"))
    append(log, marker(1, is_commit=is_commit))
    append(log, batch_of(b"new", key=b"k"))
    followed(log, sequence=1)
    compact(log)
    assert markers(log) == [1, 4], "its data was there in this pass"
    compact(log)
    assert markers(log) == [1, 4], "now it has a deadline"
    compact(log, NOW_MS + 999)
    assert markers(log) == [1, 4]
    compact(log, NOW_MS + 1000)
    assert markers(log) == [4]


def test_the_last_marker_of_a_producer_without_sequence_numbers_keeps_its_epoch() -> None:
    disk = new_disk()
    log = open_log(disk, COMPACTED)
    append(log, transactional(1, b"old", key=b"k"))
    append(log, marker(1, epoch=5))
    append(log, batch_of(b"new", key=b"k"))
    for now_ms in (NOW_MS, NOW_MS, NOW_MS + 2000, NOW_MS + 4000):
        compact(log, now_ms)
    assert markers(log) == []
    known = close_cleanly(log)
    for name, _, _ in disk.list_directory(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    entry = open_log(disk, COMPACTED, known).producers.get(1)
    assert entry is not None
    assert entry.epoch == 5


def test_an_emptied_batch_of_a_transaction_opens_none() -> None:
    disk = new_disk()
    log = open_log(disk, COMPACTED)
    append(log, transactional(1, b"aborted", key=b"k"))
    append(log, marker(1, is_commit=False))
    append(log, batch_of(b"other", key=b"o"))
    for now_ms in (NOW_MS, NOW_MS + 2000, NOW_MS + 4000):
        compact(log, now_ms)
    assert read_batch_header(batches_in(log)[0]).record_count == 0
    found = open_log(disk, COMPACTED)
    assert len(found.producers.transactions) == 0


def index_of(base_offset: int) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.txnindex"


def test_the_index_of_a_group_speaks_for_all_its_segments() -> None:
    disk = new_disk()
    log = open_log(disk, COMPACTED)
    append(log, transactional(1, b"a"))
    append(log, marker(1, is_commit=False))
    log.roller.roll(NOW_MS)
    append(log, transactional(1, b"b", sequence=1))
    append(log, marker(1, is_commit=False))
    expected = log.aborted_transactions(0, 4)
    assert [one.last_offset for one in expected] == [1, 3]
    compact(log)
    assert len(log.segments) == 2
    assert log.aborted_transactions(0, 4) == expected
    assert not disk.exists(index_of(2))
    assert open_log(disk, COMPACTED, close_cleanly(log)).aborted_transactions(0, 4) == expected
