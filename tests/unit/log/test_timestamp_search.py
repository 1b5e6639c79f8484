"""Searching by time, record by record."""

import pytest

from martlet.log.log_slice import TimestampOffset
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.wire.batch import read_batch_header, rebuild_batch
from tests.unit.log.log_builders import DIRECTORY, SMALL, append, batch_of, close_cleanly, new_disk, open_log


def log_of(*timestamps: int, options: LogOptions = SMALL) -> PartitionLog:
    """Batches of two records, one millisecond apart."""
    log = open_log(new_disk(), options)
    for number, timestamp in enumerate(timestamps):
        append(log, batch_of(b"a" * 40, b"b" * 40, timestamp_ms=timestamp), leader_epoch=number // 10)
    return log


def test_the_first_record_at_or_after_an_instant_is_found() -> None:
    log = log_of(*range(1000, 1400, 10))
    assert log.times_below(80).first_at(0) == TimestampOffset(1000, 0, 0)
    assert log.times_below(80).first_at(1001) == TimestampOffset(1001, 1, 0)
    assert log.times_below(80).first_at(1002) == TimestampOffset(1010, 2, 0)
    assert log.times_below(80).first_at(1255) == TimestampOffset(1260, 52, 2)
    assert log.times_below(80).first_at(1391) == TimestampOffset(1391, 79, 3)
    assert log.times_below(80).first_at(1392) is None


def test_the_same_holds_after_a_restart() -> None:
    disk = new_disk()
    log = open_log(disk)
    for timestamp in range(1000, 1400, 10):
        append(log, batch_of(b"a" * 40, b"b" * 40, timestamp_ms=timestamp))
    again = open_log(disk, SMALL, close_cleanly(log))
    assert again.times_below(80).first_at(1255) == TimestampOffset(1260, 52, 0)
    assert again.times_below(80).latest() == TimestampOffset(1391, 79, 0)


def test_only_what_lies_below_the_end_is_found() -> None:
    log = log_of(*range(1000, 1100, 10))
    assert log.times_below(10).first_at(1050) is None
    assert log.times_below(12).first_at(1050) == TimestampOffset(1050, 10, 0)
    assert log.times_below(10).latest() == TimestampOffset(1041, 9, 0)


def test_only_what_lies_after_the_start_is_found() -> None:
    log = log_of(2000, *range(1000, 1100, 10))
    log.advance_log_start(7)
    assert log.times_below(22).first_at(0) == TimestampOffset(1021, 7, 0)
    assert log.times_below(22).latest() == TimestampOffset(1091, 21, 1)


def test_the_latest_record_may_lie_anywhere_and_the_first_of_equals_counts() -> None:
    log = log_of(1000, 1010, 5000, 1020, *range(1100, 1300, 10), 5000)
    assert log.times_below(log.end_offset).latest() == TimestampOffset(5001, 5, 0)
    assert log.times_below(log.end_offset).first_at(1300) == TimestampOffset(5000, 4, 0)


def test_time_running_backwards_is_searched_all_the_same() -> None:
    log = log_of(*range(2000, 1000, -25))
    for wanted in (1000, 1500, 1999, 2000, 2001):
        found = log.times_below(80).first_at(wanted)
        assert found is not None
        assert found.offset == (1 if wanted == 2001 else 0)
    assert log.times_below(80).first_at(2002) is None


def test_log_append_time_gives_the_first_offset_of_the_batch() -> None:
    log = open_log(new_disk(), LogOptions(log_append_time=True))
    for now in (100, 200, 300):
        append(log, batch_of(b"a", b"b", timestamp_ms=5), now_ms=now)
    assert log.times_below(6).first_at(101) == TimestampOffset(200, 2, 0)
    assert log.times_below(6).latest() == TimestampOffset(300, 4, 0)


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_compressed_batches_are_opened(compression: int) -> None:
    log = open_log(new_disk())
    append(log, batch_of(*[b"v"] * 50, timestamp_ms=100, compression=compression))
    assert log.times_below(50).first_at(131) == TimestampOffset(131, 31, 0)


def test_a_batch_that_cannot_be_opened_answers_with_its_beginning() -> None:
    log = open_log(new_disk())
    append(log, batch_of(b"a", timestamp_ms=10))
    broken = bytearray(rebuild_batch(read_batch_header(batch_of(b"a", b"b", timestamp_ms=100)), b"\xff" * 20))
    append(log, broken)
    assert log.times_below(3).first_at(101) == TimestampOffset(101, 1, 0)


def test_an_empty_log_and_one_without_timestamps_find_nothing() -> None:
    log = open_log(new_disk())
    assert log.times_below(0).first_at(0) is None
    assert log.times_below(0).latest() is None
    append(log, batch_of(b"a", timestamp_ms=-1))
    assert log.times_below(1).latest() is None


def test_damaged_time_indexes_do_not_change_an_answer() -> None:
    disk = new_disk()
    log = open_log(disk)
    for timestamp in range(1000, 1200, 10):
        append(log, batch_of(b"a" * 40, b"b" * 40, timestamp_ms=timestamp))
    recovery = close_cleanly(log)
    path = f"{DIRECTORY}/00000000000000000000.timeindex"
    content = disk.read_file(path)
    assert content
    for bit in range(len(content) * 8):
        disk.overwrite(path, 0, content)
        disk.flip_bit(path, bit)
        again = open_log(disk, SMALL, recovery)
        for wanted in (1000, 1023, 1041, 1111):
            expected = log.times_below(40).first_at(wanted)
            assert again.times_below(40).first_at(wanted) == expected
