"""Opening logs after clean stops, crashes and damage: what is cut, what is refused, what is rebuilt."""

import pytest
from sim.disk import SimDisk

from martlet.base.errors import LogDamaged, StorageFailure
from martlet.base.ids import TopicId
from martlet.log.file_names import RECOVERY_FLOOR
from martlet.log.options import LogOptions
from martlet.log.recovery import LogCheckpoint
from martlet.wire.batch import read_batch_header
from tests.unit.log.log_builders import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    append,
    batch_of,
    batches_in,
    checkpointed,
    close_cleanly,
    fill,
    new_disk,
    offsets,
    open_log,
    records_in,
)

ONE_SEGMENT = LogOptions(index_interval_bytes=200, retention_ms=-1)
FIRST_LOG = f"{DIRECTORY}/00000000000000000000.log"


def files(disk: SimDisk, suffix: str) -> list[str]:
    return [f"{DIRECTORY}/{entry.name}" for entry in disk.list_directory(DIRECTORY) if entry.name.endswith(suffix)]


def test_a_new_log_is_empty_and_has_a_file() -> None:
    disk = new_disk()
    log = open_log(disk)
    assert (log.log_start_offset, log.end_offset, log.durability.flushed_offset) == (0, 0, 0)
    assert disk.exists(FIRST_LOG)


def test_a_log_can_be_opened_again_before_anything_was_written() -> None:
    disk = new_disk()
    open_log(disk)
    assert open_log(disk).end_offset == 0


@pytest.mark.parametrize(
    "tail", [b"\0" * 5000, b"\0" * 3, b"garbage" * 40, b"\xff" * 61], ids=["zeros", "few zeros", "garbage", "ones"]
)
def test_a_bad_tail_past_the_recovery_point_is_cut(tail: bytes) -> None:
    disk = new_disk()
    log = open_log(disk, ONE_SEGMENT)
    fill(log, 20)
    expected = batches_in(log)
    disk.open(FIRST_LOG).append(tail)
    again = open_log(disk, ONE_SEGMENT)
    assert again.cut_bytes == len(tail)
    assert batches_in(again) == expected
    append(again, batch_of(b"next"))
    assert records_in(again)[-1].offset == 40


def test_a_tail_torn_inside_a_batch_is_cut_at_every_byte() -> None:
    disk = new_disk()
    log = open_log(disk, ONE_SEGMENT)
    fill(log, 3)
    whole = disk.read_file(FIRST_LOG) or b""
    start = whole.index(whole[:8])
    last = len(whole) - read_batch_header(batches_in(log)[-1]).size
    assert start == 0
    for size in range(last, len(whole)):
        disk.open(FIRST_LOG).truncate(0)
        disk.open(FIRST_LOG).append(whole[:size])
        again = open_log(disk, ONE_SEGMENT)
        assert (again.end_offset, again.segments.size_bytes()) == (4, last)
        assert not again.is_damaged, "that is what a killed process leaves"


def test_a_bit_flip_past_the_recovery_point_cuts_the_log_there() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 8)
    recovery = checkpointed(log)
    fill(log, 30)
    log.durability.close()
    victim = files(disk, ".log")[2]
    disk.flip_bit(victim, 8 * 100)
    again = open_log(disk, SMALL, recovery)
    assert again.end_offset == int(victim[-24:-4])
    assert again.end_offset >= recovery.recovery_point  # type: ignore[operator]
    assert files(disk, ".log")[-1] == victim


@pytest.mark.parametrize("byte", [16, 20, 21, 60, 61, 75], ids=lambda byte: f"byte {byte}")
def test_a_log_that_was_cut_at_a_damaged_batch_says_so(byte: int) -> None:
    disk = new_disk()
    log = open_log(disk, ONE_SEGMENT)
    fill(log, 20)
    assert not open_log(disk, ONE_SEGMENT).is_damaged
    size = read_batch_header(batches_in(log)[0]).size
    disk.flip_bit(FIRST_LOG, 8 * (10 * size + byte))
    again = open_log(disk, ONE_SEGMENT)
    assert again.end_offset == 20
    assert again.is_damaged


def test_a_batch_with_a_damaged_length_is_no_unfinished_write() -> None:
    for bit in range(8 * 8, 8 * 12):
        disk = new_disk()
        log = open_log(disk, ONE_SEGMENT)
        fill(log, 20)
        size = read_batch_header(batches_in(log)[0]).size
        disk.flip_bit(FIRST_LOG, 8 * 10 * size + bit)
        again = open_log(disk, ONE_SEGMENT)
        assert (again.end_offset, again.is_damaged) == (20, True), f"bit {bit}"


def test_a_log_that_ends_below_its_high_watermark_is_damaged() -> None:
    disk = new_disk()
    log = open_log(disk, ONE_SEGMENT)
    fill(log, 20)
    disk.cut(FIRST_LOG, read_batch_header(batches_in(log)[0]).size)
    assert open_log(disk, ONE_SEGMENT, LogCheckpoint(high_watermark=40)).is_damaged
    assert not open_log(disk, ONE_SEGMENT, LogCheckpoint(high_watermark=2)).is_damaged


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_bit_flip_before_the_recovery_point_is_never_cut(is_clean: bool) -> None:
    disk = new_disk()
    log = open_log(disk, ONE_SEGMENT)
    fill(log, 20)
    recovery = close_cleanly(log)._replace(is_clean=is_clean)
    content = disk.read_file(FIRST_LOG)
    assert content
    disk.flip_bit(FIRST_LOG, 8 * (len(content) - 20))
    if is_clean:  # then it is certain where the log ended
        log = open_log(disk, ONE_SEGMENT, recovery)
        assert log.end_offset == 40
        with pytest.raises(LogDamaged, match=r"00000.log: damaged at byte \d+, offsets 38 to 39 cannot be read"):
            log.locate(38, max_bytes=1000, end_offset=40, at_least_one=True).read()
    else:
        with pytest.raises(LogDamaged, match=r"00000.log: damaged at byte \d+, near offset 38"):
            open_log(disk, ONE_SEGMENT, recovery)
    disk.flip_bit(FIRST_LOG, 8 * (len(content) - 20))
    assert disk.read_file(FIRST_LOG) == content, "nothing was touched"
    assert open_log(disk, ONE_SEGMENT, recovery).end_offset == 40


def test_a_log_that_ends_before_its_recovery_point_is_refused() -> None:
    disk = new_disk()
    log = open_log(disk, ONE_SEGMENT)
    fill(log, 20)
    recovery = checkpointed(log)
    disk.cut(FIRST_LOG, read_batch_header(batches_in(log)[0]).size)
    with pytest.raises(StorageFailure, match="ends at offset 2, but all up to 40 was flushed"):
        open_log(disk, ONE_SEGMENT, recovery)


def test_a_log_without_files_is_refused_when_it_had_some() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 3)
    recovery = checkpointed(log)
    disk.remove(FIRST_LOG)
    with pytest.raises(StorageFailure, match="no segments, though offsets up to 6"):
        open_log(disk, SMALL, recovery)


def test_segments_after_a_lost_one_are_cut_past_the_recovery_point() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 30)
    names = files(disk, ".log")
    disk.remove(names[2])
    again = open_log(disk)
    assert again.end_offset == int(names[2][-24:-4])
    assert files(disk, ".log") == names[:2]


def test_without_a_recovery_point_only_the_very_end_may_be_cut() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 30)
    unknown = LogCheckpoint(recovery_point=None)
    names = files(disk, ".log")
    disk.open(names[-1]).append(b"\0" * 70)
    again = open_log(disk, SMALL, unknown)
    assert (again.end_offset, again.cut_bytes, again.durability.flushed_offset) == (60, 70, 0)
    disk.flip_bit(names[1], 8 * 70)
    again = open_log(disk, SMALL, unknown)
    assert (again.end_offset, again.cut_bytes, len(again.damage)) == (60, 0, 1)
    assert files(disk, ".log") == names


def test_a_clean_start_reads_little_however_much_there_is() -> None:
    for options in (SMALL, ONE_SEGMENT):
        reads = []
        for batches in (10, 1000):
            disk = new_disk()
            log = open_log(disk, options)
            fill(log, batches)
            recovery = close_cleanly(log)
            reads_before, bytes_before = disk.reads, disk.read_bytes
            again = open_log(disk, options, recovery)
            reads.append(disk.reads - reads_before)
            assert disk.read_bytes - bytes_before < 4000
            assert again.end_offset == batches * 2
        assert reads[1] <= reads[0] + 5
        assert reads[1] < 20


def test_a_log_resumed_cleanly_goes_on_as_if_never_stopped() -> None:
    whole = open_log(new_disk(), ONE_SEGMENT)
    fill(whole, 60)
    disk = new_disk()
    log = open_log(disk, ONE_SEGMENT)
    for _ in range(3):
        fill(log, 20)
        log = open_log(disk, ONE_SEGMENT, close_cleanly(log))
    assert offsets(batches_in(log)) == offsets(batches_in(whole))
    assert list(log.segments.active.index.offsets) == list(whole.segments.active.index.offsets)
    assert log.times_below(120).latest() == (NOW_MS + 191, 39, 0)


def test_a_crash_start_reads_only_past_the_recovery_point() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 400)
    recovery = checkpointed(log)
    fill(log, 2)
    before = disk.reads
    again = open_log(disk, SMALL, recovery)
    assert again.end_offset == 804
    assert disk.reads - before < 30


def test_indexes_past_the_recovery_point_are_rebuilt() -> None:
    disk = new_disk()
    log = open_log(disk, ONE_SEGMENT)
    fill(log, 40)
    expected = batches_in(log)
    open_log(disk, ONE_SEGMENT)
    index = disk.read_file(f"{DIRECTORY}/00000000000000000000.index")
    assert index
    assert len(index) > 8 * 10
    assert batches_in(open_log(disk, ONE_SEGMENT)) == expected


def test_an_index_longer_than_the_surviving_log_is_cut_too() -> None:
    disk = new_disk()
    log = open_log(disk, ONE_SEGMENT)
    fill(log, 40)
    close_cleanly(log)
    disk.cut(FIRST_LOG, 1000)
    again = open_log(disk, ONE_SEGMENT)
    assert again.segments.size_bytes() <= 1000
    fill(again, 10)
    assert offsets(batches_in(again)) == list(range(0, again.end_offset, 2))


def test_producers_are_rebuilt_from_snapshot_and_batches() -> None:
    disk = new_disk()
    log = open_log(disk)
    for sequence in range(40):
        append(log, batch_of(b"v" * 60, producer=(7, 0, sequence)))
    again = open_log(disk)
    entry = again.producers.get(7)
    assert entry is not None
    assert [batch.last_offset for batch in entry.batches] == [35, 36, 37, 38, 39]
    assert append(again, batch_of(b"v" * 60, producer=(7, 0, 36))).duplicate


def test_snapshots_of_what_was_cut_are_gone() -> None:
    disk = new_disk()
    log = open_log(disk)
    for sequence in range(40):
        append(log, batch_of(b"v" * 60, producer=(7, 0, sequence)))
    log.durability.close()
    names = files(disk, ".log")
    disk.flip_bit(names[1], 8 * 70)
    again = open_log(disk)
    assert all(int(name[-29:-9]) <= again.end_offset for name in files(disk, ".snapshot"))
    entry = again.producers.get(7)
    assert entry is not None
    assert entry.batches[-1].last_offset == again.end_offset - 1


def test_a_log_start_beyond_the_first_segments_removes_them_again() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 30)
    log.advance_log_start(25)
    recovery = checkpointed(log)
    again = open_log(disk, SMALL, recovery)
    assert again.log_start_offset == 25
    assert int(files(disk, ".log")[0][-24:-4]) <= 25
    assert len(files(disk, ".log")) < 5
    assert records_in(again)[-1].offset == 59


def test_a_log_start_beyond_the_end_is_refused() -> None:
    disk = new_disk()
    fill(open_log(disk), 3)
    with pytest.raises(StorageFailure, match="before its start"):
        open_log(disk, SMALL, LogCheckpoint(recovery_point=0, log_start_offset=7))


def test_epochs_are_read_from_the_batches_when_the_file_is_broken() -> None:
    disk = new_disk()
    log = open_log(disk)
    for epoch in range(4):
        fill(log, 5, leader_epoch=epoch)
    entries = list(log.epochs.entries)
    recovery = close_cleanly(log)
    for content in (b"", b"\0" * 40, b"0\n1\n77 0\n"):
        disk.replace_file(f"{DIRECTORY}/leader-epoch-checkpoint", content)
        again = open_log(disk, SMALL, recovery)
        assert again.epochs.entries == entries
        assert again.epochs.is_dirty
    disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")
    assert open_log(disk, SMALL, recovery).epochs.entries == entries


def test_an_epoch_that_wrote_nothing_is_remembered_over_a_crash() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 5, leader_epoch=1)
    log.assign_epoch(2)
    recovery = checkpointed(log)
    assert open_log(disk, SMALL, recovery).epochs.entries == [(1, 0), (2, 10)]


def test_epochs_beyond_the_surviving_end_are_forgotten() -> None:
    disk = new_disk()
    log = open_log(disk, ONE_SEGMENT)
    fill(log, 5, leader_epoch=1)
    size = log.segments.size_bytes()
    recovery = checkpointed(log)
    fill(log, 5, leader_epoch=2)
    fill(log, 5, leader_epoch=3)
    ticket = log.durability.begin_checkpoint()
    assert ticket is not None
    ticket.write()
    disk.cut(FIRST_LOG, size)
    assert open_log(disk, ONE_SEGMENT, recovery).epochs.entries == [(1, 0), (2, 10)]


def test_the_topic_id_survives_and_a_broken_one_is_only_unknown() -> None:
    disk = new_disk()
    log = open_log(disk)
    log.assign_topic_id(TopicId(b"0123456789abcdef"))
    assert open_log(disk).topic_id == b"0123456789abcdef"
    disk.overwrite(f"{DIRECTORY}/partition.metadata", 0, b"\0" * 40)
    assert open_log(disk).topic_id is None


def test_deleted_and_unfinished_files_are_removed_and_foreign_ones_kept() -> None:
    disk = new_disk()
    fill(open_log(disk), 3)
    for name in ("00000000000000000000.log.deleted", "00000000000000000009.log.cleaned", "README", "x.log"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    log = open_log(disk)
    assert log.end_offset == 6
    left = [entry.name for entry in disk.list_directory(DIRECTORY)]
    assert "README" in left
    assert "x.log" in left
    assert not [name for name in left if name.endswith(".cleaned")]
    assert log.deleted_files.remove_due(NOW_MS + SMALL.file_delete_delay_ms, log.options.file_delete_delay_ms) == 1
    assert not disk.exists(f"{DIRECTORY}/00000000000000000000.log.deleted")


def test_a_truncation_that_no_checkpoint_knows_of_is_no_loss() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 30)
    recovery = checkpointed(log)
    log.truncate_to(11, now_ms=NOW_MS)
    again = open_log(disk, SMALL, recovery)
    assert (again.end_offset, again.durability.recovery_point) == (10, 10)


def test_a_floor_only_sinks_until_a_checkpoint_takes_it_away() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 10)
    recovery = checkpointed(log)
    log.truncate_to(4, now_ms=NOW_MS)
    fill(log, 10)
    log.truncate_to(16, now_ms=NOW_MS)
    assert (disk.read_file(f"{DIRECTORY}/{RECOVERY_FLOOR}") or b"").endswith(b" 4\n")
    assert open_log(disk, SMALL, recovery).durability.recovery_point == 4
    assert checkpointed(log).recovery_point == 16
    assert not disk.exists(f"{DIRECTORY}/{RECOVERY_FLOOR}")


def test_an_unreadable_floor_makes_the_recovery_point_unknown() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 30)
    recovery = checkpointed(log)
    disk.replace_file(f"{DIRECTORY}/{RECOVERY_FLOOR}", b"unknown\n")
    assert open_log(disk, SMALL, recovery).durability.flushed_offset == 0


def test_what_recovery_found_is_not_called_flushed() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 5)
    recovery = checkpointed(log)
    fill(log, 5)
    again = open_log(disk, SMALL, recovery)
    assert (again.durability.recovery_point, again.durability.flushed_offset, again.end_offset) == (10, 10, 20)
    again.durability.flush()
    disk.crash("power")
    assert open_log(disk, SMALL, recovery).end_offset == 20
