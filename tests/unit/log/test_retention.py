"""Retention by time, by size and by the log's start."""

import pytest
from sim.disk import SimDisk

from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from tests.unit.log.log_builders import DIRECTORY, NOW_MS, SMALL, append, batch_of, batches_in, fill, new_disk, open_log

DAY_MS = 86_400_000


def log_with(disk: SimDisk, **settings: int | bool) -> PartitionLog:
    options = LogOptions(**{"segment_bytes": 1000, "index_interval_bytes": 200, "retention_ms": -1, **settings})  # type: ignore[arg-type]
    return open_log(disk, options)


def test_old_segments_go_and_younger_ones_stay() -> None:
    log = log_with(new_disk(), retention_ms=1000)
    fill(log, 40)
    first_ms = [segment.max_timestamp()[0] for segment in log.segments]
    deleted = log.delete_old_segments(first_ms[2] + 1001, up_to_offset=80)
    assert deleted == 3
    assert log.log_start_offset == log.segments.first.base_offset > 0
    assert batches_in(log)


def test_a_segment_lives_as_long_as_its_latest_record() -> None:
    log = log_with(new_disk(), retention_ms=1000)
    append(log, batch_of(b"late", timestamp_ms=NOW_MS + 5000))
    append(log, batch_of(b"early", timestamp_ms=NOW_MS))
    log.roller.roll(NOW_MS)
    append(log, batch_of(b"x", timestamp_ms=NOW_MS))
    assert log.delete_old_segments(NOW_MS + 6000, up_to_offset=9) == 0
    assert log.delete_old_segments(NOW_MS + 6001, up_to_offset=9) == 2


def test_everything_may_go_and_the_offsets_go_on() -> None:
    disk = new_disk()
    log = log_with(disk, retention_ms=1000)
    fill(log, 10)
    assert log.delete_old_segments(NOW_MS + DAY_MS, up_to_offset=20) == 2
    assert (log.log_start_offset, log.end_offset, log.segments.size_bytes(), len(log.segments)) == (20, 20, 0, 1)
    fill(log, 1)
    assert log.end_offset == 22
    assert open_log(disk).end_offset == 22


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_after_deletion_leaves_no_hole(seed: int) -> None:
    disk = new_disk(seed)
    log = log_with(disk, retention_bytes=1500)
    fill(log, 40)
    log.durability.flush()
    log.delete_old_segments(NOW_MS, up_to_offset=80)
    disk.crash("power")
    again = open_log(disk)
    assert again.end_offset == 80
    assert again.log_start_offset <= log.log_start_offset
    batches_in(again)


def test_nothing_at_or_past_the_limit_goes() -> None:
    log = log_with(new_disk(), retention_ms=0, retention_bytes=0)
    fill(log, 40)
    second = log.segments[1]
    assert log.delete_old_segments(NOW_MS + DAY_MS, up_to_offset=second.next_offset - 1) == 1
    assert log.log_start_offset == second.base_offset


def test_size_counts_whole_segments_and_keeps_at_least_the_limit() -> None:
    log = log_with(new_disk(), retention_bytes=2500)
    fill(log, 60)
    log.delete_old_segments(NOW_MS, up_to_offset=120)
    assert log.segments.size_bytes() >= 2500
    assert log.segments.size_bytes() - log.segments.first.size < 2500


def test_without_the_delete_policy_only_the_log_start_deletes() -> None:
    log = log_with(new_disk(), retention_bytes=0, retention_ms=0, delete=False, compact=True)
    fill(log, 40)
    assert log.delete_old_segments(NOW_MS + DAY_MS, up_to_offset=80) == 0
    log.advance_log_start(40)
    assert log.delete_old_segments(NOW_MS + DAY_MS, up_to_offset=80) == 0, "what follows the start may still be lost"
    log.durability.flush()
    assert log.delete_old_segments(NOW_MS + DAY_MS, up_to_offset=80) > 0
    assert log.log_start_offset == 40
    assert log.segments.first.base_offset <= 40 < log.segments.first.next_offset


def test_records_deleted_up_to_the_end_leave_the_last_segment() -> None:
    log = log_with(new_disk())
    fill(log, 40)
    log.advance_log_start(80)
    log.delete_old_segments(NOW_MS, up_to_offset=80)
    assert (len(log.segments), log.end_offset) == (1, 80)


def test_records_without_timestamps_age_from_the_opening_of_the_log() -> None:
    log = log_with(new_disk(), retention_ms=1000)
    append(log, batch_of(b"x", timestamp_ms=-1))
    assert log.delete_old_segments(NOW_MS + 1000, up_to_offset=1) == 0
    assert log.delete_old_segments(NOW_MS + 1001, up_to_offset=1) == 1


def test_files_are_removed_after_their_delay() -> None:
    disk = new_disk()
    log = log_with(disk, retention_bytes=0, file_delete_delay_ms=500)
    fill(log, 40)
    log.delete_old_segments(NOW_MS, up_to_offset=80)
    waiting = [entry.name for entry in disk.list_directory(DIRECTORY) if entry.name.endswith(".deleted")]
    assert waiting
    log.deleted_files.noted_start = log.log_start_offset
    assert log.deleted_files.remove_due(NOW_MS + 499, log.options.file_delete_delay_ms) == 0
    assert log.deleted_files.remove_due(NOW_MS + 500, log.options.file_delete_delay_ms) == len(waiting)
    assert not [entry for entry in disk.list_directory(DIRECTORY) if entry.name.endswith(".deleted")]


def test_snapshots_and_epochs_before_the_start_go_too() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for sequence in range(60):
        append(log, batch_of(b"v" * 60, producer=(5, 0, sequence)), leader_epoch=sequence // 10)
    log.advance_log_start(45)
    log.delete_old_segments(NOW_MS, up_to_offset=60)
    assert log.epochs.entries == [(4, 45), (5, 50)]
    names = [entry.name for entry in disk.list_directory(DIRECTORY) if entry.name.endswith(".snapshot")]
    assert min(names) >= f"{log.segments.first.base_offset:020d}"


def test_very_many_segments_go_in_several_steps() -> None:
    log = log_with(new_disk(), segment_bytes=150)
    fill(log, 50)
    log.advance_log_start(100)
    assert log.delete_old_segments(NOW_MS, up_to_offset=100) == 32
    assert log.delete_old_segments(NOW_MS, up_to_offset=100) == 17
