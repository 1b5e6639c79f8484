"""One partition's log through its face: appending, finding, rolling, cutting, full disks."""

import os
from pathlib import Path

import pytest

from martlet.base.disk import SystemDisk
from martlet.base.errors import ApiError, DiskFull, ErrorCode, LogDamaged, StorageFailure
from martlet.log.log_slice import NOTHING
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.log.recovery import LogCheckpoint
from martlet.log.replicated_batches import check_replicated
from martlet.wire.batch import read_batch_header
from tests.unit.log.log_builders import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
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

LARGE = LogOptions(retention_ms=-1)


def test_offsets_are_handed_out_without_gaps() -> None:
    log = open_log(new_disk())
    assert append(log, batch_of(b"a", b"b", b"c"))[:2] == (0, 2)
    assert append(log, batch_of(b"d"))[:2] == (3, 3)
    assert [(record.offset, record.value) for record in records_in(log)] == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_a_batch_is_stamped_and_otherwise_kept_as_sent() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    sent = batch_of(b"a" * 30, compression=4)
    original = bytes(sent)
    append(log, sent, leader_epoch=7)
    kept = batches_in(log)[-1]
    header = read_batch_header(kept)
    assert (header.base_offset, header.partition_leader_epoch) == (4, 7)
    assert kept[8:12] + kept[16:] == original[8:12] + original[16:]


def test_log_append_time_is_stamped_and_answered() -> None:
    log = open_log(new_disk(), LogOptions(log_append_time=True))
    answer = append(log, batch_of(b"a", timestamp_ms=5), now_ms=777)
    assert answer.log_append_time_ms == 777
    assert records_in(log)[0].timestamp_ms == 777


def test_a_duplicate_gets_its_first_offset_and_time() -> None:
    log = open_log(new_disk(), LogOptions(log_append_time=True))
    first = append(log, batch_of(b"a", b"b", producer=(5, 0, 0)), now_ms=700)
    append(log, batch_of(b"c", producer=(5, 0, 2)), now_ms=800)
    again = append(log, batch_of(b"a", b"b", producer=(5, 0, 0)), now_ms=900)
    assert again == first._replace(duplicate=True)
    assert again.log_append_time_ms == 700
    assert log.end_offset == 3


def test_a_refused_batch_leaves_no_trace() -> None:
    log = open_log(new_disk())
    append(log, batch_of(b"a", producer=(5, 0, 0)))
    size = log.segments.size_bytes()
    with pytest.raises(ApiError):
        append(log, batch_of(b"c", producer=(5, 0, 9)))
    assert (log.end_offset, log.segments.size_bytes()) == (1, size)
    append(log, batch_of(b"b", producer=(5, 0, 1)))


def test_leader_epochs_never_go_back() -> None:
    log = open_log(new_disk())
    append(log, batch_of(b"a"), leader_epoch=5)
    with pytest.raises(LogDamaged, match="holds leader epoch 5, but its leader has epoch 4"):
        append(log, batch_of(b"a"), leader_epoch=4)
    assert log.end_offset == 1, "nothing was stored"


def test_a_leader_is_remembered_before_it_writes() -> None:
    log = open_log(new_disk())
    fill(log, 2, leader_epoch=1)
    log.assign_epoch(3)
    log.assign_epoch(3)
    log.assign_epoch(2)
    assert log.epochs.entries == [(1, 0), (3, 4)]
    assert (log.epochs.epoch_at(3), log.epochs.epoch_at(4)) == (1, 3)


@pytest.mark.parametrize(("offset", "found"), [(0, 0), (1, 0), (2, 2), (5, 4)])
def test_the_first_batch_found_holds_the_offset(offset: int, found: int) -> None:
    log = open_log(new_disk())
    fill(log, 10)
    content = log.locate(offset, max_bytes=1, end_offset=20, at_least_one=True).read()
    assert read_batch_header(content).base_offset == found


def test_reading_stops_before_the_end_offset() -> None:
    log = open_log(new_disk(), LARGE)
    fill(log, 10)
    for end in range(21):
        content = log.locate(0, max_bytes=1 << 20, end_offset=end, at_least_one=True).read()
        assert len(content) == sum(len(batch) for batch in batches_in(log)[: end // 2])


def test_without_room_for_a_batch_nothing_is_found_unless_wanted() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    assert log.locate(0, max_bytes=10, end_offset=4, at_least_one=False) == NOTHING
    assert log.locate(0, max_bytes=10, end_offset=4, at_least_one=True).size > 10
    assert log.locate(0, max_bytes=0, end_offset=0, at_least_one=True) == NOTHING
    assert NOTHING.read() == b""
    assert NOTHING.is_quick()


def test_the_end_of_the_log_is_empty_and_beyond_it_an_error() -> None:
    log = open_log(new_disk())
    fill(log, 2)
    log.advance_log_start(1)
    assert log.locate(4, max_bytes=100, end_offset=4, at_least_one=True) == NOTHING
    for offset in (-1, 0, 5):
        with pytest.raises(ApiError) as caught:
            log.locate(offset, max_bytes=100, end_offset=4, at_least_one=True)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_slice_never_crosses_a_segment() -> None:
    log = open_log(new_disk())
    fill(log, 40)
    first = log.locate(0, max_bytes=1 << 20, end_offset=80, at_least_one=True)
    assert first.size <= SMALL.segment_bytes
    assert first.is_final
    last = log.locate(79, max_bytes=1 << 20, end_offset=80, at_least_one=True)
    assert not last.is_final


def test_a_slice_stays_readable_after_its_segment_is_deleted() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 40)
    place = log.locate(0, max_bytes=1 << 20, end_offset=80, at_least_one=True)
    log.advance_log_start(70)
    assert log.delete_old_segments(NOW_MS, up_to_offset=80) > 0
    log.deleted_files.remove_due(NOW_MS + SMALL.file_delete_delay_ms, log.options.file_delete_delay_ms)
    assert read_batch_header(place.read()).base_offset == 0


def test_a_segment_rolls_before_it_grows_too_large() -> None:
    log = open_log(new_disk())
    fill(log, 60)
    assert len(log.segments) > 5
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert offsets(batches_in(log)) == list(range(0, 120, 2))


def test_a_segment_rolls_when_its_records_span_too_much_time() -> None:
    log = open_log(new_disk(), LogOptions(segment_ms=1000))
    for timestamp in (0, 500, 1000, 1001, 1500, 1, 2001, 2002):
        append(log, batch_of(b"v", timestamp_ms=timestamp))
    assert [segment.base_offset for segment in log.segments] == [0, 3, 7]


def test_old_timestamps_do_not_roll_a_segment_each() -> None:
    log = open_log(new_disk(), LogOptions(segment_ms=1000))
    for _ in range(20):
        append(log, batch_of(b"v", timestamp_ms=10), now_ms=10**12)
    assert len(log.segments) == 1


def test_a_quiet_segment_rolls_by_the_clock() -> None:
    log = open_log(new_disk(), LogOptions(segment_ms=1000))
    assert not log.roller.maybe_roll(NOW_MS + 99_999)
    append(log, batch_of(b"v", timestamp_ms=NOW_MS))
    assert not log.roller.maybe_roll(NOW_MS + 1000)
    assert log.roller.maybe_roll(NOW_MS + 1001)
    assert not log.roller.maybe_roll(NOW_MS + 99_999)
    assert len(log.segments) == 2


def test_a_segments_jitter_lets_each_segment_roll_at_a_time_of_its_own() -> None:
    log = open_log(new_disk(), LogOptions(segment_ms=1000, segment_jitter_ms=600))
    ages = []
    for _ in range(12):
        now_ms = NOW_MS
        append(log, batch_of(b"a", timestamp_ms=now_ms))
        while not log.roller.maybe_roll(now_ms):
            now_ms += 1
        ages.append(now_ms - NOW_MS)
    assert all(400 < age <= 1001 for age in ages), ages
    assert len(set(ages)) > 6
    again = open_log(new_disk(), LogOptions(segment_ms=1000, segment_jitter_ms=600))
    append(again, batch_of(b"a"))
    # Not drawn again at each look, and no other for a batch that comes than for the clock.
    assert not again.roller.maybe_roll(NOW_MS + ages[0] - 1)
    append(again, batch_of(b"b", timestamp_ms=NOW_MS + ages[0] - 1))
    assert len(again.segments) == 1
    append(again, batch_of(b"c", timestamp_ms=NOW_MS + ages[0]))
    assert len(again.segments) == 2


def test_records_without_timestamps_roll_by_the_age_of_their_segment() -> None:
    log = open_log(new_disk(), LogOptions(segment_ms=1000))
    append(log, batch_of(b"v", timestamp_ms=-1))
    assert not log.roller.maybe_roll(NOW_MS + 1000)
    assert log.roller.maybe_roll(NOW_MS + 1001)


def test_a_compacted_log_rolls_by_its_compaction_lag() -> None:
    log = open_log(new_disk(), LogOptions(segment_ms=10**9, compact=True, max_compaction_lag_ms=50))
    append(log, batch_of(b"v", timestamp_ms=NOW_MS))
    assert log.roller.maybe_roll(NOW_MS + 51)


def test_changed_settings_hold_at_once() -> None:
    log = open_log(new_disk(), LARGE)
    fill(log, 20)
    assert len(log.segments) == 1
    log.update_options(SMALL)
    fill(log, 20)
    assert log.options is SMALL
    assert len(log.segments) > 2


def test_a_full_disk_refuses_and_heals() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 3)
    before = batches_in(log)
    disk.capacity_bytes = disk.used_bytes() + 40
    for _ in range(3):
        with pytest.raises(DiskFull):
            append(log, batch_of(b"v" * 60, producer=(5, 0, 0)))
    assert batches_in(log) == before
    assert log.producers.get(5) is None
    disk.capacity_bytes = None
    assert append(log, batch_of(b"v" * 60, producer=(5, 0, 0))).base_offset == 6
    assert open_log(disk).end_offset == 7


def test_a_full_disk_at_a_roll_loses_nothing() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 6)
    disk.capacity_bytes = disk.used_bytes() + 10
    for _ in range(4):
        with pytest.raises(DiskFull):
            fill(log, 1)
    disk.capacity_bytes = None
    fill(log, 20)
    expected = batches_in(log)
    assert offsets(expected) == list(range(0, 52, 2))
    assert batches_in(open_log(disk)) == expected


def test_a_failing_disk_is_reported_and_nothing_counted() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 2)
    disk.fail_next_write()
    with pytest.raises(StorageFailure):
        fill(log, 1)
    assert log.end_offset == 4
    assert open_log(disk).end_offset == 4


def test_a_follower_appends_as_it_is() -> None:
    leader = open_log(new_disk())
    for epoch in (1, 4):
        fill(leader, 15, leader_epoch=epoch)
    append(leader, batch_of(b"x", producer=(5, 0, 0)), leader_epoch=4)
    data = b"".join(batches_in(leader))
    follower = open_log(new_disk())
    half = sum(len(batch) for batch in batches_in(leader)[:9])
    assert follower.append_as_is(check_replicated(data[:half]), now_ms=NOW_MS) == 18
    assert follower.append_as_is(check_replicated(data[half:]), now_ms=NOW_MS) == 61
    assert b"".join(batches_in(follower)) == data
    assert follower.epochs.entries == leader.epochs.entries
    assert len(follower.segments) > 3
    assert follower.producers.get(5) is not None


def test_a_follower_refuses_what_does_not_follow() -> None:
    leader = open_log(new_disk())
    fill(leader, 3)
    data = b"".join(batches_in(leader))
    follower = open_log(new_disk())
    follower.append_as_is(check_replicated(data), now_ms=NOW_MS)
    flipped = bytearray(data)
    flipped[-1] ^= 1
    other = open_log(new_disk())
    for log, bad in ((follower, data), (other, data[:-1]), (other, bytes(flipped)), (other, data + bytes(70))):
        end = log.end_offset
        with pytest.raises(ApiError) as caught:
            log.append_as_is(check_replicated(bad), now_ms=NOW_MS)
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
        assert log.end_offset == end


def test_a_follower_keeps_gaps_of_a_compacted_leader() -> None:
    leader = open_log(new_disk())
    fill(leader, 40)
    kept = [batch for number, batch in enumerate(batches_in(leader)) if number % 3 == 0 or number == 39]
    disk = new_disk()
    follower = open_log(disk)
    follower.append_as_is(check_replicated(b"".join(kept)), now_ms=NOW_MS)
    assert batches_in(follower) == kept
    assert batches_in(open_log(disk)) == kept


def test_truncating_drops_the_batch_that_holds_the_offset() -> None:
    log = open_log(new_disk())
    fill(log, 40)
    log.truncate_to(31, now_ms=NOW_MS)
    assert log.end_offset == 30
    assert offsets(batches_in(log)) == list(range(0, 30, 2))
    fill(log, 5)
    assert log.end_offset == 40


def test_truncating_rolls_producers_and_epochs_back() -> None:
    log = open_log(new_disk())
    for sequence in range(40):
        append(log, batch_of(b"v" * 50, producer=(5, 0, sequence)), leader_epoch=sequence // 10)
    log.truncate_to(17, now_ms=NOW_MS)
    entry = log.producers.get(5)
    assert entry is not None
    assert [batch.last_offset for batch in entry.batches] == [12, 13, 14, 15, 16]
    assert log.epochs.entries == [(0, 0), (1, 10)]
    assert not append(log, batch_of(b"v", producer=(5, 0, 17)), leader_epoch=9).duplicate


def test_truncating_at_the_end_forgets_epochs_that_wrote_nothing() -> None:
    log = open_log(new_disk())
    fill(log, 3, leader_epoch=1)
    log.assign_epoch(2)
    log.truncate_to(6, now_ms=NOW_MS)
    assert log.epochs.entries == [(1, 0)]
    assert log.end_offset == 6


def test_truncating_below_everything_restarts_there() -> None:
    log = open_log(new_disk())
    log.truncate_fully_and_start_at(100, now_ms=NOW_MS)
    fill(log, 20)
    log.truncate_to(50, now_ms=NOW_MS)
    assert (log.log_start_offset, log.end_offset, len(log.segments)) == (50, 50, 1)


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_elsewhere_is_durable_at_once(seed: int) -> None:
    disk = new_disk(seed)
    log = open_log(disk)
    fill(log, 20)
    recovery = checkpointed(log)
    log.truncate_fully_and_start_at(500, now_ms=NOW_MS)
    disk.crash("power")
    again = open_log(disk, SMALL, recovery)
    assert (again.log_start_offset, again.end_offset) == (500, 500)


def test_the_log_start_moves_forward_only() -> None:
    log = open_log(new_disk())
    fill(log, 10, leader_epoch=3)
    log.advance_log_start(7)
    log.advance_log_start(5)
    assert log.log_start_offset == 7
    assert log.epochs.entries == [(3, 7)]
    with pytest.raises(ApiError) as caught:
        log.advance_log_start(21)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_closed_log_opens_as_it_was() -> None:
    disk = new_disk()
    log = open_log(disk)
    for sequence in range(30):
        append(log, batch_of(b"v" * 40, producer=(5, 1, sequence)))
    expected = batches_in(log)
    recovery = close_cleanly(log)
    again = open_log(disk, SMALL, recovery)
    assert batches_in(again) == expected
    assert (again.durability.flushed_offset, again.durability.recovery_point) == (30, 30)
    assert append(again, batch_of(b"v" * 40, producer=(5, 1, 25))).duplicate


@pytest.mark.parametrize("seed", range(8))
def test_a_clean_stop_survives_a_power_cut_right_after(seed: int) -> None:
    disk = new_disk(seed)
    log = open_log(disk)
    fill(log, 40)
    expected = batches_in(log)
    recovery = close_cleanly(log)
    disk.crash("power")
    again = open_log(disk, SMALL, recovery)
    assert batches_in(again) == expected
    assert again.times_below(80).latest() == (NOW_MS + 391, 79, 0)


def test_few_sealed_segments_are_held_open() -> None:
    log = open_log(new_disk())
    fill(log, 200)
    batches_in(log)
    assert sum(segment._file is not None for segment in log.segments) <= 6


def test_producers_that_fall_silent_expire_with_housekeeping() -> None:
    log = open_log(new_disk(), LogOptions(producer_id_expiration_ms=1000))
    append(log, batch_of(b"v", producer=(5, 0, 0)))
    log.delete_old_segments(NOW_MS + 999, up_to_offset=0)
    assert len(log.producers) == 1
    log.delete_old_segments(NOW_MS + 1000, up_to_offset=0)
    assert len(log.producers) == 0


def test_a_real_disk_behaves_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = str(tmp_path_factory.mktemp("log") / "orders-0")
    log = PartitionLog.open(
        SystemDisk(), directory, SMALL, partition=PARTITION, checkpoint=LogCheckpoint(), now_ms=NOW_MS
    )
    fill(log, 60)
    expected = batches_in(log)
    log.truncate_to(100, now_ms=NOW_MS)
    log.durability.flush()
    recovery = close_cleanly(log)
    again = PartitionLog.open(SystemDisk(), directory, SMALL, partition=PARTITION, checkpoint=recovery, now_ms=NOW_MS)
    assert batches_in(again) == expected[:50]
    twin = open_log(new_disk())
    fill(twin, 60)
    twin.truncate_to(100, now_ms=NOW_MS)
    assert batches_in(twin) == expected[:50]
    assert DIRECTORY.endswith("orders-0")


def test_a_file_that_another_program_has_shortened_is_damage_and_no_empty_answer(tmp_path: Path) -> None:
    directory = str(tmp_path / "orders-0")
    log = PartitionLog.open(
        SystemDisk(), directory, SMALL, partition=PARTITION, checkpoint=LogCheckpoint(), now_ms=NOW_MS
    )
    fill(log, 5)
    piece = log.locate(0, max_bytes=10_000, end_offset=10, at_least_one=True)
    os.truncate(tmp_path / "orders-0" / "00000000000000000000.log", 100)
    with pytest.raises(LogDamaged, match="ends at byte 100, too early"):
        piece.read()


def test_what_is_under_way_for_a_log_that_was_set_aside_does_not_touch_the_one_after_it() -> None:
    log = open_log(new_disk())
    fill(log, 3)
    log.durability.flush()
    ticket = log.durability.begin_checkpoint()
    assert ticket is not None
    log.durability.retire()
    with pytest.raises(StorageFailure, match="not used any more"):
        ticket.write()
